//go:build linux

package socketplace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/peercred"
)

var (
	// ErrUnsafe: the directory, the lock or what stands in the socket's place
	// is not ours, or others can change it. It was left as it is.
	ErrUnsafe = errors.New("unsafe place")
	// ErrTaken: another server has the lock.
	ErrTaken = errors.New("place taken")
)

// refusal is an error whose text is for who knows its kind already.
type refusal struct{ kind, err error }

func (r *refusal) Error() string   { return r.err.Error() }
func (r *refusal) Unwrap() []error { return []error{r.kind, r.err} }

func unsafePlace(err error) error { return &refusal{ErrUnsafe, err} }

// Config says where a socket is to be.
type Config struct {
	Socket    string // absolute
	Forbidden uint32 // mode bits that its directory must not have
	Option    string // of the command that chose the path, for messages
}

// Place is the directory of sockets and the lock of one of them.
type Place struct {
	dir   *durable.Dir
	other string
	lock  *durable.Kept
	bound map[string]durable.ID // sockets we made
}

// OpenDir opens a directory that only we can change and nobody can replace,
// making its missing last components, 0700. The error is [ErrUnsafe] if it has
// a bit of forbidden in its mode, among other reasons.
func OpenDir(path string, forbidden uint32) (*durable.Dir, error) {
	if !filepath.IsAbs(path) {
		return nil, unsafePlace(fmt.Errorf("the directory %q is not absolute", path))
	}
	dir, err := durable.Disk{}.MakeDir(path)
	if err != nil {
		return nil, unsafePlace(err)
	}
	if err := durable.CheckPlace(path, forbidden); err != nil {
		dir.Close()
		return nil, unsafePlace(err)
	}
	return dir, nil
}

// Take takes the lock of a socket's path, before the socket is touched, in a
// directory as of [OpenDir]. The lock is a file beside it, named as it with
// ".lock" behind, which stays. The error is [ErrUnsafe] or [ErrTaken], and the
// latter says by whom, as far as that can be found.
func Take(cfg Config) (_ *Place, err error) {
	dir, err := OpenDir(filepath.Dir(cfg.Socket), cfg.Forbidden)
	if err != nil {
		return nil, err
	}
	p := &Place{dir: dir, other: cfg.Option, bound: map[string]durable.ID{}}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	name := filepath.Base(cfg.Socket) + ".lock"
	if p.lock, err = dir.OpenKept(name); err != nil {
		return nil, unsafePlace(err)
	}
	got, err := p.lock.TryLock()
	switch {
	case err != nil:
		return nil, unsafePlace(err)
	case !got:
		return nil, &refusal{ErrTaken, fmt.Errorf("it has %s%s; stop it, or use another %s", cfg.Socket, Holder(dir.Path(), name), cfg.Option)}
	case !p.lock.Current(): // another one may have locked the next file of that name
		return nil, unsafePlace(fmt.Errorf("%s was deleted or replaced just now", dir.Join(name)))
	}
	return p, nil
}

// Listen binds a socket of that name, 0600 from its first moment, in the place
// of one that a dead server left: who has the lock knows that nobody serves
// it. The error is [ErrUnsafe] if something else stands there, or one of
// [peercred.Listen].
func (p *Place) Listen(name string) (*peercred.Listener, error) {
	path := p.dir.Join(name)
	f, err := p.dir.Look(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, unsafePlace(err)
	case f.Type.Type() != fs.ModeSocket || int(f.UID) != os.Geteuid():
		return nil, unsafePlace(fmt.Errorf("%s is no socket of ours; move it away, or use another %s", path, p.other))
	default:
		if err := p.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, unsafePlace(err)
		}
	}
	l, err := peercred.Listen(path)
	if err != nil {
		return nil, err
	}
	if id, err := p.dir.Stat(name); err == nil {
		p.bound[name] = id
	}
	return l, nil
}

// Close unlinks the sockets that are still ours, then lets the lock go.
func (p *Place) Close() {
	for name, ours := range p.bound {
		if now, err := p.dir.Stat(name); err == nil && now.Dev == ours.Dev && now.Ino == ours.Ino && now.CtimeNsec == ours.CtimeNsec {
			_ = p.dir.Remove(name)
		}
	}
	if p.lock != nil {
		p.lock.Close()
	}
	p.dir.Close()
}

// Holder says who has a lock, as far as /proc/locks tells: for a message
// only.
func Holder(dir, lock string) string {
	d, err := durable.Disk{}.OpenDir(dir)
	if err != nil {
		return ""
	}
	defer d.Close()
	k, err := d.OpenKeptReadOnly(lock)
	if err != nil {
		return ""
	}
	defer k.Close()
	held, by, _ := k.Holder()
	switch {
	case !held || by.PID == 0:
		return ""
	case by.Stopped:
		return fmt.Sprintf(" (process %d, which is stopped: 'kill -CONT %d' lets it go on)", by.PID, by.PID)
	default:
		return fmt.Sprintf(" (process %d)", by.PID)
	}
}
