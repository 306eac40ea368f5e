//go:build crash && linux

package ledger_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// machine is an ext4 of its own, whose power can be cut: what was not
// committed to its journal is lost. (What a real disk loses besides, because it
// was in the disk's own cache, is not shown: the image is a file.)
//
// A restart is on a copy of the image: the mount of before may live on in
// somebody else's mount namespace, and nothing that happens when it is
// unmounted can help.
type machine struct {
	t      *testing.T
	image  string
	device string // "" when off
	path   string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	m := &machine{t: t, image: filepath.Join(memory(t), "image"), path: t.TempDir()}
	must(t, os.WriteFile(m.image, nil, 0o600))
	must(t, os.Truncate(m.image, 4<<20))
	m.run("mkfs.ext4", "-q", "-F", m.image)
	t.Cleanup(m.off)
	m.on()
	return m
}

func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (m *machine) on() {
	m.t.Helper()
	m.device = m.run("losetup", "-f", "--show", m.image)
	must(m.t, unix.Mount(m.device, m.path, "ext4", 0, ""))
	must(m.t, os.Chmod(m.path, 0o700))
}

func (m *machine) off() {
	m.t.Helper()
	if m.device != "" {
		must(m.t, unix.Unmount(m.path, 0))
		m.run("losetup", "-d", m.device) // at once, or when the last mount goes
		m.device = ""
	}
}

// restart goes on with what the image holds.
func (m *machine) restart() {
	m.t.Helper()
	b, err := os.ReadFile(m.image)
	must(m.t, err)
	m.off()
	must(m.t, os.Remove(m.image)) // the name; who has the old mount has the file
	must(m.t, os.WriteFile(m.image, b, 0o600))
	m.on()
}

// cut cuts the power: FS_IOC_SHUTDOWN without a flush of the log.
func (m *machine) cut() error {
	const (
		shutdown   = 0x8004587d // FS_IOC_SHUTDOWN, _IOR('X', 125, __u32)
		noLogFlush = 2
	)
	fd, err := unix.Open(m.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.IoctlSetPointerInt(fd, shutdown, noLogFlush)
}

// session opens the ledger on the machine, and returns with its power cut.
func (m *machine) session(disk durable.Disk, work func(l *ledger.Ledger)) {
	m.t.Helper()
	dir, err := disk.OpenDir(m.path)
	must(m.t, err)
	defer dir.Close()
	l, err := ledger.Open(dir, ledger.Config{BootID: thisBoot})
	must(m.t, err)
	defer l.Close() // also when work fails
	work(l)
	stop(m.t, l)
}

// restarted opens what a restart finds. The processes are those of the same
// boot: what is asked for is what the file says.
func (m *machine) restarted(look func(l *ledger.Ledger)) {
	m.t.Helper()
	m.restart()
	m.session(durable.Disk{}, look)
}

func TestAPowerCutAtAnyStepOfACommitUndoesNoOKAndRepeatsNone(t *testing.T) {
	times := chosen(40, 4, 1)
	for _, step := range commitSteps {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+step, func(t *testing.T) {
				for range times {
					m := newMachine(t)
					said := &locked{}
					at, seen := 2+rand.IntN(25), 0
					var mu sync.Mutex
					cut := false
					disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
						mu.Lock()
						if s.Op == step {
							seen++
						}
						now := s.Op == step && seen == at
						cut = cut || now
						mu.Unlock()
						if now && when == "before" {
							must(t, m.cut())
						}
						err := do()
						if now && when == "after" {
							must(t, err)
							must(t, m.cut())
							// Even a success cannot be told any more.
							return unix.EIO
						}
						return err
					}}
					m.session(disk, func(l *ledger.Ledger) {
						var wg sync.WaitGroup
						for n := range 3 {
							wg.Go(func() {
								c := &customer{l: l, n: n, out: said}
								if err := c.work(func() bool { return l.Stats().Failed > 0 || longPast(l)() }); err != nil {
									t.Error(err)
								}
							})
						}
						wg.Wait()
					})
					if !cut {
						t.Fatal("the power was never cut")
					}
					all := accounts(t, &said.b)
					m.restarted(func(l *ledger.Ledger) {
						settle(t, l, all)
						if names := tempsIn(t, m.path); len(names) > 0 {
							t.Errorf("%q are left", names)
						}
					})
				}
			})
		}
	}
}

