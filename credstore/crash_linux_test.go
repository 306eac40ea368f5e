//go:build crash && linux

package credstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/spendoncetest"
)

// smallDisk mounts a file system of 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	path := t.TempDir()
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Fatalf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

// fillUp leaves no byte free.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 512)); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// B15: nothing is sent from a full disk, the file stays as it is, and what is
// valid is served.
func TestOnAFullDiskNothingIsSent(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, dir string)
	}{
		"from the start":    {func(*testing.T, string) {}},
		"after a first use": {func(t *testing.T, dir string) { mark(t, dir, "R-old", "") }},
	} {
		t.Run(name, func(t *testing.T) {
			disk := smallDisk(t)
			dir := filepath.Join(disk, "state")
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(40*time.Second))})
			tt.prepare(t, dir)
			fillUp(t, disk)
			before := bytesOf(t, storePath(dir))
			a := &authority{}
			var told warnings
			src := sourceOf(t, open(t, credstore.Config{Dir: dir, Warn: told.warn}), box, a)
			mustGive(t, src, credstore.Request{}, "A0")
			if !strings.Contains(told.all(), "not writable") {
				t.Errorf("said: %q", told.all())
			}
			if err := mustRefuse(t, src, credstore.Request{Refresh: true}, credstore.ErrNotWritable); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("%v", err)
			}
			mustHaveSent(t, a)
			if bytesOf(t, storePath(dir)) != before {
				t.Error("the store has changed")
			}
			if got := temps(namesIn(t, dir)); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
			if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
				t.Fatal(err)
			}
			mustGive(t, src, credstore.Request{Refresh: true}, "A-new-1")
		})
	}
}

// The disk fills up while the answer is on its way: the room was reserved.
func TestADiskThatFillsUpDuringTheExchangeCostsNothing(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "state")
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	// Pinned before, so that its locks and files are there.
	src := sourceOf(t, open(t, credstore.Config{Dir: dir, Margin: 8 << 10}), box, a)
	mustGive(t, src, credstore.Request{}, "A-new-1")
	a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		fillUp(t, disk)
		return a.rotated(n), nil
	}
	mustGive(t, src, credstore.Request{Refresh: true}, "A-new-2")
	if storeOf(t, dir)[box]["refreshToken"] != "R-new-2" {
		t.Error("not saved")
	}
	mustHaveSent(t, a, "R0", "R-new-1")
}

// nobody is a user without rights, for what root cannot prove.
const nobody = 65534

// asNobody runs a job as that user, in a copy of this binary that it may run.
func asNobody(t *testing.T, j job) (report, *worker) {
	t.Helper()
	dir, err := os.MkdirTemp("", "credstore") //nolint:usetesting // below t.TempDir the other user may not go
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "self.test")
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	workers, open := startAllWith(t, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = path, dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}, j)
	open()
	return workers[0].report(t), workers[0]
}

// nobodysGround is a ground that belongs to that user.
func nobodysGround(t *testing.T, s *spendoncetest.TokenServer, expires time.Time) (g *ground, own func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	if os.Getenv(formVariable) == "keyring" {
		onlyInPlain(t, "another user has another keyring")
	}
	dir, err := os.MkdirTemp("", "credstore") //nolint:usetesting // as above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g = &ground{dir: filepath.Join(dir, "state"), server: s}
	session := s.NewSession("alice")
	putStore(t, g.dir, map[string]record{box: oidc(session.RefreshToken.Reveal(), session.AccessToken.Reveal(), expires)})
	return g, func() {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				err = os.Lchown(path, nobody, nobody)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// B14 and its kind: a place that cannot be written costs no session.
func TestWhereNothingCanBeSavedNothingIsSent(t *testing.T) {
	s := server(t, spendoncetest.TokenServerConfig{})
	for name, forbid := range map[string]func(dir string) error{
		"a read-only copy": func(dir string) error {
			return errors.Join(os.Chmod(storePath(dir), 0o400), os.Chmod(dir, 0o500))
		},
		"no way to write sessions": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "sessions"), 0o500), os.Lchown(filepath.Join(dir, "sessions"), nobody, nobody))
		},
		"no way to write locks": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "locks"), 0o500), os.Lchown(filepath.Join(dir, "locks"), nobody, nobody))
		},
	} {
		for _, tt := range []struct {
			left time.Duration
			kind string
		}{{-time.Hour, "not writable"}, {30 * time.Second, ""}} {
			t.Run(fmt.Sprintf("%s, %s left", name, tt.left), func(t *testing.T) {
				g, own := nobodysGround(t, s, in(tt.left))
				own()
				if err := forbid(g.dir); err != nil {
					t.Fatal(err)
				}
				before, posts := bytesOf(t, storePath(g.dir)), s.Counters().TokenPosts
				r, w := asNobody(t, g.token())
				if r.Kind != tt.kind || tt.kind == "" && r.Token != fingerprintOf(storeOf(t, g.dir)[box], "accessJwt") {
					t.Errorf("%+v", r)
				}
				if said := w.err.String() + r.Err; !strings.Contains(said, "no refresh was attempted") {
					t.Errorf("said: %q", said)
				}
				if bytesOf(t, storePath(g.dir)) != before || s.Counters().TokenPosts != posts {
					t.Error("the store has changed, or something was sent")
				}
				g.noLeak(t, w)
			})
		}
	}
}

// A store of another owner is refused.
func TestAStoreOfSomebodyElseIsRefused(t *testing.T) {
	s := server(t, spendoncetest.TokenServerConfig{})
	g, own := nobodysGround(t, s, in(time.Hour))
	own()
	if err := errors.Join(os.Lchown(storePath(g.dir), 0, 0), os.Chmod(storePath(g.dir), 0o644)); err != nil {
		t.Fatal(err)
	}
	if r, _ := asNobody(t, g.token()); r.Token != "" || !strings.Contains(r.Err, "belongs to user 0") {
		t.Errorf("%+v", r)
	}
}

// B23: nothing depends on process numbers, so two pid namespaces are as one.
func TestStormOfTwoProcessNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a pid namespace")
	}
	inside := func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID} }
	s := server(t, spendoncetest.TokenServerConfig{ReuseGrace: 30 * time.Second, Latency: 20 * time.Millisecond})
	for range chosen(50, 3, 1) {
		g := newGround(t, s)
		before := s.Counters()
		one, openOne := startAllWith(t, inside, times(4, g.token())...)
		two, openTwo := startAll(t, times(4, g.token())...)
		openOne()
		openTwo()
		for i, w := range append(one, two...) {
			if r := w.report(t); r.Err != "" || r.Token != fingerprintOf(storeOf(t, g.dir)[box], "accessJwt") {
				t.Errorf("process %d: %+v", i, r)
			}
		}
		if n := s.Counters().TokenPosts - before.TokenPosts; n != 1 {
			t.Errorf("%d requests", n)
		}
		g.settled(t)
	}
	// One that is killed in the other namespace is succeeded at once.
	g := newGround(t, s)
	if err := s.Hold(spendoncetest.After); err != nil {
		t.Fatal(err)
	}
	j := g.token()
	j.StaleAfter = stale
	dying, open := startAllWith(t, inside, j)
	open()
	if err := s.WaitForHeld(context30(t), spendoncetest.After, 1); err != nil {
		t.Fatal(err)
	}
	_ = dying[0].cmd.Process.Kill()
	if !dying[0].killed(t) {
		t.Error("it was not killed")
	}
	if err := s.Release(spendoncetest.After); err != nil {
		t.Fatal(err)
	}
	recovered(t, step{}, run(t, j)[0])
	g.settled(t)
}
