//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// serve is the committer: what came since the last commit becomes one batch.
func (l *Ledger) serve() {
	defer close(l.ended)
	for range l.wake {
		for {
			batch, open := l.admit(time.Now())
			if len(batch) > 0 {
				l.settle(batch)
				continue
			}
			if !open {
				return
			}
			break
		}
	}
}

// admit begins all requests that wait and are not late.
func (l *Ledger) admit(now time.Time) (batch []*request, open bool) {
	l.mu.Lock()
	batch, open = l.queue, !l.closing
	l.queue = nil
	l.mu.Unlock()
	return slices.DeleteFunc(batch, func(r *request) bool {
		late := r.late(now)
		if late {
			r.answer(result{err: ErrDeadline})
		}
		return late
	}), open
}

// settle answers a batch, after one commit of all that it changes.
func (l *Ledger) settle(batch []*request) {
	prior := l.committed.Load()
	next, results := l.apply(prior, batch)
	err := error(nil)
	if l.writer.doubt && slices.ContainsFunc(results, func(x result) bool { return x.err == nil }) {
		// Whether the file is that of the prior state is not known: nothing is
		// granted on it before it is.
		err = l.commit(prior)
	}
	if err == nil && next != prior {
		if err = l.commit(next); err == nil {
			l.committed.Store(next)
		}
	}
	if err != nil {
		if l.writer.doubt {
			_ = l.writer.replace(prior) // best effort: the next one makes sure
			l.writer.doubt = true
		}
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		for i, r := range batch {
			results[i] = l.afterFailure(prior, r.op, results[i], err)
		}
	}
	l.count(batch, results)
	for i, r := range batch {
		r.answer(results[i])
	}
}

// afterFailure is the answer to a request of a batch whose commit failed. One
// that would have been the same without all others in the batch stands.
func (l *Ledger) afterFailure(prior *state, o op, x result, failed error) result {
	next, alone := applyWithin(prior, o, l.cfg.limits())
	same := errors.Is(x.err, alone.err)
	if x.err == nil {
		// Granted without a change, on a prior state that stands in the file.
		same = alone.err == nil && next == prior && !l.writer.doubt
	}
	if same {
		return alone
	}
	return result{err: failed}
}

// apply puts a batch through the pure core, one request after the other.
func (l *Ledger) apply(prior *state, batch []*request) (*state, []result) {
	results := make([]result, len(batch))
	next := prior
	for i, r := range batch {
		next, results[i] = l.applyOne(next, &r.op, apply)
	}
	if next == prior || next.size() <= l.cfg.MaxBytes {
		return next, results
	}
	next = prior
	for i, r := range batch {
		next, results[i] = l.applyOne(next, &r.op, applyWithin)
	}
	return next, results
}

// applyWithin is apply with the bound on the file for each request.
func applyWithin(s *state, o op, lim limits) (*state, result) {
	next, x := apply(s, o, lim)
	if next != s && next.size() > lim.bytes {
		return s, result{err: ErrTooLarge}
	}
	return next, x
}

// applyOne applies a request, and again with what it takes to know of anchors:
// only those that stand in its way are looked at.
func (l *Ledger) applyOne(s *state, o *op, apply func(*state, op, limits) (*state, result)) (*state, result) {
	if o.action == register {
		if i := s.anchored(o.anchor); i >= 0 {
			o.gone = l.gone(s.sessions[i : i+1])
		}
	}
	next, x := apply(s, *o, l.cfg.limits())
	var inTheWay []*session
	switch {
	case errors.Is(x.err, ErrSessionCapacity):
		inTheWay = s.sessions
	case errors.Is(x.err, ErrTokenCapacity):
		for _, p := range s.tokens {
			if !slices.Contains(inTheWay, p.owner) {
				inTheWay = append(inTheWay, p.owner)
			}
		}
	}
	if gone := l.gone(inTheWay); len(gone) > 0 {
		o.gone = gone
		return apply(s, *o, l.cfg.limits())
	}
	return next, x
}

// commit writes a state and counts the attempt.
func (l *Ledger) commit(s *state) error {
	err := l.writer.replace(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.InDoubt = l.writer.doubt
	if err != nil {
		l.stats.Failed++
		l.stats.LastError = err
		return err
	}
	l.stats.Commits++
	return nil
}

// writer puts states into the file.
type writer struct {
	dir   *durable.Dir
	doubt bool // the file may hold another state than the one committed last
	buf   []byte
}

// replace makes s the content of the file, durably. After an error the file
// holds what it held, unless doubt is set.
func (w *writer) replace(s *state) error {
	w.buf = appendState(w.buf[:0], s)
	t, err := w.dir.Prepare(StateFile, 0)
	if err != nil {
		return err
	}
	if err := t.Fill(w.buf); err != nil {
		return err
	}
	// From here on the rename may have been done, whatever is said of it.
	w.doubt = true
	if err := t.Publish(); err != nil {
		return err
	}
	w.doubt = false
	return nil
}
