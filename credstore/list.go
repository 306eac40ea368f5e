package credstore

import (
	"context"
	"slices"
	"time"
)

// Entry is what [Store.List] tells of a target, without any secret.
type Entry struct {
	Target        string
	Usable        bool // the name is one of ours and the record is understood
	Kind          Kind
	URL           string
	Hosts         []string // further origins that may get the token
	Issuer        string
	LoginID       string // random, new at each login
	Subject       string
	Email         string
	Scope         []string
	HasToken      bool      // there is an access token
	ExpiresAt     time.Time // of the access token; zero if unknown
	Refreshable   bool
	LoginRequired bool
	NotBefore     time.Time // nobody refreshes before; zero if that is past
	LastOutcome   *Outcome
	Override      bool  // the environment sets this target's token
	Err           error // the session file cannot be read
}

// List tells what is stored, sorted by name. It takes no lock and asks no
// server.
func (s *Store) List() ([]Entry, error) {
	var v *snapshot
	err := s.reading(context.Background(), func() (err error) {
		v, err = s.readNow()
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(v.doc.members))
	for _, m := range v.doc.members {
		if s.isShared(m.name) {
			continue // nobody uses what the file still holds of it
		}
		var e Entry
		err := s.reading(context.Background(), func() error {
			e = s.entry(m.name, v)
			return e.Err
		})
		e.Err = err
		entries = append(entries, e)
	}
	if s.shared != nil {
		entries = append(entries, s.shared.entries()...)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		if a.Target < b.Target {
			return -1
		}
		return 1
	})
	return entries, nil
}

// Known is what a target's session was made with. It holds the client's
// secret.
type Known struct {
	URL   string
	Hosts []string
	Pin   Pin
	// Login names the login; it is another one after each.
	Login string
}

// Known returns what is known of a target's session, and false if there is
// none, or one of another program that was never used by this one. It takes
// no lock.
func (s *Store) Known(target string) (Known, bool, error) {
	return s.known(context.Background(), target)
}

func (s *Store) known(ctx context.Context, target string) (Known, bool, error) {
	var v *snapshot
	var session *session
	m := s.medium(target)
	err := s.reading(ctx, func() (err error) {
		if v, err = m.read(target, true); err == nil {
			session, err = m.session(target, v, true)
		}
		return err
	})
	if err != nil {
		return Known{}, false, err
	}
	r, stored := v.record(target)
	session = session.settled(r)
	if !stored || session == nil || session.Pin == nil {
		return Known{}, false, nil
	}
	return Known{URL: session.URL, Hosts: session.Hosts, Pin: *session.Pin, Login: session.LoginID}, true, nil
}

// entry tells of a target that stands in v.
func (s *Store) entry(name string, v *snapshot) Entry {
	r, _ := v.record(name)
	e := Entry{Target: name, Kind: r.Kind, HasToken: !r.AccessToken.Empty() || !r.Token.Empty(), ExpiresAt: r.ExpiresAt, Refreshable: !r.RefreshToken.Empty()}
	if !ValidName(name) {
		return e
	}
	e.Usable = r.Kind != KindUnknown
	if _, set := lookupOverride(name); set {
		e.Override = true
	}
	session, err := s.medium(name).session(name, v, false)
	if err != nil {
		e.Err = err
		return e
	}
	if session = session.settled(r); session == nil {
		return e
	}
	e.URL, e.Hosts, e.LoginID = session.URL, session.Hosts, session.LoginID
	if session.LastOutcome != nil {
		o := *session.LastOutcome
		e.LastOutcome = &o
	}
	if session.Pin != nil {
		e.Issuer, e.Subject, e.Email, e.Scope = session.Pin.Issuer, session.Pin.Subject, session.Pin.Email, session.Pin.Scope
	}
	e.Refreshable = e.Refreshable || r.Kind == KindOIDC && session.renewsByClient()
	loginRequired, notBefore, _ := session.about(r.RefreshToken)
	e.LoginRequired = r.Kind == KindOIDC && loginRequired != ""
	if time.Now().Before(notBefore) && time.Until(notBefore) <= maxNotBefore {
		e.NotBefore = notBefore
	}
	return e
}
