package credstore

import (
	"context"
	"time"

	"github.com/spendonce/spendonce/lockfile"
)

// SharedInspector is a [Shared] that can be looked at.
type SharedInspector interface {
	// Inspect looks at the store and at the targets' locks. It changes
	// nothing, takes no lock, and ends with ctx.
	Inspect(ctx context.Context, targets []string) SharedInspection
}

// SharedInspection is what was seen of a shared store: plain data, without
// any secret.
type SharedInspection struct {
	Members []SharedMember
	Prefix  string // of all keys
	// Err is why values cannot be read, nil if they can. Nothing was learnt of
	// the targets then.
	Err error
	// CertificateEnds is when the certificate ends that this machine shows;
	// zero if it shows none.
	CertificateEnds time.Time
	Targets         map[string]SharedTarget
}

// SharedMember is one server of the store.
type SharedMember struct {
	Endpoint        string
	Err             error     // it was not reached
	CertificateEnds time.Time // its own; zero if it shows none
	Version         string
	Leads           bool
	Faults          []string // what it says that is wrong with it
	// Clock is what its clock said at Asked of this machine's, within a second;
	// zero if it did not tell.
	Clock, Asked time.Time
}

// SharedTarget is what was seen of a target.
type SharedTarget struct {
	Name   string // of the value, for messages
	Exists bool
	Size   int64
	Held   bool // somebody has the lock: Host, PID and Since are its own words
	Host   string
	PID    int
	Since  time.Time
	Left   time.Duration // until the lock ends, unless it is renewed
	Mark   lockfile.Mark
}

// sharedPatience bounds a look at a shared store that does not answer.
const sharedPatience = 5 * time.Second

// inspectShared looks at the shared store, if it can be looked at.
func (s *Store) inspectShared() *SharedInspection {
	if s.shared == nil {
		return nil
	}
	in, ok := s.shared.in.(SharedInspector)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), sharedPatience)
	defer cancel()
	i := in.Inspect(ctx, s.cfg.Shared.Names)
	i.Err = s.shared.failure(i.Err)
	return &i
}

// lookShared reads a shared target, unless it is known that this fails.
func (s *Store) lookShared(t *TargetReport, seen *SharedInspection, keys *peeking) (snap *snapshot, err error) {
	snap = &snapshot{doc: &document{}}
	t.Shared = &SharedTarget{}
	if seen != nil {
		*t.Shared = seen.Targets[t.Target]
		if seen.Err != nil {
			return snap, seen.Err
		}
	}
	t.SessionSeal, err = keys.seal(func() (*form, error) {
		now, err := s.shared.read(t.Target, true)
		if err != nil {
			return nil, err
		}
		snap = now
		return now.form, nil
	})
	return snap, err
}
