//go:build linux

package ledger_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

func newID() secret.Secret {
	f := make([]byte, 0, 43)
	b := make([]byte, 42)
	if _, err := io.ReadFull(randomSource(), b); err != nil {
		panic(err)
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, c := range b {
		f = append(f, letters[c%64])
	}
	return secret.New(string(append(f, 'A')))
}

func TestTheFirstFileIsMadeBeforeAnybodyIsServed(t *testing.T) {
	path := t.TempDir()
	open(t, path, ledger.Config{})
	want := `{"version":1,"boot_id":"` + thisBoot + `","sessions":[],"tokens":[]}` + "\n"
	if got := contentOf(t, stateFile(path)); got != want {
		t.Errorf("the file holds %q", got)
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{ledger.StateFile, ledger.LockFile}) {
		t.Errorf("%q stand in the directory", got)
	}
}

func TestAnUnchangedStateIsNotWrittenAgain(t *testing.T) {
	path := t.TempDir()
	write(t, stateFile(path), goodFile())
	before, err := durable.LookAt(stateFile(path))
	must(t, err)
	open(t, path, ledger.Config{})
	if after, err := durable.LookAt(stateFile(path)); err != nil || after != before {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
}

func TestAnotherBootDropsEverything(t *testing.T) {
	path := t.TempDir()
	write(t, stateFile(path), goodFile())
	asked := false
	l := open(t, path, ledger.Config{BootID: otherBoot, Alive: func(ledger.Session) bool { asked = true; return true }})
	if got := l.Stats(); got.Sessions != 0 || got.Pending != 0 {
		t.Errorf("%+v", got)
	}
	if asked {
		t.Error("a process of this boot was asked about one of the last")
	}
	want := `{"version":1,"boot_id":"` + otherBoot + `","sessions":[],"tokens":[]}` + "\n"
	if got := contentOf(t, stateFile(path)); got != want {
		t.Errorf("the file holds %q", got)
	}
	// The pid and the tick come back: another process, another session.
	s := register(t, l, 1, 3)
	if s.ID.Equal(secret.New(id1)) {
		t.Error("the session of the last boot came back")
	}
	wantError(t, "a token of the last boot", consumed(l, s, secret.New(token1)), ledger.ErrTokenReplay)
}

func TestTheDeadArePrunedAtStart(t *testing.T) {
	path := t.TempDir()
	write(t, stateFile(path), goodFile())
	l := open(t, path, ledger.Config{Alive: dead{anchor(1): true}.alive})
	if got := l.Stats(); got.Sessions != 1 || got.Pending != 0 {
		t.Errorf("%+v", got)
	}
	want := replaced(goodFile(), first+",", "", tokenRecord(hashOf(token1))+","+tokenRecord(hashOf(token2)), "")
	if got := contentOf(t, stateFile(path)); got != want {
		t.Errorf("the file holds %q", got)
	}
}

// A dead anchor is no doubt, and no excuse either.
func TestPruningComesAfterValidation(t *testing.T) {
	path := t.TempDir()
	bad := replaced(goodFile(), `"consumed":false`, `"consumed":true`)
	write(t, stateFile(path), bad)
	cfg := ledger.Config{BootID: thisBoot, Alive: func(ledger.Session) bool { return false }}
	_, err := ledger.Open(openDir(t, durable.Disk{}, path), cfg)
	wantError(t, "opening", err, ledger.ErrDamaged)
}

func TestWhatAtStartCannotBeCommittedServesNobody(t *testing.T) {
	for _, op := range []string{"create", "write", "fsync", "rename", "fsyncdir"} {
		for name, cfg := range map[string]ledger.Config{
			"boot drop": {BootID: otherBoot},
			"prune":     {BootID: thisBoot, Alive: dead{anchor(1): true}.alive},
		} {
			path := t.TempDir()
			write(t, stateFile(path), goodFile())
			disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
				if s.Op == op && s.Path != filepath.Join(path, ledger.LockFile) {
					return unix.EIO
				}
				return do()
			}}
			l, err := ledger.Open(openDir(t, disk, path), cfg)
			if err == nil {
				l.Close()
			}
			wantError(t, name+", "+op, err, ledger.ErrNotCommitted)
			open(t, path, cfg)
		}
	}
}

