package takeover_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/movein"
	"github.com/spendonce/spendonce/internal/takeover"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func TestAMoveThereAndBackSendsNothingAndKeepsTheSession(t *testing.T) {
	server := startServer(t)
	g := newGround(t, server)
	must(t, g.in(durable.Disk{}))
	g.moved(t)
	must(t, g.out(durable.Disk{}))
	g.back(t)
	if c := server.Counters(); c.TokenPosts != 0 {
		t.Errorf("%d requests to the token endpoint", c.TokenPosts)
	}
	if info, err := os.Stat(g.file(movein.MCPRemoteTokens)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what was given back: %v, %v", info.Mode(), err)
	}
	if _, err := os.Stat(g.file(movein.MCPRemoteLease)); err == nil {
		t.Error("the lease stays")
	}
}

func TestTheJournalHoldsNoToken(t *testing.T) {
	g := newGround(t, startServer(t))
	must(t, g.in(durable.Disk{}))
	found, err := canary.Find(g.tokens, canary.Places{
		Dirs: []string{filepath.Dir(g.State)}, Allow: []string{filepath.Join(g.State, "remote-credentials.json")},
	})
	must(t, err)
	for _, f := range found {
		t.Errorf("a token is where it must not be: %v", f)
	}
}

func TestASessionInUseIsNotMoved(t *testing.T) {
	g := newGround(t, startServer(t))
	refused := func(what, words string) {
		t.Helper()
		for _, move := range []func(durable.Disk) error{g.in} {
			err := move(durable.Disk{})
			if !errors.Is(err, takeover.ErrInUse) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if h := g.oneHolder(t); h.other == nil {
			t.Errorf("%s: it was moved", what)
		}
	}
	sleeper := exec.Command("sleep", "60")
	must(t, sleeper.Start())
	pid := sleeper.Process.Pid
	write(t, g.file(movein.MCPRemoteLease), map[string]any{"pid": pid, "nonce": "n", "at": time.Now().UnixMilli()})
	refused("a lease", "refreshes this session just now")
	must(t, os.Remove(g.file(movein.MCPRemoteLease)))
	write(t, g.file(movein.MCPRemoteLock), map[string]any{"pid": pid, "port": 3334, "timestamp": time.Now().UnixMilli()})
	refused("a lock", "says mcp-remote's")
	must(t, sleeper.Process.Kill())
	_ = sleeper.Wait()
	must(t, g.in(durable.Disk{})) // its holder is dead
	g.moved(t)
}

func TestARunningMCPRemoteOfThatServerIsSeen(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("this system has no /proc to tell")
	}
	g := newGround(t, startServer(t))
	// A process whose command line is that of one.
	script := filepath.Join(t.TempDir(), "mcp-remote")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\nread line\n"), 0o700))
	cmd := exec.Command(script, g.URL)
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	err = g.in(durable.Disk{})
	if !errors.Is(err, takeover.ErrInUse) || !strings.Contains(err.Error(), "mcp-remote runs for "+g.URL) {
		t.Errorf("%v", err)
	}
	must(t, in.Close())
	_ = cmd.Wait()
	must(t, g.in(durable.Disk{}))
}

