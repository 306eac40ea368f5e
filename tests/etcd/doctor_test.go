//go:build linux

package etcd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// everything is what etcd holds below the prefix, and its revision, which
// every lock that was taken meanwhile would have moved.
func everything(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	r, err := c.Members[0].Client(t).Get(ctx, c.Prefix, clientv3.WithPrefix())
	must(t, err)
	var b strings.Builder
	fmt.Fprintln(&b, r.Header.Revision)
	for _, kv := range r.Kvs {
		b.WriteString(kv.String() + "\n")
	}
	return b.String()
}

func TestListStatusAndDoctorLookAtEtcdAndChangeNothing(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Loopback: true, Password: true})
	s := newSite(t, c)
	there := newMachine(t, s)
	m := newMachine(t, s, there)
	m.signIn("box")
	before, asked := everything(t, c), len(s.server.Log())

	out := m.must("doctor", "--verbose")
	for _, want := range []string{
		"what is below /spendonce/ can be read", c.Members[0].Endpoint() + " answers", "etcd 3.", "the certificate of " + c.Members[0].Endpoint() + " ends",
		"the key /spendonce/targets/box/value in etcd has ", "and its age key ", "the lock in etcd is free", "signed in, the token ends",
		"this machine's clock agrees with that of " + c.Members[2].Endpoint(),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "another program comes first on PATH") {
		t.Errorf("doctor takes spendonce for a stranger:\n%s", out)
	}
	if out := m.must("status"); !strings.Contains(out, "3 of 3 members answer, below /spendonce/, version 3.") || !strings.Contains(out, "valid") {
		t.Errorf("status said\n%s", out)
	}
	m.must("list")
	if after := everything(t, c); after != before {
		t.Error("something has changed in etcd")
	}
	if n := len(s.server.Log()); n != asked {
		t.Errorf("the authorization server was asked %d times", n-asked)
	}

	must(t, s.server.Hold(spendoncetest.Before))
	refresh := m.command("token", "box", "--refresh")
	must(t, refresh.Start())
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	must(t, s.server.WaitForHeld(ctx, spendoncetest.Before, 1))
	var status struct {
		Locks []struct {
			Target, Host string
			Held         bool
			PID          int
			LeftS        int64 `json:"left_s"`
		}
	}
	must(t, json.Unmarshal([]byte(there.must("status", "--json")), &status))
	if len(status.Locks) != 1 || !status.Locks[0].Held || status.Locks[0].PID != refresh.Process.Pid || status.Locks[0].Host == "" || status.Locks[0].LeftS == 0 {
		t.Errorf("the other machine sees the locks %+v", status.Locks)
	}
	must(t, s.server.Release(spendoncetest.Before))
	must(t, refresh.Wait())

	m.configure("etcd", m)
	m.must("store", "rekey")
	if r := there.run("", "doctor"); r.code != 1 || !strings.Contains(r.out, "spendonce store rekey") {
		t.Errorf("who cannot open it: doctor ended with %d: %s", r.code, r.out)
	}
}

func TestDoctorWithoutEtcdEndsWithinSeconds(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Loopback: true})
	m := newMachine(t, newSite(t, c))
	m.signIn("box")
	c.Members[0].Kill()
	if r := m.run("", "doctor"); r.code != 0 || !strings.Contains(r.out, c.Members[0].Endpoint()+" did not answer") {
		t.Errorf("with one away doctor ended with %d: %s", r.code, r.out)
	}
	for _, member := range c.Members[1:] {
		member.Kill()
	}
	start := time.Now()
	if r := m.run("", "doctor"); r.code != 1 || !strings.Contains(r.out, "cannot be reached") {
		t.Errorf("doctor ended with %d: %s", r.code, r.out)
	}
	if r := m.run("", "status"); r.code != 0 || !strings.Contains(r.out, "0 of 3 members answer") || !strings.Contains(r.out, "not reached") {
		t.Errorf("status ended with %d: %s", r.code, r.out)
	}
	if took := time.Since(start); took > 25*time.Second {
		t.Errorf("the two took %s", took)
	}
}

func TestDoctorNamesAWrongPassword(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Loopback: true, Password: true})
	m := newMachine(t, newSite(t, c))
	m.write("password", "wrong\n")
	r := m.run("", "doctor", "--verbose")
	if r.code != 1 || !strings.Contains(r.out, "does not accept the user or the password -> check username and password_file under [etcd]") || strings.Contains(r.out, " answers") {
		t.Errorf("it ended with %d: %s", r.code, r.out)
	}
	if r := m.run("", "token", "box"); r.code != 2 || strings.Contains(r.err, "wrong") {
		t.Errorf("token ended with %d: %s", r.code, r.err)
	}
}
