package etcdstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/egress"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

// Config says where etcd is and who asks.
type Config struct {
	// Endpoints are the members' client URLs. http is for loopback only.
	Endpoints []string
	// Prefix is what all keys begin with. Empty: "/spendonce/".
	Prefix string
	// TLS is how members are told from others, and how they are told who this
	// is. Nil: the system's authorities, and no client certificate.
	TLS *tls.Config
	// Username and Password are for a cluster that asks for them.
	Username string
	Password secret.Secret
	// Dial reaches a member at HOST:PORT. Nil: over TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// DefaultPrefix is what keys begin with unless the configuration says else.
const DefaultPrefix = "/spendonce/"

// Store is a prefix of an etcd cluster. It connects when it is first used, and
// is safe for concurrent use.
type Store struct {
	cfg Config
	met atomic.Bool // a member has answered before

	mu     sync.Mutex
	client *clientv3.Client
}

// Open returns the store. Nothing is sent yet.
func Open(cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if !strings.HasSuffix(cfg.Prefix, "/") {
		cfg.Prefix += "/"
	}
	if len(cfg.Endpoints) == 0 {
		return nil, &fault{credstore.ErrConfig, "no etcd endpoints are configured: name them under [etcd], as endpoints = [\"https://HOST:2379\"]", nil}
	}
	for _, e := range cfg.Endpoints {
		if err := checkEndpoint(e); err != nil {
			return nil, err
		}
	}
	return &Store{cfg: cfg}, nil
}

// checkEndpoint refuses what would send a password or a value in the clear.
func checkEndpoint(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return &fault{credstore.ErrConfig, "an etcd endpoint is not of the form https://HOST:PORT: correct endpoints under [etcd]", nil}
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && egress.Loopback(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return &fault{credstore.ErrConfig, fmt.Sprintf("the etcd endpoint %s is plain http, which is for this machine only: use https", u.Host), nil}
	default:
		return &fault{credstore.ErrConfig, fmt.Sprintf("the etcd endpoint %s has the scheme %.20q: use https", u.Host, u.Scheme), nil}
	}
}

// connected returns the client, made at the first call that needs it.
func (s *Store) connected(ctx context.Context) (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		// A cluster that is back is to be noticed within a second.
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: dialTimeout,
	})}
	if s.cfg.Dial != nil {
		options = append(options, grpc.WithContextDialer(s.cfg.Dial))
	}
	timeout := dialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	client, err := clientv3.New(clientv3.Config{
		DialOptions: options,
		Endpoints:   s.cfg.Endpoints, TLS: s.cfg.TLS, Username: s.cfg.Username, Password: s.cfg.Password.Reveal(),
		DialTimeout:          timeout, // of the sign-in, which is all that New waits for
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               zap.NewNop(), // standard error is the program's
	})
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	s.client = client
	return client, nil
}

// distrust is what a member and this machine find wrong with each other's
// certificates, nil if nothing is or no member is there. The client mostly
// keeps that to itself, and says only that time was up.
func (s *Store) distrust() error {
	ctx, cancel := context.WithTimeout(context.Background(), distrustTimeout)
	defer cancel()
	for _, endpoint := range s.cfg.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "https" {
			continue
		}
		if err := s.shake(ctx, u); err != nil && isDistrust(err) {
			return err
		}
	}
	return nil
}

// shake shakes hands with a member and reads its first word: only then has it
// looked at our certificate.
func (s *Store) shake(ctx context.Context, u *url.URL) error {
	dial := s.cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	conn, err := dial(ctx, u.Host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.TLS != nil {
		cfg = s.cfg.TLS.Clone()
	}
	cfg.ServerName, cfg.NextProtos = u.Hostname(), []string{"h2"}
	shaken := tls.Client(conn, cfg)
	if err := shaken.HandshakeContext(ctx); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = shaken.SetReadDeadline(deadline)
	}
	_, err = shaken.Read(make([]byte, 1))
	return err
}

func isDistrust(err error) bool {
	text := err.Error()
	return strings.Contains(text, "x509: ") || strings.Contains(text, "tls: ") || strings.Contains(text, "first record does not look like a TLS handshake")
}

const (
	distrustTimeout = time.Second
	dialTimeout     = 5 * time.Second
	// A connection whose other end is cut off is given up after this time,
	// and another member is asked. Servers allow no shorter one.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Close ends the connection.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil
	}
	client := s.client
	s.client = nil
	return client.Close()
}

func (s *Store) key(target, what string) string { return s.dir(target) + what }

func (s *Store) dir(target string) string { return s.cfg.Prefix + "targets/" + target + "/" }

// The keys of a target.
const (
	valueKey = "value"
	lockKey  = "lock"
	markKey  = "mark"
)

// Name implements [credstore.Shared].
func (s *Store) Name(target string) string {
	return "the key " + s.key(target, valueKey) + " in etcd"
}

