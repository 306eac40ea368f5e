//go:build linux

package spendoncetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/lease"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func ExampleStartBroker() {
	b, err := spendoncetest.StartBroker(spendoncetest.BrokerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	// This process becomes an anchor: it and its children are members.
	ctx, client := context.Background(), b.Client()
	session, err := client.RegisterAnchor(ctx, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	token, err := client.Mint(ctx, session, lease.Binding{RequestEpoch: 7, HSource: "sha256:a1", HPayload: "sha256:b2", SchemaVersion: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	binding, err := client.Consume(ctx, session, token)
	fmt.Println("first:", binding.RequestEpoch, err)

	// A restart forgets nothing.
	if err := errors.Join(b.Stop(), b.Start()); err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Consume(ctx, session, token)
	fmt.Println("replay refused:", errors.Is(err, lease.ErrTokenReplay))
	// Output:
	// first: 7 <nil>
	// replay refused: true
}

func startBroker(t *testing.T, cfg spendoncetest.BrokerConfig) *spendoncetest.Broker {
	t.Helper()
	b, err := spendoncetest.StartBroker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// anchorOf makes the test's process an anchor of b.
func anchorOf(t *testing.T, b *spendoncetest.Broker) lease.Session {
	t.Helper()
	session, err := b.Client().RegisterAnchor(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

var someBinding = lease.Binding{HSource: "sha256:a1", HPayload: "sha256:b2", SchemaVersion: 1}

func TestATemporaryBrokerIsAloneInAPrivateDirectory(t *testing.T) {
	one, two := startBroker(t, spendoncetest.BrokerConfig{}), startBroker(t, spendoncetest.BrokerConfig{})
	if one.Socket() == two.Socket() || one.StateDir() == two.StateDir() {
		t.Errorf("two brokers share %s or %s", one.Socket(), one.StateDir())
	}
	anchorOf(t, one)
	status, err := two.Status(t.Context())
	if err != nil || len(status.Sessions) != 0 {
		t.Errorf("the other one has the sessions %v, %v", status.Sessions, err)
	}
	info, err := os.Stat(filepath.Dir(one.Socket()))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
}

func TestATemporaryBrokerLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	b := startBroker(t, spendoncetest.BrokerConfig{})
	anchorOf(t, b)
	if left, _ := os.ReadDir(parent); len(left) != 1 {
		t.Fatalf("its directory is not in %s", parent)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("%v was left behind", left)
	}
	if _, err := b.Client().RegisterAnchor(t.Context(), 0); !errors.Is(err, lease.ErrNoBroker) {
		t.Errorf("a closed broker: %v", err)
	}
	if err := b.Start(); !errors.Is(err, spendoncetest.ErrBrokerClosed) {
		t.Errorf("starting it again: %v", err)
	}
}

func TestALongNameOfTheTemporaryDirectoryIsNoHindrance(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("l", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	anchorOf(t, startBroker(t, spendoncetest.BrokerConfig{}))
}

func TestATemporaryBrokerThatCannotStartLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o777); err != nil { // others may rename what is in it
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", parent)
	if b, err := spendoncetest.StartBroker(spendoncetest.BrokerConfig{}); err == nil {
		b.Close()
		t.Fatal("it started where it is not safe")
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("%v was left behind", left)
	}
}

func TestARestartKeepsTheSessionAndItsTokens(t *testing.T) {
	b := startBroker(t, spendoncetest.BrokerConfig{})
	session := anchorOf(t, b)
	token, err := b.Client().Mint(t.Context(), session, someBinding)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // stopping a stopped one does nothing
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Client().Consume(t.Context(), session, token); !errors.Is(err, lease.ErrNoBroker) {
		t.Fatalf("a stopped broker: %v", err)
	}
	for range 2 { // and starting a running one
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := b.Client().Consume(t.Context(), session, token); err != nil || got != someBinding {
		t.Errorf("after the restart: %v, %v", got, err)
	}
}

func TestTheLimitsOfATemporaryBrokerAreThoseOfItsConfig(t *testing.T) {
	t.Run("tokens", func(t *testing.T) {
		b := startBroker(t, spendoncetest.BrokerConfig{MaxTokens: 1})
		session := anchorOf(t, b)
		if _, err := b.Client().Mint(t.Context(), session, someBinding); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Client().Mint(t.Context(), session, someBinding); !errors.Is(err, lease.ErrTokenCapacity) {
			t.Errorf("the second token: %v", err)
		}
	})
	t.Run("state", func(t *testing.T) {
		b := startBroker(t, spendoncetest.BrokerConfig{MaxState: 150})
		if _, err := b.Client().RegisterAnchor(t.Context(), 0); !errors.Is(err, lease.ErrStateTooLarge) {
			t.Errorf("a session in 150 bytes: %v", err)
		}
	})
	t.Run("connections", func(t *testing.T) {
		for name, cfg := range map[string]spendoncetest.BrokerConfig{"in all": {MaxConnections: 1}, "of one": {MaxPerProcess: 1}} {
			cfg.Deadline = time.Minute
			b := startBroker(t, cfg)
			silent, err := lease.Dial(b.Socket())
			if err != nil {
				t.Fatal(err)
			}
			client := b.Client()
			client.Retries = -1
			if _, err := client.RegisterAnchor(t.Context(), 0); !errors.Is(err, lease.ErrBusy) {
				t.Errorf("%s: beside a silent connection: %v", name, err)
			}
			silent.Close()
		}
	})
	t.Run("deadline", func(t *testing.T) {
		b := startBroker(t, spendoncetest.BrokerConfig{Deadline: time.Nanosecond})
		if _, err := b.Client().RegisterAnchor(t.Context(), 0); !errors.Is(err, lease.ErrDeadlineExceeded) {
			t.Errorf("a request in a nanosecond: %v", err)
		}
	})
	t.Run("audit log", func(t *testing.T) {
		b := startBroker(t, spendoncetest.BrokerConfig{AuditLimit: 1})
		anchorOf(t, b)
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(b.StateDir(), "broker-audit.log.1")); err != nil {
			t.Errorf("over its limit: %v", err)
		}
	})
}

func TestStartsAndStopsFromManyGoroutinesEnd(t *testing.T) {
	b := startBroker(t, spendoncetest.BrokerConfig{})
	failed := make(chan error, 8)
	for i := range cap(failed) {
		go func() {
			if i%2 == 0 {
				failed <- b.Stop()
			} else {
				failed <- b.Start()
			}
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	anchorOf(t, b)
}

func TestTheTokensOfATemporaryBrokerAreNowhere(t *testing.T) {
	var said []string
	b := startBroker(t, spendoncetest.BrokerConfig{Warn: func(text string) { said = append(said, text) }})
	session := anchorOf(t, b)
	token, err := b.Client().Mint(t.Context(), session, someBinding)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	canary.Absent(t, []canary.Value{{Name: "token", Secret: token}}, canary.Places{
		Dirs: []string{b.StateDir()}, Outputs: map[string][]byte{"warnings": []byte(strings.Join(said, "\n"))},
	})
	if !slices.Equal(b.Environment(), []string{"SPENDONCE_SOCKET=" + b.Socket()}) {
		t.Errorf("the environment is %q", b.Environment())
	}
}