// locked is a buffer for many.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// The power goes at the moment when a client is told ok.
func TestWhatWasAnsweredOutlivesAPowerCut(t *testing.T) {
	m := newMachine(t)
	var s ledger.Session
	var token secret.Secret
	m.session(durable.Disk{}, func(*ledger.Ledger) { must(t, m.cut()) }) // the first file is there
	for _, day := range []func(l *ledger.Ledger){
		func(l *ledger.Ledger) { s = register(t, l, 1, 3) },
		func(l *ledger.Ledger) {
			wantError(t, "the session", l.Authenticate(s.ID, 3), nil)
			token = mint(t, l, s, 1)
		},
		func(l *ledger.Ledger) { wantError(t, "consuming", consumed(l, s, token), nil) },
		func(l *ledger.Ledger) {
			wantError(t, "consuming again", consumed(l, s, token), ledger.ErrTokenReplay)
			register(t, l, 1, 4)
		},
		func(l *ledger.Ledger) {
			wantError(t, "the old generation", l.Authenticate(s.ID, 3), ledger.ErrGenerationStale)
			must(t, l.Prune(s.ID))
		},
		func(l *ledger.Ledger) {
			wantError(t, "a pruned session", l.Authenticate(s.ID, 4), ledger.ErrSessionUnknown)
		},
	} {
		m.restarted(func(l *ledger.Ledger) {
			day(l)
			must(t, m.cut())
		})
	}
}

// The machine is one that loses what is not synced: else the tests above could
// not fail.
func TestWithoutTheSyncOfTheDirectoryAPowerCutWouldMakeATokenGoodTwice(t *testing.T) {
	m := newMachine(t)
	var s ledger.Session
	var token secret.Secret
	lazy := false
	disk := durable.Disk{Hook: func(step durable.Step, do func() error) error {
		if lazy && step.Op == "fsyncdir" {
			return nil
		}
		return do()
	}}
	m.session(disk, func(l *ledger.Ledger) {
		s = register(t, l, 1, 0)
		token = mint(t, l, s, 1)
		lazy = true
		wantError(t, "consuming", consumed(l, s, token), nil)
		must(t, m.cut())
	})
	m.restarted(func(l *ledger.Ledger) { wantError(t, "consuming after the cut", consumed(l, s, token), nil) })
}

// A disk that is full, for real.
func TestOnAFullDiskNothingIsLostAndEverythingWorksAgainWithRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	path := t.TempDir()
	must(t, unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=0700"))
	t.Cleanup(func() { must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	l := open(t, path, ledger.Config{})
	s := register(t, l, 1, 0)
	token := mint(t, l, s, 1)
	filler := filepath.Join(path, "filler")
	f, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 512)); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		err := consumed(l, s, token)
		wantError(t, "consuming", err, ledger.ErrUnavailable)
		wantError(t, "consuming", err, unix.ENOSPC)
		wantError(t, "minting", onlyError(l.Mint(never, s.ID, 0, bound(2))), ledger.ErrUnavailable)
	}
	if got := l.Stats(); got.InDoubt || got.Pending != 1 {
		t.Errorf("%+v", got)
	}
	if names := tempsIn(t, path); len(names) > 0 {
		t.Errorf("%q are left", names)
	}
	must(t, os.Remove(filler))
	f.Close()
	wantError(t, "consuming with room", consumed(l, s, token), nil)
	l = reopened(t, l, path, ledger.Config{})
	wantError(t, "consuming again", consumed(l, s, token), ledger.ErrTokenReplay)
}
