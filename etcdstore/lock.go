package etcdstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/lockfile"
)

// holder is the lock's value. It words messages; nothing is decided by it.
type holder struct {
	Nonce string    `json:"nonce"`
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

// mark is the mark's value.
type mark struct {
	State string    `json:"state"`
	Token string    `json:"token"` // fingerprint
	Login string    `json:"login"` // fingerprint
	At    time.Time `json:"at"`
	Nonce string    `json:"nonce"`
}

// lock is a target's lock, held.
type lock struct {
	store  *Store
	client *clientv3.Client
	target string
	nonce  string
	stale  time.Duration
	lease  clientv3.LeaseID
	rev    int64 // at which the lock's key was made

	mu      sync.Mutex
	mark    lockfile.Mark
	markRev int64 // of the mark that this holder put; 0: none

	stepped atomic.Int64 // when the holder last showed progress, in nanoseconds since begun
	begun   time.Time
	end     context.CancelFunc
	ended   chan struct{}
}

// Lock implements [credstore.Shared].
func (s *Store) Lock(ctx context.Context, req credstore.SharedRequest) (credstore.SharedLock, error) {
	client, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*req.StaleAfter, errBackstop)
	defer cancel()
	var by holder
	for {
		l, seen, err := s.try(ctx, client, req)
		if err == nil && l == nil {
			by = seen.by
			err = s.wait(ctx, client, req, seen.revision)
		}
		switch {
		case err == nil && l != nil:
			return l, nil
		case errors.Is(context.Cause(ctx), errBackstop):
			return nil, &held{s.key(req.Target, lockKey), by, 2 * req.StaleAfter}
		case err != nil:
			return nil, err
		}
	}
}

var errBackstop = errors.New("waited long enough")

// held says who stands in the way.
type held struct {
	key     string
	by      holder
	watched time.Duration
}

func (h *held) Error() string {
	s := "the lock " + h.key + " in etcd is held"
	if h.by.Host != "" {
		s += fmt.Sprintf(" by process %d on %.64q since %s", h.by.PID, h.by.Host, h.by.Since.UTC().Format(time.RFC3339))
	}
	return s + fmt.Sprintf(", and others took turns with it for %s: try again", h.watched.Round(time.Millisecond))
}

func (*held) Is(target error) bool { return target == lockfile.ErrNotObtained }

// sighting is what a try that failed saw.
type sighting struct {
	by       holder
	revision int64
}

// try takes the lock if nobody has it. It asks first, because most who come
// here find it taken, and a lease costs the cluster a commit.
func (s *Store) try(ctx context.Context, client *clientv3.Client, req credstore.SharedRequest) (*lock, sighting, error) {
	key := s.key(req.Target, lockKey)
	ctx, cancel := context.WithTimeout(ctx, req.StaleAfter/6)
	defer cancel()
	r, err := again(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return client.Get(ctx, key) })
	if err != nil {
		return nil, sighting{}, s.failure(ctx, err)
	}
	if len(r.Kvs) > 0 {
		return nil, sighting{holderOf(r.Kvs), r.Header.Revision}, nil
	}
	lease, err := again(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return client.Grant(ctx, int64(math.Ceil(req.StaleAfter.Seconds()))) // one too many ends by itself
	})
	if err != nil {
		return nil, sighting{}, s.failure(ctx, err)
	}
	l := &lock{store: s, client: client, target: req.Target, nonce: rand.Text(), stale: req.StaleAfter, lease: lease.ID, begun: time.Now(), ended: make(chan struct{})}
	host, _ := os.Hostname() // words messages only
	value, err := json.Marshal(holder{l.nonce, host, os.Getpid(), time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return nil, sighting{}, err
	}
	seeMark := clientv3.OpGet(s.key(req.Target, markKey))
	txn, err := again(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(value), clientv3.WithLease(lease.ID)), seeMark).
			Else(clientv3.OpGet(key), seeMark).Commit()
	})
	if err != nil {
		_ = l.revoke() // whether the key was made or not; else it ends by itself
		return nil, sighting{}, s.failure(ctx, err)
	}
	l.rev = txn.Header.Revision
	if !txn.Succeeded {
		there := txn.Responses[0].GetResponseRange().Kvs
		by := holderOf(there)
		if len(there) == 0 || by.Nonce != l.nonce {
			// The lease carries nothing and ends by itself: revoking those of all
			// who came too late would hold up the one who came first.
			return nil, sighting{by, txn.Header.Revision}, nil
		}
		l.rev = there[0].CreateRevision // made by an attempt that was not answered
	}
	l.mark = markOf(txn.Responses[1].GetResponseRange().Kvs)
	alive, end := context.WithCancel(context.Background())
	l.end = end
	go l.keepAlive(alive)
	return l, sighting{}, nil
}

