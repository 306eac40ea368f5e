package credstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/lockfile"
)

// remote is the medium of targets that several machines share. A target's
// record and session are one sealed value there, so that a change of both is
// one compare-and-swap, and nobody who cannot open the value can put the pin
// of one beside the token of another.
type remote struct {
	store *Store
	in    Shared
	keys  Keys

	last sync.Map // target -> *kept
}

// kept is one reading of a value.
type kept struct {
	version int64
	snap    *snapshot
}

// readBound is the part of StaleAfter in which one call has to be answered.
func (r *remote) readBound() time.Duration { return r.store.cfg.StaleAfter / 6 }

// sharedVersion is that of what is in a value.
const sharedVersion = "1"

func sharedRole(target string) string { return "shared\x00" + target }

// get reads the value. Opening and parsing are not repeated for a version
// that was read before.
func (r *remote) get(ctx context.Context, target string, bound time.Duration) (*kept, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	v, err := r.in.Get(ctx, target)
	if err != nil {
		return nil, r.failure(err)
	}
	if k := r.lastRead(target); k != nil && k.version == v.Version {
		return k, nil
	}
	k, err := r.decode(target, v)
	if err == nil {
		r.last.Store(target, k)
	}
	return k, err
}

// failure gives an error of the shared store its kind.
func (r *remote) failure(err error) error {
	switch {
	case err == nil, kindOf(err) != nil, errors.Is(err, lockfile.ErrStopped), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, lockfile.ErrLost):
		return failing(ErrLocked, []error{err}, "the lock of the shared store went to another process, for nothing was heard of this one for too long")
	case errors.Is(err, ErrShared):
		return failing(ErrTemporary, []error{err}, "%v", err)
	case errors.Is(err, ErrConfig):
		return failing(ErrConfig, []error{err}, "%v", err)
	case errors.Is(err, ErrDamaged):
		return failing(ErrDamaged, []error{err}, "%v", err)
	case errors.Is(err, lockfile.ErrNotObtained):
		return failing(ErrLocked, []error{err}, "%v", err)
	default:
		return failing(ErrTemporary, []error{ErrShared, err}, "the shared store failed: %v", err)
	}
}

// decode unseals and parses a value. It is an object of version, record and
// session, each of the form that it has in a file.
func (r *remote) decode(target string, v SharedValue) (*kept, error) {
	k := &kept{version: v.Version, snap: &snapshot{doc: &document{}}}
	if v.Version == 0 {
		return k, nil
	}
	where := r.in.Name(target)
	if !sealed.Is(v.Bytes) {
		return nil, failing(ErrDamaged, nil, "%s is not from this program: it was left untouched and nothing was sent; look at it, and remove it or choose another prefix", where)
	}
	broken := func(err error) error {
		return failing(ErrDamaged, []error{err}, "%s cannot be read (%v); it was left untouched and nothing was sent: remove it, and sign in again with 'spendonce login %s'", where, err, target)
	}
	file, err := sealed.Parse(v.Bytes)
	if err != nil {
		return nil, broken(err)
	}
	had, _ := r.store.keys.Load(file.Ref.ID)
	key, ok := had.(sealed.Key)
	if !ok {
		return nil, needing(&keyNeeded{path: where, ref: file.Ref, keys: r.keys})
	}
	plain, err := file.Open(sharedRole(target), key)
	if err != nil {
		return nil, broken(err)
	}
	doc, err := parseDocument(plain)
	if err != nil {
		return nil, broken(err)
	}
	if version, _ := doc.get("version"); string(version) != sharedVersion {
		return nil, failing(ErrDamaged, nil, "%s was written by a version of this program that this one does not know; it was left untouched and nothing was sent: use that version", where)
	}
	k.snap = &snapshot{exists: true, form: &form{file.Ref, key}, doc: &document{}}
	if record, ok := doc.get("record"); ok {
		k.snap.doc.set(target, record)
		k.snap.records = map[string]Record{target: readRecord(record)}
	}
	if session, ok := doc.get("session"); ok {
		if k.snap.session, err = parseSession(session, target); err != nil {
			return nil, broken(err)
		}
	}
	return k, nil
}

// encode is the value in which a record and a session are kept.
func (k *kept) encode(target string) ([]byte, error) {
	doc := &document{}
	doc.set("version", jsontext.Value(sharedVersion))
	if record, ok := k.snap.doc.get(target); ok {
		doc.set("record", record)
	}
	if k.snap.session != nil {
		named := *k.snap.session
		named.Target = target
		b, err := named.encode()
		if err != nil {
			return nil, err
		}
		doc.set("session", b)
	}
	return doc.encode()
}

// lastRead is the last reading of the value, nil if there was none.
func (r *remote) lastRead(target string) *kept {
	had, _ := r.last.Load(target)
	k, _ := had.(*kept)
	return k
}

// read asks the shared store, every time. Where that does not answer, a
// process that has read the value before goes by what it was then: a token
// that is valid is not held back by an outage, and nothing is sent by such a
// reading, for a lock is not to be had either.
func (r *remote) read(target string, bytes bool) (*snapshot, error) {
	bound, last := r.readBound(), r.lastRead(target)
	if last != nil && !bytes {
		bound /= 10
	}
	k, err := r.get(context.Background(), target, bound)
	switch {
	case err == nil:
		return k.snap, nil
	case errors.Is(err, ErrShared) && last != nil && !bytes:
		r.store.warn("%v; what was read of %s before is used meanwhile", err, target)
		return last.snap, nil
	default:
		return nil, err
	}
}

// session is the one that was read with the record: another reading may have
// ended meanwhile, and nobody's token must meet another login's server.
func (*remote) session(_ string, beside *snapshot, _ bool) (*session, error) {
	return beside.session, nil
}

// known: a target is only here if the configuration names it.
func (*remote) known(string) bool { return true }

func (r *remote) scope(target string, set Settings, _ bool) (Scope, error) {
	if set.scope() == ScopeStore {
		return "", failing(ErrConfig, nil, "%s shares its record with a program that reads this machine's file only (%s), so it cannot be kept at %s and nothing was sent", target, set.sharing(), r.in.Name(target))
	}
	return ScopeTarget, nil
}

func (r *remote) open(staleAfter time.Duration) (access, error) {
	return &remoteAccess{remote: r, staleAfter: staleAfter}, nil
}

// entries are what [Store.List] tells of the targets. One that cannot be
// reached is told of with the reason; nobody waits for the next one then.
func (r *remote) entries() []Entry {
	var entries []Entry
	var down error
	for _, name := range r.store.cfg.Shared.Names {
		var snap *snapshot
		err := down
		if err == nil {
			err = r.store.reading(context.Background(), func() (err error) {
				snap, err = r.read(name, true)
				return err
			})
		}
		if errors.Is(err, ErrShared) {
			down = err
		}
		if err != nil {
			entries = append(entries, Entry{Target: name, Usable: true, Err: err})
			continue
		}
		if _, ok := snap.record(name); ok {
			entries = append(entries, r.store.entry(name, snap))
		}
	}
	return entries
}
