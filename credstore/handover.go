package credstore

import (
	"context"
	"fmt"

	"github.com/spendonce/spendonce/lockfile"
)

// Handover is a session on its way out of the store.
type Handover struct {
	URL    string
	Pin    Pin
	Tokens Tokens // Lifetime is that of the last access token
}

// HandOver gives the login that loginID names out of the store: keep is called
// with the tokens that are current, and when it has returned nil, nothing is
// stored for the target any more. Meanwhile nobody refreshes the target, so
// what keep gets is not spent; it must make durable what it is given, and must
// not be long. If it fails the session stays.
//
// After any other error the session may be in the store, too: HandOver again,
// or [Store.Settled], tells. A target that holds no such login is
// [ErrNoCredential]; a session whose refresh token is dead, or may be spent
// without our knowing, is [ErrLoginRequired].
func (s *Store) HandOver(ctx context.Context, target, loginID string, keep func(Handover) error) error {
	if err := CheckName(target); err != nil {
		return err
	}
	a, err := s.medium(target).open(s.cfg.StaleAfter)
	if err != nil {
		return err
	}
	defer a.close()
	if err := a.prepare(); err != nil {
		return s.changeError(err)
	}
	return withKeys(a.getKey(ctx), func() error { return s.handOverOnce(ctx, a, target, loginID, keep) })
}

// handOverOnce is one hold of both locks.
func (s *Store) handOverOnce(ctx context.Context, a access, target, loginID string, keep func(Handover) error) error {
	unstage := s.stage("waiting for another process that refreshes %s", target)
	targetLock, err := a.lockTarget(ctx, target, nil)
	unstage()
	if err != nil {
		return s.changeError(err)
	}
	defer release(targetLock, s.warn)
	begin := func() (transaction, error) {
		defer s.stage("waiting for the store lock")()
		return a.begin(ctx, target, targetLock, lockfile.Request{Brief: true}, s.warn)
	}
	return s.changeError(transact(begin, func(tx transaction) error {
		return handOver(ctx, tx, targetLock.Mark(), target, loginID, keep)
	}))
}

func handOver(ctx context.Context, tx transaction, mark lockfile.Mark, target, loginID string, keep func(Handover) error) error {
	v, held, err := login(tx, target, loginID)
	if err != nil {
		return err
	}
	if !held {
		return failing(ErrNoCredential, nil, "%s does not hold that session any more", target)
	}
	v.mark = mark
	loginRequired, _, _ := v.session.about(v.record.RefreshToken)
	switch {
	case v.record.RefreshToken.Empty():
		return failing(ErrLoginRequired, nil, "the session of %s has no refresh token, so there is nothing that another program could go on with", target)
	case v.marked(lockfile.MarkSent):
		return failing(ErrLoginRequired, []error{ErrOutcomeUnknown}, "the last refresh of %s ended without an answer, so its refresh token may be spent: 'spendonce token %s --refresh' tells, then try again", target, target)
	case loginRequired != "", v.marked(lockfile.MarkSpent), v.marked(lockfile.MarkRefused), v.marked(lockfile.MarkUnknown):
		return failing(ErrLoginRequired, nil, "the session of %s has ended, so there is nothing that another program could go on with: sign in there, and end it here with 'spendonce logout %s'", target, target)
	case v.moving():
		return failing(ErrConfig, nil, "the session of %s was on its way to another place: 'spendonce store move %s' takes it to where the configuration keeps it", target, target)
	case v.session.Pin == nil || v.session.UnknownServer:
		return failing(ErrLoginRequired, nil, "it is not known which server the session of %s belongs to: sign in again with 'spendonce login %s'", target, target)
	}
	out := Handover{URL: v.session.URL, Pin: *v.session.Pin, Tokens: Tokens{
		AccessToken: v.record.AccessToken, RefreshToken: v.record.RefreshToken, ExpiresAt: v.record.ExpiresAt,
		Lifetime: v.session.lifetime(), Scope: v.session.Pin.Scope, Org: v.record.Org,
	}}
	if err := keep(out); err != nil {
		return &fault{fmt.Sprintf("the session of %s was not given away and stays: %v", target, err), []error{err}}
	}
	// Nothing was refreshed by us; a source program may have.
	if now, held, err := login(tx, target, loginID); err != nil || !held || !now.record.RefreshToken.Equal(v.record.RefreshToken) {
		return failing(ErrTemporary, []error{err}, "the session of %s changed while it was given away, so it was kept: try again", target)
	}
	_, _, err = remove(ctx, tx, target)
	return err
}

// Settled reports whether the target holds the login that loginID names, so
// that what it says survives a loss of power.
func (s *Store) Settled(ctx context.Context, target, loginID string) (held bool, err error) {
	err = s.change(ctx, target, false, func(tx transaction) error {
		if err := tx.sync(); err != nil {
			return err
		}
		_, held, err = login(tx, target, loginID)
		return err
	})
	return held, err
}

// login reads the target, and whether it holds the login. A session file that
// is missing beside a record makes no login of ours.
func login(tx transaction, target, loginID string) (v view, held bool, err error) {
	v, err = stored(tx, target)
	return v, err == nil && v.record.Kind == KindOIDC && v.session != nil && v.login() == loginID, err
}