func TestLeftoversAreRemovedUnread(t *testing.T) {
	path := t.TempDir()
	write(t, stateFile(path), goodFile())
	temp := func(nonce string) string { return filepath.Join(path, "."+ledger.StateFile+"."+nonce+".tmp") }
	old, young, later := temp(strings.Repeat("A", 26)), temp(strings.Repeat("B", 26)), temp(strings.Repeat("C", 26))
	for _, name := range []string{old, young, later} {
		write(t, name, replaced(goodFile(), `"consumed":false`, `"consumed":true`))
	}
	must(t, os.Chtimes(old, time.Unix(0, 0), time.Unix(0, 0)))
	must(t, os.Chtimes(later, time.Now().Add(time.Hour), time.Now().Add(time.Hour)))
	write(t, filepath.Join(path, ".other.tmp"), "")
	f := &durabletest.Fault{}
	openOn(t, f.Disk(), path, ledger.Config{})
	if got := tempsIn(t, path); !slices.Equal(got, []string{".other.tmp"}) {
		t.Errorf("%q stand in the directory", got)
	}
	for _, s := range f.Steps() {
		if s.Op == "open" && strings.HasSuffix(s.Path, ".tmp") {
			t.Errorf("%s was opened", s.Path)
		}
	}
}

func TestASecondBrokerIsRefused(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	s := register(t, l, 1, 0)
	// flock(2) locks open files: this process may try it on itself.
	_, err := ledger.Open(openDir(t, durable.Disk{}, path), ledger.Config{BootID: otherBoot})
	wantError(t, "opening twice", err, ledger.ErrHeld)
	wantError(t, "the first", l.Authenticate(s.ID, 0), nil)
	mint(t, l, s, 1)
	reopened(t, l, path, ledger.Config{})
}

func TestAStoppedBrokerKeepsTheStateAndAKilledOneDoesNot(t *testing.T) {
	path := t.TempDir()
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), roleVariable+"=hold")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	must(t, cmd.Process.Signal(unix.SIGSTOP))
	dir := openDir(t, durable.Disk{}, path)
	_, err = ledger.Open(dir, ledger.Config{BootID: thisBoot})
	wantError(t, "beside a stopped one", err, ledger.ErrHeld)
	must(t, cmd.Process.Kill())
	_, _ = cmd.Process.Wait()
	open(t, path, ledger.Config{})
}

// hold opens the ledger and waits to be killed.
func hold(args []string) error {
	dir, err := durable.Disk{}.OpenDir(args[0])
	if err != nil {
		return err
	}
	if _, err := ledger.Open(dir, ledger.Config{BootID: thisBoot}); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

func TestALockFileThatIsDeletedMeanwhileIsNotTrusted(t *testing.T) {
	path := t.TempDir()
	lock := filepath.Join(path, ledger.LockFile)
	deleted := 0
	deleting := func(times int) durable.Disk {
		deleted = 0
		return durable.Disk{Hook: func(s durable.Step, do func() error) error {
			if s.Op == "flock" && deleted < times {
				deleted++
				must(t, os.Remove(lock))
			}
			return do()
		}}
	}
	l := openOn(t, deleting(1), path, ledger.Config{})
	_, err := ledger.Open(openDir(t, durable.Disk{}, path), ledger.Config{BootID: thisBoot})
	wantError(t, "a second one", err, ledger.ErrHeld)
	l.Close()
	_, err = ledger.Open(openDir(t, deleting(1000), path), ledger.Config{BootID: thisBoot})
	wantError(t, "deleted again and again", err, ledger.ErrUnsafe)
}

func TestWithoutKernelLocksNothingIsServed(t *testing.T) {
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op == "flock" {
			return unix.ENOLCK
		}
		return do()
	}}
	_, err := ledger.Open(openDir(t, disk, t.TempDir()), ledger.Config{BootID: thisBoot})
	wantError(t, "opening", err, ledger.ErrUnsafe)
}

func TestALockThatFailsOtherwiseServesNobody(t *testing.T) {
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op == "flock" {
			return unix.EIO
		}
		return do()
	}}
	path := t.TempDir()
	l, err := ledger.Open(openDir(t, disk, path), ledger.Config{BootID: thisBoot})
	if err == nil {
		l.Close()
	}
	if !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	open(t, path, ledger.Config{}) // and it let go
}
