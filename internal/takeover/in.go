package takeover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/movein"
)

// Prepare makes a login of what a file holds, or says what is missing for one.
// It is asked before anything is moved, and again about what was moved: the
// other program may have refreshed in between.
type Prepare func(movein.Session) (credstore.SignedIn, error)

// In moves the session at p into the store, as the target's. Nothing is sent
// to anybody. If the move of this session into this target was cut short, In
// completes it.
//
// After an error the session is where it was, or the error says where it lies
// and how to go on.
func (m *Mover) In(ctx context.Context, target string, p Place, prepare Prepare) error {
	l, err := m.open(target)
	if err != nil {
		return err
	}
	defer l.close()
	dir, err := m.openPlace(p)
	if err != nil {
		return err
	}
	defer dir.Close()
	unlock, err := interlock(dir, p)
	if err != nil {
		return err
	}
	defer unlock()

	j, err := readJournal(l.dir, target)
	if err != nil {
		return err
	}
	if j == nil || !j.Place().same(p) || !exists(dir, j.Moved) {
		if j, err = m.begin(ctx, l, dir, j, target, p, prepare); err != nil {
			return err
		}
	} else if err := dir.Sync(); err != nil { // what is seen of the file must stay so
		return err
	}
	// From here on the other program does not have it.
	return m.complete(context.WithoutCancel(ctx), l, dir, j, prepare)
}

// begin does the steps up to the renaming.
func (m *Mover) begin(ctx context.Context, l *ledger, dir *durable.Dir, old *Journal, target string, p Place, prepare Prepare) (*Journal, error) {
	if old != nil && !old.Place().same(p) {
		if _, err := durable.LookAt(old.MovedPath()); err == nil {
			return nil, failing(ErrCutShort, nil, "the move of a session of %s into %s was cut short: complete it with the same command as before, or give it back with 'spendonce import --undo %s'", old.Program.Words(), target, target)
		}
	}
	s, err := readIn(dir, p, p.Name)
	if errors.Is(err, ErrNothing) {
		if other, _ := m.waiting(p); other != nil {
			return nil, failing(ErrCutShort, nil, "the move of this session into %s was cut short: complete it by importing it there, or give it back with 'spendonce import --undo %s'", other.Target, other.Target)
		}
	}
	if err != nil {
		return nil, err
	}
	in, err := prepare(s)
	if err != nil {
		return nil, err
	}
	if err := m.Store.Writable(ctx, target); err != nil {
		return nil, err
	}
	id := rand.Text()
	j := &Journal{
		Version: journalVersion, Target: target, Program: p.Program, Dir: p.Dir, Name: p.Name, Client: p.Client, URL: p.URL,
		Moved: p.Name + ".spendonce-" + id[:8], LoginID: id, ClientID: in.Pin.ClientID, Rest: s.Rest,
	}
	// A target that has a session keeps its journal, too.
	entries, err := m.Store.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Target == target {
			return nil, failing(credstore.ErrTaken, nil, "something is stored for %s already, and nothing was moved: 'spendonce logout %s' ends it, or choose another name", target, target)
		}
	}
	if err := l.write(j); err != nil {
		return nil, fmt.Errorf("nothing was moved: %w", err)
	}
	if err := dir.Move(p.Name, j.Moved); err != nil {
		if errors.Is(err, durable.ErrNotSynced) {
			return nil, fmt.Errorf("the session was moved to %s, which may not last: try again: %w", dir.Join(j.Moved), err)
		}
		return nil, fmt.Errorf("the session could not be moved: %w", err)
	}
	return j, nil
}

// complete does the steps behind the renaming.
func (m *Mover) complete(ctx context.Context, l *ledger, dir *durable.Dir, j *Journal, prepare Prepare) error {
	held, err := m.Store.Settled(ctx, j.Target, j.LoginID)
	if err != nil {
		return m.between(j, dir, err)
	}
	if !held {
		s, err := readIn(dir, j.Place(), j.Moved)
		if err != nil {
			return m.putBack(dir, j, err)
		}
		in, err := prepare(s)
		if err != nil {
			return m.putBack(dir, j, err)
		}
		j.Rest, j.ClientID = s.Rest, in.Pin.ClientID
		if err := l.write(j); err != nil {
			return m.between(j, dir, err)
		}
		in.LoginID, in.OnlyNew = j.LoginID, true
		if _, err := m.Store.Login(ctx, j.Target, in); errors.Is(err, credstore.ErrTaken) {
			return m.putBack(dir, j, err)
		} else if err != nil {
			return m.between(j, dir, err)
		}
		// The file goes only when the store is sure to stay as it is.
		if held, err = m.Store.Settled(ctx, j.Target, j.LoginID); err != nil {
			return m.between(j, dir, err)
		}
		if !held {
			return m.between(j, dir, errors.New("the store does not show the login"))
		}
	}
	return removeDurably(dir, j.Moved)
}

func removeDurably(dir *durable.Dir, name string) error {
	err := dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = dir.Sync()
	}
	return err
}

// putBack gives the other program its file again, after something that will
// not go better the next time.
func (m *Mover) putBack(dir *durable.Dir, j *Journal, cause error) error {
	if err := dir.Move(j.Moved, j.Name); err != nil {
		return m.between(j, dir, errors.Join(cause, err))
	}
	return fmt.Errorf("%w; %s has its session again", cause, j.Program.Words())
}

// between words an error that leaves the session in the renamed file.
func (m *Mover) between(j *Journal, dir *durable.Dir, cause error) error {
	return failing(ErrCutShort, cause, "the move into %s was cut short (%v): the session lies in %s; the same command completes the move, 'spendonce import --undo %s' gives it back",
		j.Target, cause, dir.Join(j.Moved), j.Target)
}