// wait returns when the lock may be had, or with [lockfile.ErrStopped] when
// there is no need of it any more.
func (s *Store) wait(ctx context.Context, client *clientv3.Client, req credstore.SharedRequest, since int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	// The call returns when a member has answered it. One that hangs holds up
	// neither the looks below nor, after a while, the next attempt.
	opened := make(chan clientv3.WatchChan, 1)
	go func() {
		opened <- client.Watch(ctx, s.dir(req.Target), clientv3.WithPrefix(), clientv3.WithRev(since+1))
	}()
	var events clientv3.WatchChan
	enough := time.NewTimer(req.StaleAfter / 6)
	defer enough.Stop()
	tick := time.NewTicker(max(req.StaleAfter/60, time.Millisecond)) // for what only time changes
	defer tick.Stop()
	value, key := s.key(req.Target, valueKey), s.key(req.Target, lockKey)
	for {
		free, look := false, false
		select {
		case r, ok := <-events:
			if !ok || r.Err() != nil { // compacted, or no leader: try again finds out
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
				free, look = true, true
			}
			for _, e := range r.Events {
				look = look || string(e.Kv.Key) == value
				free = free || string(e.Kv.Key) == key && e.Type == mvccpb.Event_DELETE
			}
		case events = <-opened:
		case <-enough.C:
			free = true // perhaps, and nobody told us
		case <-tick.C:
			look = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if look && req.Until != nil && req.Until() {
			return lockfile.ErrStopped
		}
		if free {
			return nil
		}
	}
}

// keepAlive renews the lease while its holder shows progress. It never ends
// the hold: whoever is about to do something that counts asks the server.
func (l *lock) keepAlive(ctx context.Context) {
	defer close(l.ended)
	tick := time.NewTicker(l.stale / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(l.begun)-time.Duration(l.stepped.Load()) > l.stale {
			continue // stuck: somebody else should have the lock
		}
		once, cancel := context.WithTimeout(ctx, l.stale/6)
		err := l.renew(once)
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return
		}
	}
}

// renew makes the lease last StaleAfter from now. The client asks for a new
// authentication token for each such call, of any member, and one that lags
// behind does not know it yet: unlike for other calls, the client gives up then.
func (l *lock) renew(ctx context.Context) error {
	for {
		_, err := again(ctx, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
			return l.client.KeepAliveOnce(ctx, l.lease)
		})
		if !errors.Is(err, rpctypes.ErrInvalidAuthToken) && !errors.Is(err, rpctypes.ErrAuthOldRevision) {
			return err
		}
		select {
		case <-time.After(lagPause):
		case <-ctx.Done():
			return err
		}
	}
}

// lagPause is how long a member that lags behind is left to catch up.
const lagPause = 20 * time.Millisecond

// bound is how long a call of a holder may take.
func (l *lock) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), l.stale/6)
}

// ours is true of a cluster in which the lock is still this one.
func (l *lock) ours() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.store.key(l.target, lockKey)), "=", l.rev)
}

// lastMark is true of a cluster in which nobody has put a mark after this
// holder's; ok is false if it has put none.
func (l *lock) lastMark() (marked clientv3.Cmp, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return clientv3.Compare(clientv3.ModRevision(l.store.key(l.target, markKey)), "=", l.markRev), l.markRev != 0
}

func (l *lock) Nonce() string { return l.nonce }

func (l *lock) Step() error {
	l.stepped.Store(int64(time.Since(l.begun)))
	return nil
}

// Check implements [credstore.SharedLock]: the lease is renewed, so that from
// now on it lasts StaleAfter.
func (l *lock) Check() error {
	ctx, cancel := l.bound()
	defer cancel()
	err := l.renew(ctx)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return lockfile.ErrLost
	}
	if err != nil {
		return l.store.failure(ctx, err)
	}
	r, err := again(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return l.client.Get(ctx, l.store.key(l.target, lockKey), clientv3.WithKeysOnly())
	})
	if err != nil {
		return l.store.failure(ctx, err)
	}
	if len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != l.rev {
		return lockfile.ErrLost
	}
	return nil
}

func (l *lock) Mark() lockfile.Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark
}

func (l *lock) SetMark(m lockfile.Mark) error {
	value, err := json.Marshal(mark{string(m.State), m.Fingerprint, m.Login, m.At.UTC(), l.nonce})
	if err != nil {
		return err
	}
	ctx, cancel := l.bound()
	defer cancel()
	r, err := again(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return l.client.Txn(ctx).If(l.ours()).Then(clientv3.OpPut(l.store.key(l.target, markKey), string(value))).Commit()
	})
	if err != nil {
		return l.store.failure(ctx, err)
	}
	if !r.Succeeded {
		return lockfile.ErrLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.markRev = m, r.Header.Revision
	return nil
}

// Release gives the lock up, with the lease that carries it.
func (l *lock) Release() error {
	l.end()
	<-l.ended
	return l.revoke()
}

func (l *lock) revoke() error {
	ctx, cancel := context.WithTimeout(context.Background(), min(l.stale/6, releaseBound))
	defer cancel()
	_, err := again(ctx, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) { return l.client.Revoke(ctx, l.lease) })
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return l.store.failure(ctx, err)
}

// releaseBound is short because the server ends the lease in any case.
const releaseBound = 5 * time.Second

func modRevision(kvs []*mvccpb.KeyValue) int64 {
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].ModRevision
}

func holderOf(kvs []*mvccpb.KeyValue) (h holder) {
	if len(kvs) > 0 {
		_ = json.Unmarshal(kvs[0].Value, &h) // words messages only
	}
	return h
}

// markOf reads a mark; what cannot be read forbids nothing, as on disk.
func markOf(kvs []*mvccpb.KeyValue) lockfile.Mark {
	var m mark
	if len(kvs) == 0 || json.Unmarshal(kvs[0].Value, &m) != nil {
		return lockfile.Mark{}
	}
	return lockfile.Mark{State: lockfile.MarkState(m.State), Fingerprint: m.Token, Login: m.Login, At: m.At}
}
