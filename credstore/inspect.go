package credstore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

// Report is what [Store.Inspect] saw: plain data, without any secret, for a
// program that tells its user what is wrong. It judges nothing that the store
// itself does not judge.
type Report struct {
	Time       time.Time
	StaleAfter time.Duration

	State    Directory // the state directory
	Sessions Directory
	Beside   Directory // where the store file really is: State, unless the store is a link
	Locks    Directory // beside the store file

	Path     string        // of the store file, as it is known
	File     durable.Facts // of the file that is there, behind a link; zero if there is none
	Exists   bool
	Link     string // where Path leads; "" if it is no link
	StoreErr error  // the store cannot be read
	Records  int

	Seal    Seal                // of the store
	NewSeal string              // the kind of key that the configuration seals stores with; "": none
	SealErr error               // that part of the configuration cannot be read
	Lock    lockfile.Inspection // of the store

	// Loose are further files in the state directory that group or others
	// may read or write.
	Loose []string
	Temps []Temp
	// Shared is the store that several machines share; nil if there is none.
	Shared *SharedInspection
	// Targets are sorted by name: what is stored, what has a session file or
	// a lock, and what [Config.OtherNames] names.
	Targets []TargetReport
}

// Seal says how a file is kept. The zero value is in plain.
type Seal struct {
	Kind   string // of the key
	Key    string // its id
	KeyErr error  // it cannot be had, without asking anybody
}

// Directory is one of the store's. The zero values of all but Path stand for
// one that does not exist.
type Directory struct {
	Path     string
	Exists   bool
	Facts    durable.Facts
	Err      error // it is unsafe or cannot be opened: nothing in it was looked at
	WriteErr error // nothing can be made in it
	Volume   durable.Volume
	LocksErr error // the file system has no kernel locks; not asked of one on the network
	Needs    int64 // bytes that a refresh reserves in it
}

// Temp is a temporary file, of a writer that is at work or that died.
type Temp struct {
	Path   string
	Target string // whose session file it was to replace; "" for the store
	Since  time.Time
}

// TargetReport is one target.
type TargetReport struct {
	Entry
	Stored bool

	SessionPath    string
	SessionExists  bool
	SessionMode    uint32 // the lower twelve bits
	SessionSeal    Seal
	SessionUnknown []string // members that another version wrote
	Pending        bool     // a login was cut short; the next refresh settles it
	Pinned         bool
	ObtainedAt     time.Time // when the access token was saved; zero if unknown

	// Shared: the target is kept in the shared store, and this was seen there.
	// Lock and the members about the session file are zero, Err says why the
	// value cannot be read, and SessionSeal how it is sealed.
	Shared *SharedTarget
	// Leftover: the file still holds a record of such a target, which nobody
	// uses.
	Leftover bool
	// Moving: the session is not refreshed, for another copy was begun.
	Moving bool

	// RefreshErr says why no refresh would be tried now, were one needed: nil
	// if it would. It does not know what SettingsErr and OverrideErr say.
	RefreshErr error
	// SettingsErr is what a refresh would end with before it sends, because
	// of the configuration.
	SettingsErr error
	OverrideErr error // the environment's token cannot be used
	Live        bool  // there is an access token and it has not ended
	// OutcomeStands: LastOutcome speaks of the refresh token that is stored.
	OutcomeStands bool
	Forced        int // sends within the window that a rejected token forced
	MaxForced     int
	ForcedWindow  time.Duration

	Lock lockfile.Inspection
	// Mark is that of the guard if it speaks of the stored refresh token.
	Mark lockfile.Mark
}

