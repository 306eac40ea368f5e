//go:build linux

package etcd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// renew refreshes the session: whoever else had its refresh token has lost it.
func (m *machine) renew() {
	m.t.Helper()
	m.must("token", "box", "--refresh")
	m.hide("box")
}

func TestASessionMovesToEtcdAndBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Start(t, cluster.Options{Loopback: true, Password: true}))
	there := newMachine(t, s)
	m := newMachine(t, s, there)
	m.configure("file", there, m)
	m.signIn("box")
	token := m.must("token", "box")

	if r := m.run("", "store", "move", "box", "--to", "etcd"); r.code != 2 || !strings.Contains(r.err, `set store = "etcd" under [targets.box]`) {
		t.Errorf("before the configuration says so it ended with %d: %s", r.code, r.err)
	}
	m.configure("etcd", there, m)
	if r := m.run("", "token", "box", "--refresh"); r.code != 3 {
		t.Errorf("before the move, token ended with %d: %s", r.code, r.err)
	}
	if out := m.must("store", "move", "box", "--to", "etcd"); out != "box is in etcd now" {
		t.Errorf("it said %s", out)
	}
	if out := m.must("store", "move", "box", "--json"); out != `{"version":1,"target":"box","to":"etcd","moved":false}` {
		t.Errorf("the second time it said %s", out)
	}
	if got := there.must("token", "box"); got != token {
		t.Error("the other machine has another token")
	}
	if b, err := os.ReadFile(filepath.Join(m.dir, "state/remote-credentials.json")); err != nil || strings.Contains(string(b), "box") {
		t.Errorf("the file still holds it, %v", err)
	}
	m.renew()

	m.configure("file", there, m)
	m.must("store", "move", "box", "--to", "file")
	if r := there.run("", "token", "box"); r.code != 3 {
		t.Errorf("the other machine's token ended with %d: %s", r.code, r.err)
	}
	m.renew()
}

func TestARekeyShutsOutWhoIsNoRecipientAnyMore(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Start(t, cluster.Options{Loopback: true}))
	gone, stays := newMachine(t, s), newMachine(t, s)
	m := newMachine(t, s, gone, stays)
	m.signIn("box")
	token := gone.must("token", "box")

	m.configure("etcd", stays, m)
	if out := m.must("store", "rekey", "--dry-run"); out != "1 target in etcd would get a new key: box" {
		t.Errorf("the dry run said %s", out)
	}
	if got := gone.must("token", "box"); got != token {
		t.Error("the dry run changed something")
	}
	var out struct{ Shared, Files []string }
	must(t, json.Unmarshal([]byte(m.must("store", "rekey", "--json")), &out))
	if !slices.Equal(out.Shared, []string{"box"}) || len(out.Files) != 0 {
		t.Errorf("it said %+v", out)
	}
	if got := stays.must("token", "box"); got != token {
		t.Error("who stays has another token")
	}
	if r := gone.run("", "token", "box"); r.code != 6 || strings.Contains(r.out, token) {
		t.Errorf("who is gone: token ended with %d: %s", r.code, r.err)
	} else {
		t.Log(r.err)
	}
	m.renew()
}

func TestAMoveWithoutEtcdChangesNothing(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Loopback: true})
	m := newMachine(t, newSite(t, c))
	m.configure("file", m)
	m.signIn("box")
	m.configure("etcd", m)
	for _, member := range c.Members[1:] {
		member.Kill()
	}
	if r := m.run("", "store", "move", "box"); r.code != 5 || !strings.Contains(r.err, "etcd") {
		t.Errorf("it ended with %d: %s", r.code, r.err)
	}
	m.configure("file", m)
	m.renew()
}
