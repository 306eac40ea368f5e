package credstore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/lockfile"
)

// Beside a store that is sealed with keys from a keyring stands a file of
// notes, remote-credentials.json.keys, one a line:
//
//	key <id>       this store put a key of that id into the keyring
//	dropped <id>   no file names it any more; it is to be removed
//	shared         a further state directory leads here by a link
//	at "<path>"    the directory in which they were noted
//
// Lines that are none of these are kept. It holds no secret. It is written under the store lock, a key is noted
// before it is put into the keyring, and who seals the first file under a key
// looks under the lock that it is not dropped: so no crash leaves a key that
// nobody knows of, and no key goes that is about to be used. Where the store
// is shared no key is ever dropped: the other directory's files are not seen.
// Nor is one in a copy of the directory, or a restored backup, whose original
// may stand elsewhere and be in use: only keys that are noted are dropped, and
// only where they were.
type keyNotes struct {
	keys, dropped []string
	shared        bool
	at            string // "": not noted
	others        []string
}

const (
	notesSuffix = ".keys"
	maxNotes    = 1 << 20
)

func parseNotes(b []byte) keyNotes {
	var n keyNotes
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		word, id, _ := strings.Cut(line, " ")
		switch {
		case word == "key" && sealed.IsID(id):
			n.keys = append(n.keys, id)
		case word == "dropped" && sealed.IsID(id):
			n.dropped = append(n.dropped, id)
		case line == "shared":
			n.shared = true
		case word == "at" && n.at == "" && unquoted(id) != "":
			n.at = unquoted(id)
		default:
			n.others = append(n.others, line)
		}
	}
	return n
}

func (n keyNotes) encode() []byte {
	var b strings.Builder
	for _, id := range n.keys {
		b.WriteString("key " + id + "\n")
	}
	for _, id := range n.dropped {
		b.WriteString("dropped " + id + "\n")
	}
	if n.shared {
		b.WriteString("shared\n")
	}
	if n.at != "" {
		b.WriteString("at " + strconv.Quote(n.at) + "\n")
	}
	for _, line := range n.others {
		b.WriteString(line + "\n")
	}
	return []byte(b.String())
}

func unquoted(text string) string {
	path, _ := strconv.Unquote(text) // "" if it is no path of ours
	return path
}

// here names the directory of the store, whichever way one got there.
func (f *files) here() string {
	if path, err := filepath.EvalSymlinks(f.at.path); err == nil {
		return path
	}
	return f.at.path
}

func (f *files) readNotes() (keyNotes, error) {
	file, err := f.dir.Read(f.at.base+notesSuffix, maxNotes)
	if errors.Is(err, fs.ErrNotExist) {
		return keyNotes{}, nil
	}
	return parseNotes(file.Bytes), err
}

// changeNotes replaces the notes. The store lock is held.
func (f *files) changeNotes(change func(*keyNotes)) error {
	n, err := f.readNotes()
	if err != nil {
		return err
	}
	before := string(n.encode())
	change(&n)
	if string(n.encode()) == before {
		return nil
	}
	return f.dir.Replace(f.at.base+notesSuffix, n.encode())
}

// note notes a key that is about to be put where it outlives the files. It
// takes the store lock.
func (f *files) note(ctx context.Context, ref sealed.Ref) error {
	if len(ref.Wrapped) > 0 {
		return nil
	}
	lock, err := f.lockStore(ctx, false, lockfile.Request{Brief: true})
	if err != nil {
		return f.store.changeError(err)
	}
	defer release(lock, f.store.warn)
	return f.store.changeError(f.changeNotes(func(n *keyNotes) {
		if n.at == "" {
			n.at = f.here()
		}
		n.keys = append(n.keys, ref.ID)
	}))
}

// noted reports whether nobody has dropped a key since it was made.
func (f *files) noted(by *form) bool {
	if len(by.ref.Wrapped) > 0 {
		return true
	}
	n, err := f.readNotes()
	return err == nil && slices.Contains(n.keys, by.ref.ID)
}

// share notes that the store has another state directory, whose files are
// about to name its key. The store lock is held.
func (f *files) share() error {
	if !f.at.linked || f.form == nil || len(f.form.ref.Wrapped) > 0 {
		return nil
	}
	return f.changeNotes(func(n *keyNotes) { n.shared = true })
}

// dropAllBut notes as dropped what no file names any more, and returns that.
// The store lock is held.
func (f *files) dropAllBut(named []string) (dropped []string, err error) {
	err = f.changeNotes(func(n *keyNotes) {
		if n.shared || f.at.linked {
			return
		}
		if n.at != "" && n.at != f.here() {
			f.store.warn("what keys the store has in the keyring stays there, for it was moved or copied from %s, where they may be needed", n.at)
			return
		}
		for _, id := range n.keys {
			if !slices.Contains(named, id) && !slices.Contains(n.dropped, id) {
				n.dropped = append(n.dropped, id)
			}
		}
		n.keys = slices.DeleteFunc(n.keys, func(id string) bool { return !slices.Contains(named, id) })
		// One that is dropped and named again is no longer to be removed.
		n.dropped = slices.DeleteFunc(n.dropped, func(id string) bool { return slices.Contains(named, id) })
		dropped = slices.Clone(n.dropped)
	})
	return dropped, err
}

// drop removes keys that are noted as dropped from the keyring. What cannot
// be removed stays noted. No lock is held.
func (f *files) drop(ctx context.Context, dropped []string) (gone int, err error) {
	var removed []string
	for _, id := range dropped {
		if err = f.store.cfg.Keys.Drop(ctx, sealed.Ref{Kind: keyringKind, ID: id}); err != nil {
			break
		}
		removed = append(removed, id)
	}
	if len(removed) == 0 {
		return 0, err
	}
	lock, lockErr := f.lockStore(ctx, false, lockfile.Request{Brief: true})
	if lockErr != nil {
		return len(removed), errors.Join(err, lockErr)
	}
	defer release(lock, f.store.warn)
	return len(removed), errors.Join(err, f.changeNotes(func(n *keyNotes) {
		n.dropped = slices.DeleteFunc(n.dropped, func(id string) bool { return slices.Contains(removed, id) })
	}))
}

// keyringKind is the kind of the only keys that outlive the files.
const keyringKind = "keyring"