// Inspect looks at everything and changes nothing. It takes no lock of the
// store, waits for nobody and asks no server. settings, which may be nil, is
// what [SourceConfig] would be given for the target.
func (s *Store) Inspect(settings func(target string) (Settings, error)) Report {
	r := Report{Time: time.Now(), StaleAfter: s.cfg.StaleAfter, Path: s.path}
	var state, sessions, beside, locks *durable.Dir
	r.State, state = s.survey(s.cfg.Dir)
	defer state.Close()
	r.Sessions, sessions = s.survey(filepath.Join(s.cfg.Dir, sessionsDir))
	defer sessions.Close()
	at, err := s.locate()
	if err != nil {
		r.StoreErr = err
	} else {
		r.Beside, beside = s.survey(at.path)
		defer beside.Close()
		r.Locks, locks = s.survey(filepath.Join(at.path, locksDir))
		defer locks.Close()
		if at.linked {
			r.Link = filepath.Join(at.path, at.base)
		}
	}
	r.lookBeside(beside, at.base)
	snap := &snapshot{doc: &document{}}
	keys := s.peek()
	if r.StoreErr == nil {
		r.Seal, r.StoreErr = keys.seal(func() (*form, error) {
			v, err := s.readNow()
			if err != nil {
				return nil, err
			}
			snap = v
			return v.form, nil
		})
	}
	r.NewSeal, r.SealErr = s.newKind()
	r.Records = len(snap.doc.members)
	r.lookAtLoose(state, at.base)
	r.Temps = temps(beside, func(final string) (string, bool) { return "", final == at.base })
	r.Temps = append(r.Temps, temps(sessions, func(final string) (string, bool) { return strings.CutSuffix(final, ".json") })...)

	r.Shared = s.inspectShared()
	largest := int64(0)
	for _, name := range s.allNames(snap, sessions, locks) {
		t := s.inspectTarget(name, snap, locks, settings, keys, r.Shared)
		if f, err := look(sessions, name+".json"); err == nil && t.Shared == nil {
			t.SessionExists, t.SessionMode = true, f.Mode
			largest = max(largest, f.Size)
		}
		r.Targets = append(r.Targets, t)
	}
	r.Beside.Needs = r.File.Size + snap.form.room(s.cfg.Margin)
	r.Sessions.Needs = largest + snap.form.room(sessionMargin)
	return r
}

// survey tells of a directory and opens it, if that is safe.
func (s *Store) survey(path string) (Directory, *durable.Dir) {
	d := Directory{Path: path}
	facts, err := durable.LookAt(path + "/.") // behind a link
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	d.Exists, d.Facts, d.Err = true, facts, err
	dir, err := s.cfg.Disk.OpenDir(path)
	if err != nil {
		d.Err = err
		return d, nil
	}
	d.WriteErr = dir.Writable()
	if d.Volume, err = dir.Volume(); err == nil && !d.Volume.Network {
		d.LocksErr = dir.KernelLocks()
	}
	return d, dir
}

func (r *Report) lookBeside(beside *durable.Dir, base string) {
	if beside == nil {
		return
	}
	if f, err := beside.Look(base); err == nil {
		r.File, r.Exists = f, true
	}
	r.Lock = lockfile.Inspect(beside, base+".lock")
}

func (r *Report) lookAtLoose(state *durable.Dir, base string) {
	if state == nil {
		return
	}
	names, _ := state.Names() // what cannot be listed was reported
	for _, name := range names {
		if name == base || strings.HasPrefix(name, base+".lock") {
			continue // looked at by themselves
		}
		if f, err := state.Look(name); err == nil && f.Type == 0 && f.Mode&0o077 != 0 {
			r.Loose = append(r.Loose, state.Join(name))
		}
	}
}

func temps(dir *durable.Dir, whose func(final string) (target string, ok bool)) []Temp {
	if dir == nil {
		return nil
	}
	found, _ := dir.Leftovers() // as above
	var all []Temp
	for _, l := range found {
		if target, ok := whose(l.Final); ok {
			all = append(all, Temp{dir.Join(l.Name), target, l.Mtime})
		}
	}
	return all
}

func look(dir *durable.Dir, name string) (durable.Facts, error) {
	if dir == nil {
		return durable.Facts{}, fs.ErrNotExist
	}
	return dir.Look(name)
}

