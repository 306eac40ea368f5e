package credstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// Turn is a process's turn to ask a person to sign in to a target. It is a
// courtesy and no lock: nothing of the store waits for it, and a login that
// has none is as good.
type Turn struct{ kept *durable.Kept }

// End gives the turn up. It is safe on nil; the end of the process does it too.
func (t *Turn) End() {
	if t != nil {
		t.kept.Close()
	}
}

// Failed notes that the person who was asked has not signed in, for whoever has
// the turn next. Where it cannot be noted, she may be asked sooner.
func (t *Turn) Failed() {
	if t != nil {
		_ = t.kept.Write(strconv.AppendInt(nil, time.Now().UnixMilli(), 10))
	}
}

// LastFailed is when that was noted last, by any process. The zero time is
// never.
func (t *Turn) LastFailed() time.Time {
	if t == nil {
		return time.Time{}
	}
	const digits = 13 // until the year 2286
	b, err := t.kept.Read(digits + 1)
	if err != nil || len(b) != digits {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// turnPause is the time between two looks at the process that has the turn.
const turnPause = 50 * time.Millisecond

// LoginTurn returns a turn as soon as no other process has one. While another
// has it, waiting (which may be nil) is called once, and the wait also ends:
//
//   - with adopted, when the target's login is another one than since, which
//     [Store.Known] told when the caller began: the other process's login is
//     there to be used;
//   - with neither, when enough is readable or closed, or when there can be no
//     turns because the file system has no kernel locks: then this process
//     signs in beside the other one;
//   - with the error of ctx, or one of the disk.
func (s *Store) LoginTurn(ctx context.Context, target, since string, waiting func(), enough <-chan struct{}) (t *Turn, adopted bool, err error) {
	if err := CheckName(target); err != nil {
		return nil, false, err
	}
	files, err := s.openFiles(s.cfg.StaleAfter)
	if err == nil {
		defer files.close()
		err = files.openLocks()
	}
	if err != nil {
		return nil, false, s.changeError(err)
	}
	kept, err := files.locks.OpenKept(target + ".login")
	if err != nil {
		return nil, false, s.changeError(err)
	}
	for {
		got, err := kept.TryLock()
		adopted = s.loginID(ctx, target) != since
		switch {
		case errors.Is(err, durable.ErrNoKernelLocks):
			kept.Close()
			return nil, false, nil
		case err != nil:
			kept.Close()
			return nil, false, s.changeError(err)
		case adopted:
			kept.Close()
			return nil, true, nil
		case got:
			return &Turn{kept}, false, nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-time.After(turnPause):
		case <-enough:
			kept.Close()
			return nil, false, nil
		case <-ctx.Done():
			kept.Close()
			return nil, false, context.Cause(ctx)
		}
	}
}

// loginID names the login that the stored session comes of; "" if there is
// none, or none that can be read.
func (s *Store) loginID(ctx context.Context, target string) string {
	k, _, err := s.known(ctx, target)
	if err != nil {
		return ""
	}
	return k.Login
}
