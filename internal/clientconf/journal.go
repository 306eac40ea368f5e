package clientconf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/durable"
)

// The journal is setup.json in the state directory, 0600:
//
//	{
//	  "version": 1,
//	  "records": [
//	    {"client": "docker", "targets": ["reg"], "file": "/home/me/.docker/config.json",
//	     "change": {"path": ["credHelpers", "reg.example.com"], "new": "\"spendonce\"", "made": {"depth": 1}}},
//	    {"client": "git", "targets": ["forge"],
//	     "tool": {"key": "credential.https://git.example.com/.helper", "values": ["", "/usr/bin/spendonce credential git"]}}
//	  ]
//	}
//
// A record is written before the change that it is about. It holds the name of
// the setting, what we set, and what we replaced, and no credential.
const (
	journalName = "setup.json"
	lockName    = "setup.lock"
	maxJournal  = 4 << 20
)

// ErrRunning says that another setup is at work.
var ErrRunning = errors.New("another 'spendonce credential setup' or 'mcp install' is running: try again when it has ended")

// record is one thing that was changed.
type record struct {
	Client  Client   `json:"client"`
	Targets []string `json:"targets"` // for which it is needed
	File    string   `json:"file,omitempty"`
	Change  *Change  `json:"change,omitempty"`
	Tool    *setting `json:"tool,omitempty"`
	Table   *Table   `json:"table,omitempty"`
}

// setting is one that the client's own tool has made.
type setting struct {
	Key    string            `json:"key"`
	Values []string          `json:"values"`
	Local  bool              `json:"local,omitempty"` // of the project, not of the user
	Scope  Scope             `json:"scope,omitempty"` // of a server
	Dir    string            `json:"dir,omitempty"`   // the project
	Env    map[string]string `json:"env,omitempty"`   // variables that say where the tool keeps it
	Made   string            `json:"made,omitempty"`  // the file that the tool made for it
}

// same reports whether two records are about one setting.
func (r record) same(o record) bool {
	switch {
	case r.Client != o.Client:
		return false
	case r.Change != nil && o.Change != nil:
		return r.File == o.File && slices.Equal(r.Change.Path, o.Change.Path)
	case r.Table != nil && o.Table != nil:
		return r.File == o.File && r.Table.Name == o.Table.Name
	case r.Tool != nil && o.Tool != nil:
		return r.Tool.Key == o.Tool.Key && r.Tool.Dir == o.Tool.Dir && maps.Equal(r.Tool.Env, o.Tool.Env)
	}
	return false
}

type journalFile struct {
	Version int      `json:"version"`
	Records []record `json:"records"`
}

// journal is what was changed, oldest first.
type journal struct {
	dir     *durable.Dir
	records []record
}

// readJournal reads the journal without making or locking anything.
func readJournal(disk durable.Disk, stateDir string) ([]record, error) {
	dir, err := disk.OpenDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return load(dir)
}

// openJournal opens the journal for changes, which nobody else may make until
// it is closed.
func openJournal(disk durable.Disk, stateDir string) (j *journal, closeJournal func(), err error) {
	dir, err := disk.MakeDir(stateDir)
	if err != nil {
		return nil, nil, err
	}
	lock, err := dir.OpenKept(lockName)
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	closeJournal = func() { lock.Close(); dir.Close() }
	got, err := lock.TryLock()
	if err == nil && !got {
		err = ErrRunning
	}
	j = &journal{dir: dir}
	if err == nil || errors.Is(err, durable.ErrNoKernelLocks) {
		j.records, err = load(dir)
	}
	if err != nil {
		closeJournal()
		return nil, nil, err
	}
	return j, closeJournal, nil
}

func load(dir *durable.Dir) ([]record, error) {
	f, err := dir.Read(journalName, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var j journalFile
	if err := json.Unmarshal(f.Bytes, &j); err != nil {
		return nil, fmt.Errorf("%s, which says how to undo what was set up, cannot be read: %w", dir.Join(journalName), err)
	}
	if j.Version != 1 {
		return nil, fmt.Errorf("%s has version %d, and this program knows version 1: use the newer one", dir.Join(journalName), j.Version)
	}
	return j.Records, nil
}

// note puts a record in, in the place of one about the same setting.
func (j *journal) note(r record) error {
	records := slices.Clone(j.records)
	if i := slices.IndexFunc(records, r.same); i >= 0 {
		records[i] = r
	} else {
		records = append(records, r)
	}
	return j.save(records)
}

// strike takes a record out.
func (j *journal) strike(r record) error {
	return j.save(slices.DeleteFunc(slices.Clone(j.records), r.same))
}

// save replaces the file, then what is in memory.
func (j *journal) save(records []record) error {
	b, err := json.Marshal(journalFile{1, records}, jsontext.WithIndent("  "), jsontext.EscapeForHTML(false))
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := j.dir.Replace(journalName, append(b, '\n')); err != nil {
		return err
	}
	j.records = records
	return nil
}
