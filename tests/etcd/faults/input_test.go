//go:build linux

package faults_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// Each says in one sentence what is wrong, with its exit code, sends nothing
// and leaves what is in etcd as it is.
func TestWhatIsWrongWithEtcdIsSaidAndNothingChanged(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: 2, Password: true})
	f := newFleet(t, c, c.Programs, stale)
	const first, exitConfig = "0/config/spendonce/config.toml", 2
	key := f.prefix + "targets/" + box + "/value"
	whole := f.value(key)
	strangers := cluster.NewAuthority(t)
	strangersFiles := strangers.Client(t, "")

	for name, x := range map[string]struct {
		config string
		put    []byte
		code   int
		says   string
	}{
		"no etcd there":          {config: f.changed("endpoints = [", fmt.Sprintf("endpoints = [%q] #", "https://"+f.hosts[0].At(9))), code: exitTemporary, says: "cannot be reached"},
		"plain http":             {config: f.changed("endpoints = [", fmt.Sprintf("endpoints = [%q] #", "http://"+c.Members[0].Host.At(2379))), code: exitConfig, says: "use https"},
		"a wrong password":       {config: f.changed("password_file = ", fmt.Sprintf("password_file = %q #", f.write("wrong", "no\n"))), code: exitConfig, says: "user or the password"},
		"a user that is unknown": {config: f.changed("username = ", `username = "nobody" #`), code: exitConfig, says: "user or the password"},
		"another's prefix":       {config: f.changed("prefix = ", `prefix = "/elsewhere/" #`), code: exitConfig, says: "/elsewhere/"},
		"another authority":      {config: f.changed("ca = ", fmt.Sprintf("ca = %q #", strangersFiles.CA)), code: exitConfig, says: "certificates"},
		"a stranger's certificate": {
			config: strings.NewReplacer(c.TLS.Cert, strangersFiles.Cert, c.TLS.Key, strangersFiles.Key).Replace(f.config()), code: exitConfig, says: "certificates",
		},
		"a value of others":  {put: []byte("hello"), code: exitStore, says: "not from this program"},
		"a damaged value":    {put: whole[:len(whole)-20], code: exitStore, says: "cannot be read"},
		"an empty directory": {config: f.changed("prefix = ", fmt.Sprintf("prefix = %q #", f.prefix+"empty/")), code: exitNoCredential, says: "login box"},
		"another identity":   {config: f.changed("identity = ", fmt.Sprintf("identity = %q #", f.write("other", anotherIdentity(t)))), code: exitStore, says: "is sealed with"},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			config, want := f.config(), whole
			if x.config != "" {
				config = x.config
			}
			if x.put != nil {
				want = x.put
			}
			_, err := f.watch.Put(t.Context(), key, string(want))
			must(t, err)
			f.write(first, config)
			f.start(0).refuses("a token", x.code, x.says, stale)
			r := f.start(0, "logout", box).end()
			if r.code != x.code {
				t.Errorf("logout ended with %d: %s", r.code, r.said)
			}
			for _, line := range strings.Split(r.said, "\n") {
				if !strings.HasPrefix(line, "spendonce: ") || strings.Contains(line, "rpc error") {
					t.Errorf("it said %q", line)
				}
			}
			if !bytes.Equal(f.value(key), want) {
				t.Error("the value is another one")
			}
		})
	}
	f.t = t
	if n := f.server.Counters().TokenPosts; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	_, err := f.watch.Put(t.Context(), key, string(whole))
	must(t, err)
	f.write(first, f.config())
	for _, m := range c.Members {
		m.Host.Delay(lag / 6)
	}
	f.start(0).gives("over a slow line")
}

// A server that knows none of etcd's calls, as one of another version does not.
func TestAServerThatIsNoEtcdOfVersionThreeIsNamedSo(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: 2, Plain: true, Loopback: true})
	f := &fleet{t: t, cluster: c, prefix: c.Prefix, hosts: c.Programs[:1], dir: t.TempDir(), stale: stale, said: map[string][]byte{}}
	f.makeIdentity()
	var err error
	f.server, err = spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	must(t, err)
	t.Cleanup(func() { _ = f.server.Close() })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	f.write("0/config/spendonce/config.toml", f.changed("endpoints = [", fmt.Sprintf("endpoints = [%q] #", "http://"+ln.Addr().String())))
	f.start(0).refuses("a token", 2, "no etcd of version 3", stale)
}

// Who waits for the lock watches from a revision that may be thrown away.
func TestACompactionDuringAWaitIsNotNoticed(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: 3})
	f := newFleet(t, c, c.Programs, stale)
	f.hold(spendoncetest.After)
	p := f.start(0)
	f.held(spendoncetest.After, p)
	for range 5 {
		_, err := f.watch.Put(t.Context(), f.prefix+"other", "x")
		must(t, err)
	}
	q := f.start(1)
	r, err := f.watch.Get(t.Context(), f.prefix, clientv3.WithPrefix())
	must(t, err)
	_, err = f.watch.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	time.Sleep(lag)
	f.answered()
	token := p.gives("the one that refreshes")
	if got := q.gives("the one that waits"); got != token {
		t.Error("it has another token")
	}
	f.counted(1, 0)
}

func (f *fleet) value(key string) []byte {
	f.t.Helper()
	r, err := f.watch.Get(f.t.Context(), key)
	must(f.t, err)
	if len(r.Kvs) != 1 {
		f.t.Fatalf("%d values at %s", len(r.Kvs), key)
	}
	return r.Kvs[0].Value
}

// changed is the configuration with something else at the one place.
func (f *fleet) changed(from, to string) string {
	f.t.Helper()
	config := f.config()
	if strings.Count(config, "\n"+from) != 1 {
		f.t.Fatalf("%q does not stand in the configuration once", from)
	}
	return strings.Replace(config, "\n"+from, "\n"+to, 1)
}
