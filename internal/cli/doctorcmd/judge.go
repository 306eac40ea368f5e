package doctorcmd

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/lockfile"
)

// scene is everything that is judged.
type scene struct {
	report    credstore.Report
	openErr   error // there is no state directory to look at
	config    *config.Config
	configErr error
	around    surroundings
	broker    brokerSight
}

// configured are the names in the configuration.
func (s scene) configured(target string) bool {
	if s.config == nil {
		return false
	}
	_, ok := s.config.Targets[target]
	return ok
}

// targets are those that the user has: stored or configured.
func (s scene) targets() []credstore.TargetReport {
	return slices.DeleteFunc(slices.Clone(s.report.Targets), func(t credstore.TargetReport) bool {
		return !t.Stored && !s.configured(t.Target)
	})
}

// judge is the whole doctor: what is to be said of what was seen.
func judge(s scene) []check {
	var all []check
	f := findings{all: &all}
	if s.openErr != nil {
		f.report(failure, "state.directory", s.openErr)
	} else {
		judgeState(f, s)
		judgeStore(f, s)
	}
	judgeConfig(f, s)
	judgeEtcd(f, s.report)
	judgeSurroundings(f, s)
	judgeBroker(f, s)
	for _, t := range s.report.Targets {
		judgeTarget(findings{&all, t.Target}, s, t)
	}
	return all
}

func judgeState(f findings, s scene) {
	r := s.report
	if !r.State.Exists {
		f.ok("state.directory", "%s does not exist yet: the first write makes it", r.State.Path)
	}
	seen := map[string]bool{}
	for _, d := range []credstore.Directory{r.State, r.Sessions, r.Beside, r.Locks} {
		if d.Exists && !seen[d.Path] {
			seen[d.Path] = true
			judgeDirectory(f, s, d)
		}
	}
	for _, a := range s.around.ancestors {
		if why := a.unsafe(s.around.uid, s.around.gid); why != "" {
			f.find(warning, "state.ancestors", "make sure that only you may rename what is in it", "%s, above the store, %s: they could put other files in its place", a.path, why)
		}
	}
	judgeSpace(f, r)
	for _, path := range r.Loose {
		if path == s.broker.state.path {
			continue // judged by a stricter rule
		}
		f.find(warning, "state.mode", "chmod 600 "+path, "others may read or write %s", path)
	}
	judgeTemps(f, s)
}

func judgeDirectory(f findings, s scene, d credstore.Directory) {
	const id = "state.directory"
	switch {
	case d.Err != nil && d.Facts.Type == fs.ModeDir && d.Facts.UID != uint32(s.around.uid):
		f.find(failure, id, "give it back to its owner, or use another one with --state-dir", "%s belongs to user %d, not to user %d: every command refuses it", d.Path, d.Facts.UID, s.around.uid)
		return
	case d.Err != nil && d.Facts.Type == fs.ModeDir && d.Facts.Mode&0o022 != 0:
		f.find(failure, id, "chmod go-w "+d.Path, "%s has mode %04o, others may write to it: every command refuses it", d.Path, d.Facts.Mode)
		return
	case d.Err != nil:
		f.find(failure, id, "look at it, or use another one with --state-dir", "%v", d.Err)
		return
	case d.Facts.Mode&0o077 != 0:
		f.find(note, id, "chmod 700 "+d.Path, "%s has mode %04o: others can see the names of your targets", d.Path, d.Facts.Mode)
	default:
		f.ok(id, "%s is yours alone", d.Path)
	}
	if d.WriteErr != nil && !d.Volume.ReadOnly { // else said of the file system
		f.find(failure, "state.writable", "make it writable: until then tokens that are valid are served and none is refreshed", "%v", d.WriteErr)
	}
	v := d.Volume
	switch {
	case v.Network:
		f.find(warning, "state.filesystem", "keep the store on a local file system if you can: see --state-dir",
			"%s is on %s, where no kernel lock can be relied on: only the older rules protect the session, a crash costs up to %s, and a process that is stopped for longer may lose it", d.Path, v.Kind, s.report.StaleAfter)
	case d.LocksErr != nil:
		f.find(warning, "state.kernel-locks", "keep the store on a file system that has them: see --state-dir",
			"%s is on %s, which has no kernel locks: only the older rules protect the session, a crash costs up to %s, and a process that is stopped for longer may lose it", d.Path, v.Kind, s.report.StaleAfter)
	case v.Kind != "":
		f.ok("state.filesystem", "%s is on %s, with kernel locks", d.Path, v.Kind)
	}
}

