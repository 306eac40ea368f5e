package etcdstore

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spendonce/spendonce/credstore"
)

// Inspect implements [credstore.SharedInspector]: each member is asked for its
// status, within half of the time that ctx leaves, and the cluster for the
// keys of the targets. A member's clock is that of its answer to a request for
// its version, over HTTP.
func (s *Store) Inspect(ctx context.Context, targets []string) credstore.SharedInspection {
	r := credstore.SharedInspection{Prefix: s.cfg.Prefix, Targets: map[string]credstore.SharedTarget{}}
	if s.cfg.TLS != nil && len(s.cfg.TLS.Certificates) > 0 && s.cfg.TLS.Certificates[0].Leaf != nil {
		r.CertificateEnds = s.cfg.TLS.Certificates[0].Leaf.NotAfter
	}
	client, err := s.connected(ctx)
	if err != nil {
		r.Err = err
		return r
	}
	soon := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		soon, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	r.Members = make([]credstore.SharedMember, len(s.cfg.Endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range s.cfg.Endpoints {
		wg.Go(func() { r.Members[i] = s.member(soon, client, endpoint) })
	}
	for _, target := range targets {
		var t credstore.SharedTarget
		if t, r.Err = s.inspectTarget(ctx, client, target); r.Err != nil {
			break
		}
		r.Targets[target] = t
	}
	wg.Wait()
	return r
}

func (s *Store) member(ctx context.Context, client *clientv3.Client, endpoint string) credstore.SharedMember {
	m := credstore.SharedMember{Endpoint: endpoint}
	m.CertificateEnds = s.certificate(ctx, endpoint)
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		m.Err = s.failure(ctx, err)
		return m
	}
	m.Version, m.Faults = status.Version, status.Errors
	m.Leads = status.Leader == status.Header.MemberId
	m.Clock, m.Asked = s.clock(ctx, endpoint)
	return m
}

// clock is what the member's clock said, and this machine's in the middle of
// the question; zero if there was no answer.
func (s *Store) clock(ctx context.Context, endpoint string) (theirs, ours time.Time) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: s.cfg.TLS.Clone()}
	if s.cfg.Dial != nil {
		transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) { return s.cfg.Dial(ctx, address) }
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, endpoint+"/version", nil)
	if err != nil {
		return time.Time{}, time.Time{}
	}
	begun := time.Now()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return time.Time{}, time.Time{}
	}
	took := time.Since(begun)
	_ = resp.Body.Close()
	theirs, err = http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, time.Time{}
	}
	// The header has whole seconds, rounded down.
	return theirs.Add(time.Second / 2), begun.Add(took / 2)
}

// certificate is when that of the member ends; zero if it is not to be had.
func (s *Store) certificate(ctx context.Context, endpoint string) time.Time {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" {
		return time.Time{}
	}
	dial := s.cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	conn, err := dial(ctx, u.Host)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = conn.Close() }()
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.TLS != nil {
		cfg = s.cfg.TLS.Clone()
	}
	cfg.ServerName, cfg.NextProtos = u.Hostname(), []string{"h2"}
	// Nothing is sent, so that a certificate that has ended can be told of.
	cfg.InsecureSkipVerify = true
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		return time.Time{}
	}
	certs := secured.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return time.Time{}
	}
	return certs[0].NotAfter
}

// inspectTarget reads the keys of a target in one moment.
func (s *Store) inspectTarget(ctx context.Context, client *clientv3.Client, target string) (credstore.SharedTarget, error) {
	t := credstore.SharedTarget{Name: s.Name(target)}
	r, err := client.Get(ctx, s.dir(target), clientv3.WithPrefix()) // of all in one moment, and asked again by the client
	if err != nil {
		return t, s.failure(ctx, err)
	}
	for _, kv := range r.Kvs {
		switch string(kv.Key) {
		case s.key(target, valueKey):
			t.Exists, t.Size = true, int64(len(kv.Value))
		case s.key(target, lockKey):
			h := holderOf([]*mvccpb.KeyValue{kv})
			t.Held, t.Host, t.PID, t.Since = true, h.Host, h.PID, h.Since
			if left, err := client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease)); err == nil && left.TTL > 0 {
				t.Left = time.Duration(left.TTL) * time.Second
			}
		case s.key(target, markKey):
			t.Mark = markOf([]*mvccpb.KeyValue{kv})
		}
	}
	return t, nil
}