// Get implements [credstore.Shared], by a linearizable read.
func (s *Store) Get(ctx context.Context, target string) (credstore.SharedValue, error) {
	client, err := s.connected(ctx)
	if err != nil {
		return credstore.SharedValue{}, err
	}
	r, err := again(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return client.Get(ctx, s.key(target, valueKey))
	})
	if err != nil {
		return credstore.SharedValue{}, s.failure(ctx, err)
	}
	s.met.Store(true)
	if len(r.Kvs) == 0 {
		return credstore.SharedValue{}, nil
	}
	return credstore.SharedValue{Bytes: r.Kvs[0].Value, Version: r.Kvs[0].ModRevision}, nil
}

// patience are the parts of a bound after which another member is asked. A
// healthy cluster answers in milliseconds.
var patience = [...]int64{10, 3}

// again makes a call that may be made twice, at another member if one does not
// answer: a member that is stopped or cut off keeps a call until its deadline,
// and the client asks them in turn.
func again[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	deadline, bounded := ctx.Deadline()
	for _, part := range patience {
		if !bounded {
			break
		}
		once, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(part))
		r, err := call(once)
		late := once.Err() != nil
		cancel()
		if err == nil || !late || ctx.Err() != nil {
			return r, err
		}
	}
	return call(ctx)
}

// Put implements [credstore.Shared].
func (s *Store) Put(ctx context.Context, target string, version int64, b []byte, under credstore.SharedLock) error {
	client, err := s.connected(ctx)
	if err != nil {
		return err
	}
	key := s.key(target, valueKey)
	write := clientv3.OpDelete(key)
	if len(b) > 0 {
		write = clientv3.OpPut(key, string(b))
	}
	same := clientv3.Compare(clientv3.ModRevision(key), "=", version)
	held, _ := under.(*lock)
	if held == nil {
		r, err := client.Txn(ctx).If(same).Then(write).Commit()
		if err != nil {
			return s.failure(ctx, err)
		}
		if !r.Succeeded {
			return credstore.ErrMoved
		}
		return nil
	}
	r, err := client.Txn(ctx).If(same, held.ours()).Then(write).Else(clientv3.OpGet(key, clientv3.WithKeysOnly())).Commit()
	if err != nil {
		return s.failure(ctx, err)
	}
	switch {
	case r.Succeeded:
		return nil
	case modRevision(r.Responses[0].GetResponseRange().Kvs) != version:
		return credstore.ErrMoved
	}
	// The lock is lost. As long as the mark is ours nobody has sent the token
	// since, and whoever is about to will look at the value after its own mark.
	marked, ok := held.lastMark()
	if !ok {
		return lockfile.ErrLost
	}
	r, err = client.Txn(ctx).If(same, marked).Then(write).Commit()
	if err != nil {
		return s.failure(ctx, err)
	}
	if !r.Succeeded {
		return lockfile.ErrLost
	}
	return nil
}

// fault is an error of a kind, in one sentence.
type fault struct {
	kind  error
	text  string
	cause error
}

func (f *fault) Error() string   { return f.text }
func (f *fault) Unwrap() []error { return []error{f.kind, f.cause} }

// failure words an error of the client. The client's own words may name what
// was sent, so none of them is passed on.
func (s *Store) failure(ctx context.Context, err error) error {
	where := "etcd (" + strings.Join(s.cfg.Endpoints, ", ") + ")"
	var coded rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &coded) {
		code = coded.Code()
	}
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return context.Cause(ctx)
	case isDistrust(err):
		return &fault{credstore.ErrConfig, where + " and this machine do not trust each other's certificates: check ca, cert and key under [etcd], and that the endpoints are named as in the certificate", err}
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrUserNotFound), code == codes.Unauthenticated:
		return &fault{credstore.ErrConfig, where + " does not accept the user or the password: check username and password_file under [etcd]", err}
	case code == codes.PermissionDenied:
		return &fault{credstore.ErrConfig, fmt.Sprintf("%s does not let this user read and write below %s: grant it that, or set prefix under [etcd]", where, s.cfg.Prefix), err}
	case code == codes.Unimplemented:
		return &fault{credstore.ErrConfig, where + " is no etcd of version 3, or one that is too old: 3.4 is the oldest that is known to do", err}
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &fault{credstore.ErrShared, where + " is full and takes no more writes: it raises an alarm until its administrator frees space", err}
	case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrTimeout), errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail), errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost):
		return &fault{credstore.ErrShared, where + " has no majority at the moment: try again", err}
	default:
		if !s.met.Load() {
			if distrust := s.distrust(); distrust != nil {
				return s.failure(ctx, distrust)
			}
		}
		return &fault{credstore.ErrShared, where + " cannot be reached or did not answer in time: check that it runs and that this machine reaches it, and try again", err}
	}
}