// judgeSpace looks for room for what a refresh reserves before it sends.
func judgeSpace(f findings, r credstore.Report) {
	const id = "state.space"
	needs, dirs := map[uint64]int64{}, map[uint64]credstore.Directory{}
	var devices []uint64
	for _, d := range []credstore.Directory{r.Beside, r.Sessions} {
		if !d.Exists || d.Err != nil || d.Volume.Kind == "" {
			continue
		}
		dev := d.Facts.Dev
		if _, again := dirs[dev]; !again {
			dirs[dev], devices = d, append(devices, dev)
		}
		needs[dev] += d.Needs
	}
	for _, dev := range devices {
		d := dirs[dev]
		switch v := d.Volume; {
		case v.ReadOnly:
			f.find(failure, id, "mount it writable, or use another one with --state-dir", "the file system of %s is mounted read-only: nothing is refreshed", d.Path)
		case v.Free < needs[dev]:
			f.find(failure, id, "make room: until then tokens that are valid are served and none is refreshed", "the file system of %s has %d bytes left, and a refresh wants %d to be sure that it can save what it gets", d.Path, v.Free, needs[dev])
		case v.Files >= 0 && v.Files < 4:
			f.find(failure, id, "delete some: until then tokens that are valid are served and none is refreshed", "the file system of %s can hold no more files", d.Path)
		default:
			f.ok(id, "the file system of %s has room", d.Path)
		}
	}
}

func judgeTemps(f findings, s scene) {
	const id = "state.temporary"
	r := s.report
	var old, orphans []credstore.Temp
	for _, t := range r.Temps {
		if r.Time.Sub(t.Since) <= 2*r.StaleAfter {
			continue // of a writer that may be at work
		}
		isThere := func(x credstore.TargetReport) bool { return x.Target == t.Target && x.Stored }
		if t.Target != "" && r.StoreErr == nil && !slices.ContainsFunc(r.Targets, isThere) {
			orphans = append(orphans, t)
			continue
		}
		old = append(old, t)
	}
	oldest := func(all []credstore.Temp) time.Time {
		return slices.MinFunc(all, func(a, b credstore.Temp) int { return a.Since.Compare(b.Since) }).Since
	}
	if len(old) > 0 {
		f.find(note, id, "nothing to do: the next refresh or login removes them", "crashed writers left %s, the oldest of %s; they may hold a refresh token", many(len(old), "temporary file"), at(r.Time, oldest(old)))
	}
	if len(orphans) > 0 {
		f.find(note, id, "nothing to do: the next refresh or login removes them", "crashed writers left %s of targets that are not stored any more, the oldest of %s; they may hold a client secret", many(len(orphans), "temporary file"), at(r.Time, oldest(orphans)))
	}
	if len(old)+len(orphans) == 0 {
		f.ok(id, "no temporary files were left behind")
	}
}

