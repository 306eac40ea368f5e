package lockfile

import (
	"bytes"
	"errors"
	"io/fs"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// Origin says what a lock file tells of its maker.
type Origin string

// The origins of lock files.
const (
	// NoFile: there is none.
	NoFile Origin = ""
	// UnderGuard: its maker had the guard, under this kernel. It is broken at
	// once by whoever has the guard.
	UnderGuard Origin = "guarded"
	// OtherBoot: its maker had the guard under another kernel: before the last
	// boot, or on another machine. It is broken by age, as are the next three.
	OtherBoot Origin = "other-boot"
	// Unmarked: its maker knows only the older rules, or had no kernel locks.
	Unmarked Origin = "unmarked"
	// EmptyFile: its maker died between the making and the writing, or is at
	// it this moment.
	EmptyFile Origin = "empty"
	// Unreadable: too large for a lock file, or without the right to read it.
	Unreadable Origin = "unreadable"
)

// Inspection is what can be told of a lock by looking.
type Inspection struct {
	Path string // of the lock file

	Origin Origin
	Since  time.Time // when the lock file was made, by its time; zero without one
	// FileErr: what stands in the lock file's place is not one, so that the
	// lock cannot be obtained, or it could not be looked at.
	FileErr error

	Guard     bool   // there is one
	GuardMode uint32 // the lower twelve bits
	GuardErr  error  // as FileErr
	Garbled   bool   // the guard's content is not what we write: it counts as an empty record
	Mark      Mark   // of the last holder, or of the one there is

	Held   bool // the kernel says that a living process has the guard
	Holder Process
	// Unsure: Held is false and nothing is proved by it, because this process
	// may not see processes of other pid namespaces, because the system does
	// not tell who holds a lock, or because the lock never stood still.
	Unsure bool
}

// Process is who holds a guard. It serves messages only: by the time they are
// read it may be another one.
type Process = durable.Holder

// Inspect looks at the lock that stands at name in dir. It takes no lock, not
// even for an instant: an attempt could make somebody else's fail. Nothing is
// changed.
func Inspect(dir *durable.Dir, name string) Inspection {
	const tries = 5
	var i Inspection
	for range tries {
		var steady bool
		if i, steady = inspect(dir, name); steady {
			return i
		}
	}
	i.Unsure = true
	return i
}

// inspect is one look. It is steady if the lock file, where there is one that
// nobody holds, was there before and after the kernel was asked: else it may
// be a holder's who came or went meanwhile.
func inspect(dir *durable.Dir, name string) (i Inspection, steady bool) {
	i.Path = dir.Join(name)
	f, err := dir.Read(name, maxLockFile)
	switch {
	case err == nil:
		i.Origin, i.Since = originOf(f.Bytes), time.Unix(0, f.ID.MtimeNsec)
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, durable.ErrTooLarge), errors.Is(err, fs.ErrPermission):
		facts, err := dir.Look(name)
		if err != nil {
			i.FileErr = err
			break
		}
		f.ID, i.Origin, i.Since = facts.ID, Unreadable, facts.Mtime()
	default:
		i.FileErr = err
	}
	i.lookAtGuard(dir, name+".guard")
	if i.Held || i.Origin == NoFile {
		return i, true
	}
	again, err := dir.Look(name)
	return i, err == nil && again.ID == f.ID
}

func (i *Inspection) lookAtGuard(dir *durable.Dir, name string) {
	facts, err := dir.Look(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	i.Guard, i.GuardMode, i.GuardErr = err == nil, facts.Mode, err
	guard, err := dir.OpenKeptReadOnly(name)
	if err != nil {
		i.GuardErr = err
		return
	}
	defer guard.Close()
	b, err := guard.Read(recordLength)
	if err != nil {
		i.GuardErr = err
		return
	}
	r := decodeRecord(b)
	i.Mark = r.mark
	i.Garbled = len(b) > 0 && r == (record{})
	i.Held, i.Holder, i.Unsure = guard.Holder()
}

func originOf(content []byte) Origin {
	_, mark, _ := bytes.Cut(content, []byte("\n"))
	switch {
	case len(content) == 0:
		return EmptyFile
	case isMarked(content):
		return UnderGuard
	case bytes.HasPrefix(mark, []byte("guarded ")):
		return OtherBoot
	default:
		return Unmarked
	}
}
