package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/movein"
)

// Out gives the session of the target back to the program that it came from,
// with the tokens that are current. If a move in either direction was cut
// short, Out goes on from there. Nothing is sent to anybody.
func (m *Mover) Out(ctx context.Context, target string) (Place, error) {
	l, err := m.open(target)
	if err != nil {
		return Place{}, err
	}
	defer l.close()
	j, err := readJournal(l.dir, target)
	if err != nil {
		return Place{}, err
	}
	if j == nil {
		return Place{}, failing(ErrNothing, nil, "the session of %s was not imported, so there is nobody to give it back to", target)
	}
	p := j.Place()
	dir, err := m.openPlace(p)
	if err != nil {
		return p, err
	}
	defer dir.Close()
	unlock, err := interlock(dir, p)
	if err != nil {
		return p, err
	}
	defer unlock()
	return p, m.giveBack(ctx, l, dir, j)
}

func (m *Mover) giveBack(ctx context.Context, l *ledger, dir *durable.Dir, j *Journal) error {
	held, err := m.Store.Settled(ctx, j.Target, j.LoginID)
	if err != nil {
		return err
	}
	if held {
		if exists(dir, j.Name) {
			return failing(ErrOccupied, nil, "another session stands in its place (%s), so that of %s stays here: move that file aside first, or keep both", dir.Join(j.Name), j.Target)
		}
		if err := checkClient(dir, j); err != nil {
			return err
		}
		err := m.Store.HandOver(ctx, j.Target, j.LoginID, func(h credstore.Handover) error {
			if h.Pin.ClientID != j.ClientID {
				return failing(ErrOccupied, nil, "the session was registered anew here, and %s could not refresh it", j.Program)
			}
			b, err := movein.Write(j.Program, movein.Given{
				AccessToken: h.Tokens.AccessToken, RefreshToken: h.Tokens.RefreshToken, ExpiresAt: h.Tokens.ExpiresAt, Scope: h.Tokens.Scope,
				AccessIsIDToken: h.Pin.TokenUse == credstore.UseIDToken, ClientSecret: h.Pin.ClientSecret, Rest: j.Rest,
			}, time.Now())
			if err != nil {
				return failing(ErrUnusable, err, "the session of %s cannot be given back: %v", j.Target, err)
			}
			return dir.Replace(j.Moved, b)
		})
		if err != nil {
			return err
		}
	} else if !exists(dir, j.Moved) {
		if err := l.remove(j.Target); err != nil {
			return err
		}
		if exists(dir, j.Name) {
			return nil // given back before
		}
		return failing(ErrNothing, nil, "%s does not hold the session that was imported any more: there is nothing to give back", j.Target)
	} else if err := dir.Sync(); err != nil {
		return err
	}
	err = dir.Move(j.Moved, j.Name)
	switch {
	case errors.Is(err, durable.ErrNotSynced):
		return fmt.Errorf("the session was given back, which may not last: try again: %w", err)
	case err != nil && exists(dir, j.Name):
		return failing(ErrOccupied, err, "another session stands in its place (%s), so the one that was moved stays in %s: importing it again completes the move", dir.Join(j.Name), dir.Join(j.Moved))
	case err != nil:
		return fmt.Errorf("the session lies in %s and could not get its name back, try again: %w", dir.Join(j.Moved), err)
	}
	return l.remove(j.Target)
}

// checkClient sees that the other program still is the client whose session
// it is: mcp-remote registers anew when it likes.
func checkClient(dir *durable.Dir, j *Journal) error {
	if j.Client == "" {
		return nil
	}
	f, err := dir.Read(j.Client, movein.Limit)
	if err != nil {
		return failing(ErrOccupied, err, "%s has lost its registration (%s), and could not refresh the session: it stays here, and %s signs in anew by itself", j.Program, dir.Join(j.Client), j.Program)
	}
	if id := movein.ClientID(f.Bytes); id != j.ClientID {
		return failing(ErrOccupied, nil, "%s has registered anew since (%s), and could not refresh the session: it stays here, and %s signs in anew by itself", j.Program, dir.Join(j.Client), j.Program)
	}
	return nil
}

// Forget ends the journal of a target whose session was ended, and removes
// what a move that was cut short may have left of it.
func (m *Mover) Forget(target string) error {
	j, err := m.Journal(target)
	if err != nil || j == nil {
		return err
	}
	l, err := m.open(target)
	if err != nil {
		return err
	}
	defer l.close()
	if dir, err := m.Disk.OpenDir(j.Dir); err == nil {
		defer dir.Close()
		if err := removeDurably(dir, j.Moved); err != nil {
			return err
		}
	}
	return l.remove(target)
}
