//go:build linux

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/keyringtest"
	"github.com/spendonce/spendonce/spendoncetest"
)

// testIdentity opens nothing but what these tests encrypt.
const testIdentity = "AGE-SECRET-KEY-13VMCGTPHSN38ZXJ6QFHQJNE4A4Z8WK9SU2CLTQLA2GT6HPVP34VS4XKDUE\n"

// sealHome encrypts a home's store, with a real keyring or an age identity.
func sealHome(t *testing.T, kind string) *home {
	t.Helper()
	if kind == "keyring" {
		keyringtest.Start(t)
	}
	h := newHome(t, spendoncetest.TokenServerConfig{Latency: 20 * time.Millisecond})
	key := "keyring"
	if kind == "age" {
		h.write("identity.txt", testIdentity)
		key = "age:" + filepath.Join(h.dir, "identity.txt")
	}
	config, err := os.ReadFile(filepath.Join(h.dir, "config/spendonce/config.toml"))
	must(t, err)
	h.write("config/spendonce/config.toml", string(config)+fmt.Sprintf("[store]\nkey = %q\n", key))
	return h
}

func (h *home) mustRun(args ...string) string {
	h.t.Helper()
	code, out, talk := h.run(args...)
	if code != 0 {
		h.t.Fatalf("%q ended with %d: %s", args, code, talk)
	}
	return out
}

func TestStormOnAnEncryptedStoreMakesOneExchange(t *testing.T) {
	for _, kind := range []string{"age", "keyring"} {
		t.Run(kind, func(t *testing.T) {
			h := sealHome(t, kind)
			count := rounds(t, 2, 50)
			for range count {
				h.renew()
				h.mustRun("store", "encrypt")
				h.storm(t, 64, "token", "work")
				if s := string(h.store()); !strings.HasPrefix(s, "[\"spendonce-sealed\",1,{\"kind\":\""+kind) {
					t.Fatalf("the store is not encrypted: %.60s", s)
				}
			}
			c := h.server.Counters()
			if c.Exchanges != count || c.TokenPosts != count || c.DoubleSpends != 0 || c.FamiliesRevoked != 0 {
				t.Errorf("%d rounds made %+v", count, c)
			}
		})
	}
}

// The store gets new keys while 24 processes want a token.
func TestStormWhileTheKeyChangesMakesOneExchange(t *testing.T) {
	h := sealHome(t, "keyring")
	h.mustRun("store", "encrypt")
	rekey := []*process{h.start("store", "rekey"), h.start("store", "rekey")}
	h.storm(t, 24, "token", "work")
	for _, p := range rekey {
		if code, _ := p.end(); code != 0 {
			t.Errorf("a change of the key ended with %d: %s", code, p.err.String())
		}
	}
	if c := h.server.Counters(); c.TokenPosts != 1 {
		t.Errorf("%d requests", c.TokenPosts)
	}
	if got := keyringtest.Items(t, "spendonce"); len(got) != 1 {
		t.Errorf("the keyring holds %q", got)
	}
}

// The keyring goes away: nothing is sent, and nothing taken for empty.
func TestWithoutItsKeyringAnEncryptedStoreSendsNothing(t *testing.T) {
	h := sealHome(t, "keyring")
	h.mustRun("store", "encrypt")
	before := string(h.store())
	t.Setenv(keyringtest.AddressVariable, "unix:path="+filepath.Join(h.dir, "gone"))
	for _, args := range [][]string{{"token", "work"}, {"list"}, {"logout", "work"}, {"store", "rekey"}, {"store", "decrypt"}} {
		code, out, talk := h.run(args...)
		if code != 6 || out != "" || !strings.Contains(talk, "session bus") || !strings.Contains(talk, "dbus-run-session") {
			t.Errorf("%q ended with %d, said %q and %q", args, code, out, talk)
		}
	}
	if h.server.Counters().TokenPosts != 0 || string(h.store()) != before {
		t.Error("something was sent or written")
	}
}
