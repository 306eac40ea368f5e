//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

var (
	// ErrUnavailable says that the request, or one that its answer depends
	// on, could not be made durable. It may take effect all the same if the
	// broker is started again, but never twice.
	ErrUnavailable = errors.New("state unavailable")
	// ErrDeadline says that the request was not begun by its deadline and has
	// no effect.
	ErrDeadline = errors.New("deadline exceeded")
	// ErrClosed says that the ledger was closed before the request was begun;
	// it has no effect.
	ErrClosed = errors.New("ledger closed")
)

// errInvalid says that a request holds what the file has no room for, which is
// its caller's fault. It had no effect.
var errInvalid = errors.New("not a value of the state file")

// request is an op on its way to the committer and back.
type request struct {
	op       op
	deadline time.Time // none if zero

	result result
	done   chan struct{}
}

func (r *request) answer(x result) {
	r.result = x
	close(r.done)
}

// Register makes the caller's process an anchor and returns its session: a new
// one, or the one that stands for this process, moved to a higher generation
// if that is asked for, which ends its tokens. [ErrGenerationStale],
// [ErrSessionCapacity] and [ErrTooLarge] refuse and change nothing.
//
// For this and the other requests: what is not begun by its deadline gets
// [ErrDeadline]; what is begun runs to its end. A zero deadline is none. Every
// success is durable. See [ErrUnavailable] and [ErrClosed].
func (l *Ledger) Register(deadline time.Time, a Anchor, uid, gid uint32, generation uint64) (Session, error) {
	as := Session{ID: l.cfg.NewID(), Anchor: a, UID: uid, GID: gid, Generation: generation}
	if !as.valid() {
		return Session{}, fmt.Errorf("registering an anchor: %w", errInvalid)
	}
	x := l.do(deadline, op{
		action: register, generation: generation, anchor: a, uid: uid, gid: gid, fresh: newSession(as),
	})
	return x.session, x.err
}

// Authenticate holds a session id and a generation against the committed
// state. It waits for nothing and changes nothing. It fails with
// [ErrSessionUnknown], [ErrGenerationStale] or [ErrGenerationUnknown].
func (l *Ledger) Authenticate(id secret.Secret, generation uint64) error {
	_, err := l.committed.Load().admit(digestOf(id), generation)
	return err
}

// Mint makes a token that the session can spend once, while it is of this
// generation. It fails as [Ledger.Authenticate] does, and with
// [ErrTokenCapacity] and [ErrTooLarge].
func (l *Ledger) Mint(deadline time.Time, id secret.Secret, generation uint64, b Binding) (secret.Secret, error) {
	token := l.cfg.NewID()
	if !b.valid() || !wellFormed(token) {
		return secret.Secret{}, fmt.Errorf("minting a token: %w", errInvalid)
	}
	x := l.do(deadline, op{action: mint, session: digestOf(id), generation: generation, token: digestOf(token), binding: b})
	if x.err != nil {
		return secret.Secret{}, x.err
	}
	return token, nil
}

// Consume spends a token and returns what it was minted for. It fails as
// [Ledger.Authenticate] does, and with [ErrTokenMalformed] and
// [ErrTokenReplay].
func (l *Ledger) Consume(deadline time.Time, id secret.Secret, generation uint64, token secret.Secret) (Binding, error) {
	if !wellFormed(token) {
		if err := l.Authenticate(id, generation); err != nil { // is judged first
			return Binding{}, err
		}
		return Binding{}, ErrTokenMalformed
	}
	x := l.do(deadline, op{action: consume, session: digestOf(id), generation: generation, token: digestOf(token)})
	return x.binding, x.err
}

// Prune drops sessions whose anchors have exited, with their tokens. Ids that
// stand for no session are passed over.
func (l *Ledger) Prune(ids ...secret.Secret) error {
	gone := make([]digest, 0, len(ids))
	for _, id := range ids {
		gone = append(gone, digestOf(id))
	}
	return l.do(time.Time{}, op{action: prune, gone: gone}).err
}

// do hands a request to the committer and waits for its answer.
func (l *Ledger) do(deadline time.Time, o op) result {
	r := &request{op: o, deadline: deadline, done: make(chan struct{})}
	if err := l.enqueue(r); err != nil {
		return result{err: err}
	}
	l.rouse()
	if deadline.IsZero() {
		<-r.done
		return r.result
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-r.done:
	case <-t.C:
		if l.withdraw(r) {
			return result{err: ErrDeadline}
		}
		<-r.done
	}
	return r.result
}

func (l *Ledger) enqueue(r *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return ErrClosed
	}
	l.queue = append(l.queue, r)
	return nil
}

// rouse tells the committer to look.
func (l *Ledger) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// withdraw takes a request back that has not been begun.
func (l *Ledger) withdraw(r *request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, r)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

func (r *request) late(now time.Time) bool { return !r.deadline.IsZero() && !now.Before(r.deadline) }
