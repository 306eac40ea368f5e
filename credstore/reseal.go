package credstore

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// Sealing is a change of the form that all files of a store have.
type Sealing string

// The changes. Encrypt makes a key for a store in plain, and for one that is
// sealed finishes what was begun; Decrypt leaves no file sealed; Rekey gives
// a sealed store a new key.
const (
	Encrypt Sealing = "encrypt"
	Decrypt Sealing = "decrypt"
	Rekey   Sealing = "rekey"
)

// Reseal says how the form is to change.
type Reseal struct {
	Do Sealing
	// DryRun only tells what would be done.
	DryRun bool
	// Settings, which may be nil, is what [SourceConfig] would be given for
	// the target: a store that is shared with a program that cannot open it is
	// not sealed.
	Settings func(target string) (Settings, error)
}

// Resealed is what [Store.Reseal] did.
type Resealed struct {
	From, To string   // kinds of keys; "": in plain
	Files    []string // that have, or would get, another form
	Beside   []string // further files in the store's directories, which are not the store's and stay as they are
	Dropped  int      // keys that were removed from the keyring
	DropErr  error    // the store is as it was asked for, and a key that nothing needs stays in the keyring
}

// Reseal gives every file of the store another form. It may end anywhere, by
// a signal, a kill or the power: each file says itself how it is to be read,
// so that a store half of whose files were changed is as good as any, and the
// next call finishes it. Session files come before the store, whose form is
// that of whatever is written next. No exchange is under way meanwhile: the
// locks of all targets are held.
func (s *Store) Reseal(ctx context.Context, how Reseal) (r Resealed, err error) {
	files, err := s.openFiles(s.cfg.StaleAfter)
	if err != nil {
		return Resealed{}, err
	}
	defer files.close()
	if how.DryRun {
		err := s.reading(ctx, func() error {
			all, err := files.survey(s.openToRead)
			if err == nil {
				r, _, err = files.plan(all, how)
			}
			return err
		})
		return r, err
	}
	if err := files.openAll(); err != nil {
		return Resealed{}, s.changeError(err)
	}
	var to *form
	var dropped []string
	get := func(need *keyNeeded) (err error) {
		if !need.make {
			return s.fetch(ctx, need)
		}
		to, err = files.makeKey(ctx)
		return err
	}
	for range keyRounds {
		err = withKeys(get, func() (err error) {
			r, dropped, err = files.reseal(ctx, how, to)
			return s.changeError(err)
		})
		if !errors.Is(err, errMoved) {
			break
		}
	}
	if err == nil && len(dropped) > 0 && s.cfg.Keys != nil {
		r.Dropped, r.DropErr = files.drop(ctx, dropped)
	}
	return r, err
}

// errMoved: the store was changed while its locks were taken.
var errMoved = failing(ErrTemporary, nil, "the store changes faster than all of it can be locked: try again")

// storeFile is one file that may be sealed.
type storeFile struct {
	dir        *durable.Dir
	name, role string
	target     string // "": the store itself
	plain      []byte
	form       *form
}

func (f storeFile) path() string { return f.dir.Join(f.name) }

// survey is everything that a change of form is about.
type survey struct {
	sessions []storeFile // in the order of their names
	store    *storeFile  // nil if it is missing
	snap     *snapshot
	beside   []string
}

func (v *survey) files() []storeFile {
	all := slices.Clone(v.sessions)
	if v.store != nil {
		all = append(all, *v.store)
	}
	return all
}