func TestKubeloginsLockIsHeldThroughoutAndHeeded(t *testing.T) {
	g := newGround(t, startServer(t))
	name := strings.Repeat("ab", 32)
	s := g.server.NewSession("alice")
	write(t, filepath.Join(g.Auth, name), map[string]any{"id_token": "e30.eyJpc3MiOiJodHRwczovL2EifQ.c2ln", "refresh_token": s.RefreshToken.Reveal()})
	p := takeover.Place{Program: movein.Kubelogin, Dir: g.Auth, Name: name}
	lock, err := os.Create(filepath.Join(g.Auth, name+".lock"))
	must(t, err)
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	m, err := g.open(durable.Disk{})
	must(t, err)
	if err := m.In(context.Background(), target, p, g.prepare); !errors.Is(err, takeover.ErrInUse) || !strings.Contains(err.Error(), "kubelogin is at work") {
		t.Errorf("%v", err)
	}
	must(t, lock.Close())
	held := false
	must(t, m.In(context.Background(), target, p, func(s movein.Session) (credstore.SignedIn, error) {
		l, err := os.Open(filepath.Join(g.Auth, name+".lock"))
		must(t, err)
		defer func() { _ = l.Close() }()
		held = errors.Is(unix.Flock(int(l.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
		return g.prepare(s)
	}))
	if !held {
		t.Error("kubelogin could have refreshed during the move")
	}
}

// The other program refreshes between the plan and the move: what is stored is
// what then stands in the file.
func TestARefreshBeforeTheRenamingIsTakenOver(t *testing.T) {
	server := startServer(t)
	g := newGround(t, server)
	m, err := g.open(durable.Disk{})
	must(t, err)
	calls := 0
	must(t, m.In(context.Background(), target, g.place(), func(s movein.Session) (credstore.SignedIn, error) {
		if calls++; calls == 1 {
			g.signIn(t)
		}
		return g.prepare(s)
	}))
	g.moved(t)
	if h := g.look(t); h.store.Fingerprint() != g.InitialRefresh {
		t.Error("the tokens of before were stored")
	}
}

func TestWhatCannotBeUsedGoesBackToWhereItWas(t *testing.T) {
	g := newGround(t, startServer(t))
	m, err := g.open(durable.Disk{})
	must(t, err)
	calls := 0
	err = m.In(context.Background(), target, g.place(), func(s movein.Session) (credstore.SignedIn, error) {
		if calls++; calls == 2 {
			return credstore.SignedIn{}, errors.New("it changed hands")
		}
		return g.prepare(s)
	})
	if err == nil || !strings.Contains(err.Error(), "has its session again") {
		t.Errorf("%v", err)
	}
	g.back(t)
}

func TestATargetThatHasASessionKeepsIt(t *testing.T) {
	server := startServer(t)
	g := newGround(t, server)
	must(t, g.in(durable.Disk{}))
	first := g.look(t).store.Fingerprint()
	g.signIn(t)
	if err := g.in(durable.Disk{}); !errors.Is(err, credstore.ErrTaken) {
		t.Errorf("%v", err)
	}
	h := g.look(t)
	if h.store.Fingerprint() != first || h.other == nil {
		t.Error("one of the two sessions was replaced")
	}
}

// A sign-in that ends between the look and the login wins.
func TestALoginDuringTheMoveKeepsItsSession(t *testing.T) {
	server := startServer(t)
	g := newGround(t, server)
	m, err := g.open(durable.Disk{})
	must(t, err)
	calls := 0
	err = m.In(context.Background(), target, g.place(), func(s movein.Session) (credstore.SignedIn, error) {
		in, _ := g.prepare(s)
		if calls++; calls == 2 {
			other := server.NewSession("bob")
			login := in
			login.Tokens = credstore.Tokens{AccessToken: other.AccessToken, RefreshToken: other.RefreshToken}
			_, err := m.Store.Login(context.Background(), target, login)
			must(t, err)
		}
		return in, nil
	})
	if !errors.Is(err, credstore.ErrTaken) {
		t.Errorf("%v", err)
	}
	h := g.look(t)
	if h.other == nil || h.between != nil || h.store == nil {
		t.Error("the session is not where it was")
	}
}

func TestWhatTheStoreCannotRefreshIsNotGivenBack(t *testing.T) {
	server := startServer(t)
	g := newGround(t, server)
	must(t, g.in(durable.Disk{}))
	h := g.look(t)
	must(t, server.RevokeFamily(h.store.Reveal()))
	m, err := g.open(durable.Disk{})
	must(t, err)
	src, err := m.Store.Source(credstore.SourceConfig{Target: target, Exchange: refresh.Exchange(nil)})
	must(t, err)
	if _, err := src.Get(context.Background(), credstore.Request{Refresh: true}); !errors.Is(err, credstore.ErrLoginRequired) {
		t.Fatalf("%v", err)
	}
	if err := g.out(durable.Disk{}); !errors.Is(err, credstore.ErrLoginRequired) {
		t.Errorf("%v", err)
	}
}

func TestAnotherRegistrationIsNotGivenTheSession(t *testing.T) {
	g := newGround(t, startServer(t))
	must(t, g.in(durable.Disk{}))
	write(t, g.file(movein.MCPRemoteClient), map[string]any{"client_id": "another"})
	if err := g.out(durable.Disk{}); !errors.Is(err, takeover.ErrOccupied) {
		t.Errorf("%v", err)
	}
	must(t, os.Remove(g.file(movein.MCPRemoteClient)))
	if err := g.out(durable.Disk{}); !errors.Is(err, takeover.ErrOccupied) {
		t.Errorf("%v", err)
	}
	g.moved(t)
}

func TestASessionThatWasCutShortIsNamedToWhoeverLooksForIt(t *testing.T) {
	g := newGround(t, startServer(t))
	renamed := false
	_ = g.in(durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if renamed {
			return unix.EIO
		}
		renamed = s.Op == "rename" && strings.Contains(s.Path, ".spendonce-")
		return do()
	}})
	if h := g.oneHolder(t); h.between == nil {
		t.Fatal("it was not cut short")
	}
	m, err := g.open(durable.Disk{})
	must(t, err)
	if err := m.In(context.Background(), "other", g.place(), g.prepare); !errors.Is(err, takeover.ErrCutShort) || !strings.Contains(err.Error(), target) {
		t.Errorf("%v", err)
	}
	if j, s, err := m.Cut(target); err != nil || j == nil || s.RefreshToken.Fingerprint() != g.InitialRefresh {
		t.Errorf("it is not found: %v", err)
	}
	must(t, m.Forget(target))
	if h := g.look(t); h.between != nil {
		t.Error("a logout leaves the renamed file")
	}
}

func TestOnlyOrdinaryFilesOfOursAreTaken(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, path string){
		"a link": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+"x"))
			must(t, os.Symlink(path+"x", path))
		},
		"a FIFO":      func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, unix.Mkfifo(path, 0o600)) },
		"a directory": func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o700)) },
		"100 MB":      func(t *testing.T, path string) { must(t, os.Truncate(path, 100<<20)) },
		"an open directory": func(t *testing.T, path string) {
			must(t, os.Chmod(filepath.Dir(path), 0o777))
		},
		"another's file": func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			must(t, os.Chown(path, 65534, 65534))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, startServer(t))
			put(t, g.file(movein.MCPRemoteTokens))
			if err := g.in(durable.Disk{}); !errors.Is(err, credstore.ErrUnsafe) {
				t.Errorf("%v", err)
			}
			if h, err := os.ReadDir(g.Auth); err == nil && strings.Contains(names(h), ".spendonce-") {
				t.Error("it was moved")
			}
		})
	}
}

func names(entries []os.DirEntry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestADamagedJournalIsLeftAlone(t *testing.T) {
	g := newGround(t, startServer(t))
	must(t, g.in(durable.Disk{}))
	path := filepath.Join(g.State, "imports", target+".json")
	var j map[string]any
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, json.Unmarshal(b, &j))
	for name, change := range map[string]func(){
		"a name that leads away": func() { j["moved"] = "../../x" },
		"another target":         func() { j["target"] = "else" },
		"a newer version":        func() { j["version"] = 2 },
	} {
		must(t, json.Unmarshal(b, &j))
		change()
		write(t, path, j)
		if err := g.out(durable.Disk{}); !errors.Is(err, credstore.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
