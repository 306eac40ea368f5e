package takeover

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/movein"
)

const (
	journalsDir    = "imports"
	journalVersion = 1
	maxJournal     = 1 << 20
)

// Journal says where the session of a target came from. It holds no secret.
type Journal struct {
	Version int            `json:"version"`
	Target  string         `json:"target"`
	Program movein.Program `json:"program"`
	Dir     string         `json:"dir"`
	Name    string         `json:"name"`
	Client  string         `json:"client,omitzero"`
	URL     string         `json:"url,omitzero"`
	// Moved is what the file is called while neither has it.
	Moved string `json:"moved"`
	// LoginID is that of the store's login.
	LoginID string `json:"loginId"`
	// ClientID is whose the refresh token is.
	ClientID string `json:"clientId"`
	// Rest is what the file held beside its tokens.
	Rest    map[string]jsontext.Value `json:"rest,omitzero"`
	Unknown jsontext.Value            `json:",embed"`
}

// Place is where the session came from.
func (j *Journal) Place() Place {
	return Place{Program: j.Program, Dir: j.Dir, Name: j.Name, Client: j.Client, URL: j.URL}
}

// MovedPath is the path of the renamed file.
func (j *Journal) MovedPath() string { return filepath.Join(j.Dir, j.Moved) }

// Journal returns that of the target, nil if there is none.
func (m *Mover) Journal(target string) (*Journal, error) {
	if !credstore.ValidName(target) {
		return nil, nil //nolint:nilnil // there is none
	}
	dir, err := m.Disk.OpenDir(filepath.Join(m.StateDir, journalsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none is a state of its own
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return readJournal(dir, target)
}

func readJournal(dir *durable.Dir, target string) (*Journal, error) {
	f, err := dir.Read(target+".json", maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, err
	}
	j := &Journal{}
	if err := json.Unmarshal(f.Bytes, j); err != nil || j.Version != journalVersion || j.Target != target ||
		!filepath.IsAbs(j.Dir) || !plainName(j.Name) || !plainName(j.Moved) || j.Client != "" && !plainName(j.Client) || j.LoginID == "" {
		return nil, failing(credstore.ErrDamaged, nil, "%s is damaged; it was left untouched: it says where the session of %s came from; look at it, or move it aside", dir.Join(target+".json"), target)
	}
	return j, nil
}

func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// waiting returns the journal whose renamed file stands and is the session of
// p: a move that was cut short, into whatever target.
func (m *Mover) waiting(p Place) (*Journal, error) {
	dir, err := m.Disk.OpenDir(filepath.Join(m.StateDir, journalsDir))
	if err != nil {
		return nil, nil //nolint:nilnil // nothing was ever moved
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		target, ok := strings.CutSuffix(name, ".json")
		if !ok || !credstore.ValidName(target) {
			continue
		}
		j, err := readJournal(dir, target)
		if err != nil || j == nil || !j.Place().same(p) {
			continue // its own command says what is wrong with it
		}
		if _, err := durable.LookAt(j.MovedPath()); err == nil {
			return j, nil
		}
	}
	return nil, nil //nolint:nilnil // none
}

// ledger is the directory of journals, with the lock of one target's.
type ledger struct {
	dir  *durable.Dir
	lock *durable.Kept
}

// inherited is how long a lock may outlive its holder: a program that the
// holder was about to start has it until it is that program.
const inherited = 500 * time.Millisecond

// open takes the lock: one move of a target at a time.
func (m *Mover) open(target string) (*ledger, error) {
	if err := credstore.CheckName(target); err != nil {
		return nil, err
	}
	state, err := m.Disk.MakeDir(m.StateDir)
	if err != nil {
		return nil, err
	}
	state.Close()
	dir, err := m.Disk.MakeDir(filepath.Join(m.StateDir, journalsDir))
	if err != nil {
		return nil, err
	}
	lock, err := dir.OpenKept(target + ".guard")
	if err != nil {
		dir.Close()
		return nil, err
	}
	got, err := lock.TryLock()
	for until := time.Now().Add(inherited); err == nil && !got && time.Now().Before(until); {
		<-time.After(inherited / 25)
		got, err = lock.TryLock()
	}
	if err == nil && !got {
		err = failing(ErrInUse, nil, "another process moves the session of %s just now: wait for it", target)
	}
	if err != nil {
		lock.Close()
		dir.Close()
		return nil, err
	}
	return &ledger{dir, lock}, nil
}

func (l *ledger) close() {
	l.lock.Close()
	l.dir.Close()
}

func (l *ledger) write(j *Journal) error {
	b, err := json.Marshal(j, jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("encoding the journal of %s: %w", j.Target, err)
	}
	return l.dir.Replace(j.Target+".json", append(b, '\n'))
}

// remove ends a journal. One that stays names files that are gone.
func (l *ledger) remove(target string) error {
	err := l.dir.Remove(target + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = l.dir.Sync()
	}
	return err
}