// targets are the names whose locks have to be held.
func (v *survey) targets() []string {
	var names []string
	for _, m := range v.snap.doc.members {
		if ValidName(m.name) {
			names = append(names, m.name)
		}
	}
	for _, f := range v.sessions {
		names = append(names, f.target)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// openToRead opens what is there and makes nothing.
func (s *Store) openToRead(f *files) (err error) {
	open := func(to **durable.Dir, path string) {
		if err == nil && *to == nil {
			if *to, err = s.cfg.Disk.OpenDir(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	open(&f.dir, f.at.path)
	open(&f.sessions, s.sessionsPath())
	return err
}

// survey reads all files. Each must be whole: what cannot be read is not
// changed, and no other file is either.
func (f *files) survey(open func(*files) error) (*survey, error) {
	s := f.store
	v := &survey{snap: &snapshot{doc: &document{}}}
	if open != nil {
		if err := open(f); err != nil {
			return nil, s.fileError(err)
		}
	}
	if f.sessions != nil {
		names, err := f.sessions.Names()
		if err != nil {
			return nil, s.fileError(err)
		}
		for _, name := range names {
			target, ok := strings.CutSuffix(name, ".json")
			if !ok || !ValidName(target) {
				if !strings.HasSuffix(name, ".tmp") {
					v.beside = append(v.beside, f.sessions.Join(name))
				}
				continue
			}
			file, err := f.readFile(f.sessions, name, sessionRole(target), maxSession)
			if err != nil {
				return nil, err
			}
			file.target = target
			if _, err := parseSession(file.plain, target); err != nil {
				return nil, damagedFile(file.path(), err)
			}
			v.sessions = append(v.sessions, *file)
		}
	}
	if f.dir == nil {
		return v, nil
	}
	var err error
	if v.snap, err = s.readIn(f.dir, f.at.base); err != nil {
		return nil, err
	}
	if v.snap.exists {
		v.store, err = f.readFile(f.dir, f.at.base, storeRole, maxStore)
	}
	v.beside = append(v.beside, f.besideStore()...)
	return v, err
}

func (f *files) readFile(dir *durable.Dir, name, role string, limit int64) (*storeFile, error) {
	got, err := dir.Read(name, limit)
	if err != nil {
		return nil, f.store.fileError(err)
	}
	plain, form, err := f.store.unseal(dir.Join(name), role, got.Bytes)
	return &storeFile{dir: dir, name: name, role: role, plain: plain, form: form}, err
}

// besideStore lists the files beside the store that are neither ours nor
// known to hold no secret: copies that somebody made are not sealed by us.
func (f *files) besideStore() []string {
	names, _ := f.dir.Names()
	var found []string
	for _, name := range names {
		known := name == f.at.base || strings.HasPrefix(name, f.at.base+".lock") || name == f.at.base+notesSuffix ||
			name == auditName || name == auditName+".1" || strings.HasPrefix(name, "broker-") || strings.HasPrefix(name, "setup.") ||
			strings.HasSuffix(name, ".tmp")
		if !known && (strings.HasPrefix(name, f.at.base) || !f.at.linked) {
			if st, err := f.dir.Look(name); err == nil && st.Type == 0 {
				found = append(found, f.dir.Join(name))
			}
		}
	}
	return found
}

// plan says what is to be done: the form that all files get, or an error if
// that must not be.
func (f *files) plan(v *survey, how Reseal) (r Resealed, makes bool, err error) {
	r.From, r.Beside = v.snap.form.kind(), v.beside
	kind, err := f.store.newKind()
	if err != nil {
		return r, false, err
	}
	sealedNow := v.snap.form != nil
	switch {
	case how.Do == Decrypt:
	case kind == "":
		return r, false, failing(ErrConfig, nil, "it is not known what key to seal the store with: set key = \"keyring\" or key = \"age:FILE\" under [store] in the configuration")
	case how.Do == Rekey && !sealedNow:
		return r, false, failing(ErrConfig, nil, "%s is not sealed, so there is no key to be changed: use 'spendonce store encrypt'", f.store.path)
	case how.Do == Encrypt && sealedNow && r.From != kind:
		return r, false, failing(ErrConfig, nil, "%s is sealed with a key of the kind %q and not %q: use 'spendonce store rekey' to change that", f.store.path, r.From, kind)
	default:
		r.To = kind
		if err := f.notShared(v, how); err != nil {
			return r, false, err
		}
	}
	makes = how.Do == Rekey || how.Do == Encrypt && !sealedNow
	for _, file := range v.files() {
		if makes || file.form.id() != v.wanted(how, nil).id() {
			r.Files = append(r.Files, file.path())
		}
	}
	return r, makes && len(r.Files) > 0, nil
}

// wanted is the form that all files get; made is a new key's.
func (v *survey) wanted(how Reseal, made *form) *form {
	switch {
	case how.Do == Decrypt:
		return nil
	case how.Do == Encrypt && v.snap.form != nil:
		return v.snap.form
	default:
		return made
	}
}

// notShared refuses to seal what another program has to read.
func (f *files) notShared(v *survey, how Reseal) error {
	names := v.targets()
	if f.store.cfg.OtherNames != nil {
		names = append(names, f.store.cfg.OtherNames()...)
	}
	pins := map[string]*Pin{}
	for _, file := range v.sessions {
		if session, err := parseSession(file.plain, file.target); err == nil {
			r, _ := v.snap.record(file.target)
			pins[file.target] = session.settled(r).Pin
		}
	}
	for _, name := range names {
		var set Settings
		if how.Settings != nil {
			var err error
			if set, err = how.Settings(name); err != nil {
				return failing(ErrConfig, []error{err}, "the settings of %s cannot be read, so nothing was changed: %v", name, err)
			}
		}
		if pin := pins[name]; pin != nil && pin.Dialect != "" {
			set.Pin.Dialect = pin.Dialect
		}
		if set.scope() == ScopeStore {
			return failing(ErrConfig, nil, "%s shares the store with a program that could not open it (%s), so nothing was changed: "+
				"sign it out first, or set lock_scope = \"target\" if no other program reads the file", name, set.sharing())
		}
	}
	return nil
}

// reseal is one attempt, with all locks. It returns what is to be removed
// from the keyring when they are released.
func (f *files) reseal(ctx context.Context, how Reseal, made *form) (r Resealed, dropped []string, err error) {
	before, err := f.survey(nil)
	if err != nil {
		return r, nil, err
	}
	held, err := f.lockAll(ctx, before.targets())
	defer func() {
		for _, lock := range slices.Backward(held) {
			release(lock, f.store.warn)
		}
	}()
	if err != nil {
		return r, nil, err
	}
	v, err := f.survey(nil)
	if err != nil {
		return r, nil, err
	}
	if !slices.Equal(v.targets(), before.targets()) {
		return r, nil, errMoved
	}
	r, makes, err := f.plan(v, how)
	if err != nil {
		return r, nil, err
	}
	if makes && (made == nil || made.kind() != r.To || !f.noted(made)) {
		return r, nil, needing(&keyNeeded{path: f.dir.Join(f.at.base), make: true})
	}
	to := v.wanted(how, made)
	// Whoever could be writing waits for a lock that we hold: what is there
	// was left by the dead, and may hold a token in plain.
	err = errors.Join(
		f.dir.RemoveOldTemps(f.at.base, time.Now(), -time.Hour),
		f.dir.RemoveOldTemps(f.at.base+notesSuffix, time.Now(), -time.Hour),
		f.sessions.RemoveOldTemps("", time.Now(), -time.Hour))
	if err != nil {
		return r, nil, err
	}
	f.form = to
	for _, file := range v.files() {
		if file.form.id() == to.id() {
			continue
		}
		if ctx.Err() != nil {
			return r, nil, context.Cause(ctx)
		}
		if err := f.rewrite(held, file, to, v.snap); err != nil {
			return r, nil, err
		}
	}
	dropped, err = f.dropAllBut(namedAfter(v, to))
	return r, dropped, err
}

// namedAfter are the keys that files name once all have that form.
func namedAfter(v *survey, to *form) []string {
	if to == nil || len(v.files()) == 0 {
		return nil
	}
	return []string{to.id()}
}

// lockAll takes the locks of the targets, in the order of their names, and
// then that of the store. What it returns has to be released even after an
// error.
func (f *files) lockAll(ctx context.Context, targets []string) (held []*lockfile.Lock, err error) {
	shown := time.Now()
	alive := func() bool { // other locks are waited for longer than who waits for these would bear
		if now := time.Now(); now.Sub(shown) > f.staleAfter/30 {
			shown = now
			for _, lock := range held {
				_ = lock.Step() // only waiters look at it
			}
		}
		return false
	}
	for _, target := range targets {
		unstage := f.store.stage("waiting for another process that refreshes %s", target)
		cfg := f.lockConfig()
		if len(held) > 0 {
			cfg.Hold = nil
		}
		lock, err := lockfile.Acquire(ctx, cfg, lockfile.Request{Dir: f.locks, Name: target + ".lock", Until: alive})
		unstage()
		if err != nil {
			return held, err
		}
		held = append(held, lock)
	}
	defer f.store.stage("waiting for the store lock")()
	lock, err := f.lockStore(ctx, len(held) > 0, lockfile.Request{Until: alive})
	if err != nil {
		return held, err
	}
	return append(held, lock), nil
}

// rewrite gives one file another form. Its content stays, byte for byte.
func (f *files) rewrite(held []*lockfile.Lock, file storeFile, to *form, snap *snapshot) error {
	limit := maxStore
	if file.target != "" {
		limit = maxSession
		if err := f.share(); err != nil {
			return err
		}
	}
	b, err := to.seal(file.role, file.plain, limit)
	if err != nil {
		return err
	}
	temp, err := file.dir.Prepare(file.name, 0)
	if err != nil {
		return err
	}
	defer temp.Discard()
	if err := temp.Fill(b); err != nil {
		return err
	}
	for _, lock := range held {
		_ = lock.Step() // only waiters look at it
		if err := lock.Check(); errors.Is(err, lockfile.ErrLost) {
			return errMoved
		} else if err != nil {
			return err
		}
	}
	if file.target == "" {
		if id, err := file.dir.Stat(file.name); err != nil || id != snap.id {
			return errMoved
		}
		f.store.cache.Store(nil)
	} else {
		f.store.sessions.Delete(file.target)
	}
	return temp.Publish()
}
