//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/spendonce/spendonce/spendoncetest/canary"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestWhatWasPutSurvivesTheKillOfTheLeader(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: 1})
	ctx := patient(t)
	client := c.Client(t, c.Programs[0], c.User)
	if _, err := client.Put(ctx, "key", "value"); err != nil {
		t.Fatal(err)
	}
	old := c.Leader(t)
	old.Kill()
	got, err := client.Get(ctx, "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		t.Fatalf("after the kill: %v, %v", got, err)
	}
	if now := c.Leader(t); now == old {
		t.Error("the leader is who was killed")
	}
	old.Restart(t)
	for _, m := range c.Members {
		if m != old {
			m.Kill()
			m.Restart(t)
		}
	}
	if got, err = client.Get(ctx, "key"); err != nil || len(got.Kvs) != 1 {
		t.Fatalf("after all were killed in turn: %v, %v", got, err)
	}
}

func TestWithoutAMajorityAReadEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	client := c.Client(t, c.Members[0].Host, c.User)
	if _, err := client.Get(patient(t), "key"); err != nil {
		t.Fatal(err)
	}
	c.Members[1].Kill()
	c.Members[2].Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := client.Get(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rpctypes.ErrTimeout) {
		t.Fatalf("one of three: %v", err)
	}
	c.Members[1].Restart(t)
	if _, err := client.Get(patient(t), "key"); err != nil {
		t.Fatalf("two of three: %v", err)
	}
}

func TestAHostThatIsCutOffReachesNoMember(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: 2})
	near, far := c.Client(t, c.Programs[0], c.User), c.Client(t, c.Programs[1], c.User)
	if _, err := far.Put(patient(t), "key", "value"); err != nil {
		t.Fatal(err)
	}
	c.Programs[1].Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := far.Put(ctx, "key", "from nowhere"); err == nil {
		t.Fatal("a host that is cut off wrote")
	}
	got, err := near.Get(patient(t), "key")
	if err != nil || string(got.Kvs[0].Value) != "value" {
		t.Fatalf("the other host: %v, %v", got, err)
	}
	c.Programs[1].Join()
	if _, err := far.Put(patient(t), "key", "back again"); err != nil {
		t.Fatalf("joined again: %v", err)
	}
}

func TestALeaderThatIsLostIsReplaced(t *testing.T) {
	t.Parallel()
	type loss struct {
		name      string
		lose, end func(*testing.T, *cluster.Member)
	}
	cut := loss{"cut off", func(_ *testing.T, m *cluster.Member) { m.Host.Cut() }, func(_ *testing.T, m *cluster.Member) { m.Host.Join() }}
	for name, tt := range map[string]struct {
		loopback bool
		losses   []loss
	}{
		"namespaces": {false, []loss{
			cut,
			{"paused", func(_ *testing.T, m *cluster.Member) { m.Pause() }, func(_ *testing.T, m *cluster.Member) { m.Resume() }},
			{"stopped", func(_ *testing.T, m *cluster.Member) { m.Stop() }, func(t *testing.T, m *cluster.Member) { m.Restart(t) }},
		}},
		"loopback": {true, []loss{cut}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster.Start(t, cluster.Options{Loopback: tt.loopback})
			for _, l := range tt.losses {
				old := c.Leader(t)
				l.lose(t, old)
				now := c.Leader(t, old)
				if _, err := now.Client(t).Put(patient(t), "key", l.name); err != nil {
					t.Fatalf("%s: %v", l.name, err)
				}
				l.end(t, old)
				got, err := old.Client(t).Get(patient(t), "key")
				if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != l.name {
					t.Fatalf("no longer %s, %s has %v, %v; %s led", l.name, old.Name, got, err, now.Name)
				}
			}
		})
	}
}

func TestAClientNeedsACertificateOfTheAuthority(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: 1})
	mine := c.TLS
	for _, other := range []*cluster.Authority{c.Authority, cluster.NewAuthority(t)} {
		c.TLS = other.Client(t, "another")
		c.TLS.CA = mine.CA
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if other == c.Authority {
			ctx = patient(t)
		}
		_, err := c.Client(t, c.Programs[0], c.User).Get(ctx, "key")
		cancel()
		if served := err == nil; served != (other == c.Authority) {
			t.Errorf("served: %v, %v", served, err)
		}
	}
}

func TestTheUserCannotLeaveItsPrefix(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Password: true, Programs: 1})
	ctx := patient(t)
	user, root := c.Client(t, c.Programs[0], c.User), c.Client(t, c.Programs[0], c.Root)
	if _, err := user.Put(ctx, c.Prefix+"key", "value"); err != nil {
		t.Fatalf("within the prefix: %v", err)
	}
	if _, err := root.Put(ctx, "/elsewhere", "value"); err != nil {
		t.Fatalf("root: %v", err)
	}
	if _, err := user.Put(ctx, "/elsewhere", "mine"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("writing elsewhere: %v", err)
	}
	if _, err := user.Get(ctx, "/elsewhere"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("reading elsewhere: %v", err)
	}
	if _, err := c.Client(t, c.Programs[0], cluster.Login{}).Get(ctx, c.Prefix+"key"); err == nil {
		t.Error("somebody without a name read")
	}
}

func TestSecretsAreFoundWhereEtcdKeepsThem(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]cluster.Options{
		"TLS":   {},
		"plain": {Plain: true, Loopback: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := o.Plain
			o.Record, o.Programs = true, 1
			c := cluster.Start(t, o)
			v := canary.New("value")
			if _, err := c.Client(t, c.Programs[0], c.User).Put(patient(t), "key", v.Secret.Reveal()); err != nil {
				t.Fatal(err)
			}
			wire, disk := c.Places(), c.Places()
			wire.Dirs, disk.Outputs = nil, nil
			if len(wire.Outputs) == 0 {
				t.Fatal("nothing was recorded")
			}
			if found := len(canary.Search(t, []canary.Value{v}, wire)) > 0; found != plain {
				t.Errorf("on the network it was found: %v", found)
			}
			if len(canary.Search(t, []canary.Value{v}, disk)) == 0 {
				t.Error("on disk it was not found")
			}
		})
	}
}
