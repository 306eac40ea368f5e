//go:build linux

package ledger

import "github.com/spendonce/spendonce/internal/secret"

// SessionOf returns the committed session of an anchor.
func (l *Ledger) SessionOf(a Anchor) (Session, bool) {
	s := l.committed.Load()
	if i := s.anchored(a); i >= 0 {
		return s.sessions[i].Session, true
	}
	return Session{}, false
}

// PendingOf counts the committed tokens of a session that wait to be spent.
func (l *Ledger) PendingOf(id secret.Secret) int {
	key, n := digestOf(id), 0
	for _, t := range l.committed.Load().tokens {
		if t.owner.key == key {
			n++
		}
	}
	return n
}