// allNames are the names of everything that is there, in order.
func (s *Store) allNames(snap *snapshot, sessions, locks *durable.Dir) []string {
	var names []string
	for _, m := range snap.doc.members {
		names = append(names, m.name)
	}
	if s.cfg.OtherNames != nil {
		names = append(names, s.cfg.OtherNames()...)
	}
	for _, in := range []struct {
		dir    *durable.Dir
		suffix string
	}{{sessions, ".json"}, {locks, ".lock"}, {locks, ".lock.guard"}} {
		if in.dir == nil {
			continue
		}
		there, _ := in.dir.Names() // as above
		for _, file := range there {
			if name, ok := strings.CutSuffix(file, in.suffix); ok && ValidName(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *Store) inspectTarget(name string, snap *snapshot, locks *durable.Dir, settings func(string) (Settings, error), keys *peeking, seen *SharedInspection) TargetReport {
	t := TargetReport{Entry: Entry{Target: name}, MaxForced: s.cfg.MaxForced, ForcedWindow: s.cfg.ForcedWindow}
	record, stored := snap.record(name)
	var raw *session
	var sessionErr error
	switch {
	case s.isShared(name):
		t.Leftover = stored
		snap, sessionErr = s.lookShared(&t, seen, keys)
		record, stored = snap.record(name)
		raw, locks = snap.session, nil
	case ValidName(name):
		t.SessionSeal, sessionErr = keys.seal(func() (f *form, err error) {
			raw, f, err = s.readSessionForm(name, true)
			return f, err
		})
	}
	if stored {
		t.Entry, t.Stored = s.entry(name, snap), true
	}
	cfg := SourceConfig{Target: name, Exchange: sendsNothing}
	if settings != nil {
		cfg.Settings = func() (Settings, error) { return settings(name) }
	}
	src, err := s.Source(cfg)
	if err != nil {
		return t // it has no use for such a name
	}
	_, t.Override = lookupOverride(name)
	_, _, t.OverrideErr = src.override(Request{})
	if t.Shared == nil {
		t.SessionPath = s.sessionPath(name)
	}
	if locks != nil {
		t.Lock = lockfile.Inspect(locks, name+".lock")
	}

	t.Err = sessionErr
	if raw != nil {
		t.Pending, t.Moving, t.SessionUnknown = raw.Pending != nil, raw.Moving, raw.unknownMembers()
	}
	v := view{target: name, now: time.Now(), record: record, stored: stored, session: raw.settled(record), mark: t.Lock.Mark, sessionError: sessionErr, form: snap.form}
	if t.Shared != nil {
		v.mark = t.Shared.Mark
	}
	if v.session != nil {
		t.Pinned, t.ObtainedAt = v.session.Pin != nil, v.session.ObtainedAt
	}
	t.Forced = s.forcedIn(v)
	if record.Kind != KindOIDC {
		return t
	}
	t.Live = !record.AccessToken.Empty() && (record.ExpiresAt.IsZero() || record.ExpiresAt.After(v.now))
	t.OutcomeStands = t.LastOutcome != nil && t.LastOutcome.RefreshToken == record.RefreshToken.Fingerprint()
	if v.mark.State != lockfile.MarkNone && v.marked(v.mark.State) {
		t.Mark = v.mark
	}
	needed := v
	needed.record.AccessToken = secret.Secret{}
	if d := s.decide(needed, Request{}); d.action == refuse {
		t.RefreshErr = d.err
	}
	if t.Err == nil && !record.RefreshToken.Empty() {
		_, t.SettingsErr = src.settings(v)
	}
	return t
}

// sendsNothing is the exchange of who only looks.
func sendsNothing(context.Context, Grant) (Tokens, error) {
	return Tokens{}, &Failure{Class: ClassTemporary, Text: "nothing is sent by who only looks", Unprocessed: true}
}

// unknownMembers names the members of the file that this version does not
// know.
func (s *session) unknownMembers() []string {
	var names []string
	add := func(prefix string, b []byte) {
		if len(b) == 0 {
			return
		}
		if doc, err := parseDocument(b); err == nil {
			for _, m := range doc.members {
				names = append(names, prefix+m.name)
			}
		}
	}
	add("", s.Unknown)
	if s.Pin != nil {
		add("pin.", s.Pin.Unknown)
	}
	return names
}