func judgeStore(f findings, s scene) {
	r := s.report
	switch {
	case r.StoreErr != nil && r.Beside.Err != nil: // said of the directory
	case errors.Is(r.StoreErr, credstore.ErrKey): // said of the key
	case r.StoreErr != nil:
		text, next := split(r.StoreErr.Error())
		if !strings.Contains(next, " it ") { // the cause, and no step
			text, next = r.StoreErr.Error(), "look at it, or move it aside and sign in again"
		}
		f.find(failure, "store.file", next, "%s", text)
	case !r.Exists && r.Link != "":
		f.find(note, "store.file", "nothing to do: the first write makes it", "%s leads to %s, which does not exist yet", r.Path, r.Link)
	case !r.Exists:
		f.ok("store.file", "nothing is stored yet")
	default:
		f.ok("store.file", "%s holds %s in %d bytes", r.Path, many(r.Records, "record"), r.File.Size)
	}
	file := r.Path
	if r.Link != "" {
		file = r.Link
		f.find(note, "store.link", "nothing to do: the link is kept, and each refresh locks the whole store", "%s leads to %s", r.Path, r.Link)
	}
	if r.Exists && r.File.Type == 0 {
		if r.File.Mode&0o077 != 0 {
			f.find(warning, "store.mode", "chmod 600 "+file+" (the next write does it too); if others use this machine, sign in again", "%s has mode %04o, so others may have read it", file, r.File.Mode)
		}
		if r.File.Links > 1 {
			f.find(warning, "store.hard-links", "remove the other names, or make them symbolic links", "%s has %d names: a refresh replaces this one, and the others keep tokens that are spent", file, r.File.Links)
		}
	}
	if s.around.workTree != "" {
		f.find(warning, "store.work-tree", "keep the store out of it, or make sure that git ignores it", "the store lies in the git work tree %s: a commit would hand out its tokens", s.around.workTree)
	}
	judgeKey(f, r)
	judgeIdentity(f, s.around.identity)
	judgeRecords(f, r)
	judgeLock(f, "store.lock", r.Lock, r, "the store lock", "write")
}

func judgeRecords(f findings, r credstore.Report) {
	var foreign []string
	for _, t := range r.Targets {
		if t.Stored && !t.Usable {
			foreign = append(foreign, t.Target)
		}
	}
	if n := len(foreign); n > 0 {
		const shown = 5
		text := strings.Join(foreign[:min(n, shown)], ", ")
		if n > shown {
			text += ", ..."
		}
		f.find(note, "store.records", "nothing to do: they are kept and never used", "%s of another program: %s", many(n, "record"), text)
	}
}

func judgeConfig(f findings, s scene) {
	if s.configErr != nil {
		f.find(failure, "config.file", "correct it: until then nothing is sent to a server that it has to name, and nothing is written", "%v", s.configErr)
		return
	}
	c := s.config
	if c == nil || c.Path == "" {
		return // without HOME, said elsewhere
	}
	if len(c.Targets) > 0 {
		f.ok("config.file", "%s defines %s", c.Path, many(len(c.Targets), "target"))
	} else {
		f.ok("config.file", "no target is configured in %s", c.Path)
	}
	stale := time.Duration(c.Lock.StaleAfter)
	var shared []string
	for name, t := range c.Targets {
		if t.LockScope == "store" || t.LockScope == "" && t.Dialect == "hypaware" {
			shared = append(shared, name)
		}
	}
	slices.Sort(shared)
	const id = "config.stale-after"
	switch {
	case stale == 0 || stale == lockfile.DefaultStaleAfter:
	case stale < lockfile.DefaultStaleAfter && len(shared) > 0:
		f.find(failure, id, "raise it, or set lock_scope = \"target\"", "stale_after is %s, and %s shares the store with other programs by the constant %s: nothing is refreshed or written", stale, shared[0], lockfile.DefaultStaleAfter)
	default:
		f.find(note, id, "leave it out: it is for tests", "stale_after is %s instead of %s", stale, lockfile.DefaultStaleAfter)
	}
}

func judgeSurroundings(f findings, s scene) {
	a := s.around
	if !a.home {
		f.find(note, "environment.home", "set HOME", "HOME is not set, so no configuration below it is read")
	}
	f.ok("environment.program", "this is %s, version %s", a.executable, a.version)
	if a.earlier != "" {
		f.find(warning, "environment.path", "remove one of them, or put "+filepath.Dir(a.executable)+" first on PATH", "this is %s, version %s, and another program comes first on PATH: %s", a.executable, a.version, a.earlier)
	}
	if len(a.later) > 0 {
		f.find(note, "environment.path", "remove what you do not use", "further programs of this name are on PATH: %s", strings.Join(a.later, ", "))
	}
	if len(a.proxies) > 0 {
		f.find(note, "environment.proxy", "nothing to do if that is meant", "servers are reached through a proxy: %s", strings.Join(a.proxies, ", "))
	}
	if len(a.trust) > 0 {
		f.find(note, "environment.certificates", "nothing to do if that is meant", "which servers are trusted is set by %s", strings.Join(a.trust, ", "))
	}
}
