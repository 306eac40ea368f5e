//go:build linux

package doctorcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/lease"
	"github.com/spendonce/spendonce/spendoncetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place makes a runtime directory and a state directory, and points the
// environment at the first. Names are short: sockets are in it.
func place(t *testing.T) (socket, state string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "look") //nolint:usetesting // its name has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("SPENDONCE_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	state = filepath.Join(dir, "home", "state")
	must(t, os.MkdirAll(filepath.Join(dir, "run", "spendonce"), 0o700))
	must(t, os.MkdirAll(state, 0o700))
	return filepath.Join(dir, "run", "spendonce", "broker.sock"), state
}

// saidHere is what is said of the broker half as it is seen here, without
// what this machine's kernel lacks.
func saidHere(b brokerSight) string {
	b.kernel = serving().kernel
	s := with(b)
	s.around.uid = os.Geteuid()
	s.report.State.Facts.UID = uint32(os.Geteuid())
	s.report.Beside, s.report.Sessions, s.report.Locks = s.report.State, s.report.State, s.report.State
	return said(s)
}

func TestALookSeesABrokerThatRuns(t *testing.T) {
	b, err := spendoncetest.StartBroker(spendoncetest.BrokerConfig{})
	must(t, err)
	defer b.Close()
	t.Setenv("SPENDONCE_SOCKET", b.Socket())
	ctx, client := t.Context(), b.Client()
	session, err := client.RegisterAnchor(ctx, 3)
	must(t, err)
	binding := lease.Binding{HSource: "a", HPayload: "b", SchemaVersion: 1}
	_, err = client.Mint(ctx, session, binding)
	must(t, err)
	if err := client.Authenticate(ctx, lease.Session{ID: session.ID, Generation: 2}); !errors.Is(err, lease.ErrGenerationStale) {
		t.Fatal(err)
	}
	token, err := client.Mint(ctx, session, binding)
	must(t, err)
	_, err = client.Consume(ctx, session, token)
	must(t, err)
	if _, err = client.Consume(ctx, session, token); !errors.Is(err, lease.ErrTokenReplay) {
		t.Fatal(err)
	}

	got := lookAtBroker(ctx, b.StateDir())
	r := got.running
	if r == nil || r.pid != os.Getpid() || r.pending != 1 || r.spent != 1 || r.elsewhere || r.inDoubt || time.Since(r.since).Abs() > time.Minute {
		t.Fatalf("running: %+v, %v", r, got.runErr)
	}
	if len(r.sessions) != 1 || r.sessions[0].AnchorPID != os.Getpid() || r.sessions[0].Generation != 3 || r.sessions[0].Pending != 1 || r.sessions[0].Command == "" || r.sessions[0].Session == "" {
		t.Errorf("sessions: %+v", r.sessions)
	}
	if r.refusal == nil || r.refusal.Code != "TOKEN_REPLAY" || r.refusal.Action != "consume_token" || r.refusal.PID != os.Getpid() {
		t.Errorf("last refusal: %+v", r.refusal)
	}
	if h := got.holders(); len(got.locks) != 2 || len(h) != 1 || h[0].by.PID != os.Getpid() {
		t.Errorf("locks: %+v", got.locks)
	}
	if !got.named || got.fallback || !got.state.exists || got.state.facts.Size == 0 || !got.file.exists {
		t.Errorf("%+v", got)
	}
	if text := saidHere(got); text != "" {
		t.Error(text)
	}

	if !lookAtBroker(ctx, t.TempDir()).running.elsewhere {
		t.Error("its state is taken for that of another directory")
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(b.StateDir(), link))
	if lookAtBroker(ctx, link).running.elsewhere {
		t.Error("its state is not known by another name")
	}

	must(t, b.Stop())
	if got := lookAtBroker(ctx, b.StateDir()); got.running != nil || !got.absent || len(got.locks) != 2 || len(got.holders()) != 0 {
		t.Errorf("after it ended: %+v", got)
	}
}

// everything is all that can be told of the files below dirs.
func everything(t *testing.T, dirs ...string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range dirs {
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err == nil {
				err = unix.Lstat(path, &st)
			}
			fmt.Fprintln(&all, path, st.Ino, st.Mode, st.Nlink, st.Size, st.Mtim, st.Ctim)
			return err
		}))
	}
	return all.String()
}

func TestALookChangesNothingAndKeepsNoDescriptor(t *testing.T) {
	b, err := spendoncetest.StartBroker(spendoncetest.BrokerConfig{})
	must(t, err)
	defer b.Close()
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(names)
	}
	_, emptyState := place(t)
	lookAtBroker(t.Context(), emptyState) // what the runtime opens once is open
	for _, c := range []struct{ socket, state string }{{"", emptyState}, {b.Socket(), b.StateDir()}} {
		t.Setenv("SPENDONCE_SOCKET", c.socket)
		dirs := []string{emptyState, os.Getenv("XDG_RUNTIME_DIR"), filepath.Dir(b.Socket())}
		before, descriptors := everything(t, dirs...), open()
		for range 20 {
			lookAtBroker(t.Context(), c.state)
		}
		if after := everything(t, dirs...); after != before {
			t.Errorf("something was changed:\n%s\nbefore:\n%s", after, before)
		}
		if n := open(); n > descriptors+5 { // the broker of this process may just be serving
			t.Errorf("%d descriptors are open, before %d", n, descriptors)
		}
	}
}

// A connection to the socket that requests go to may start a broker.
func TestALookAsksOnlyTheControlSocket(t *testing.T) {
	socket, state := place(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	must(t, err)
	defer l.Close()
	must(t, os.Chmod(socket, 0o600))
	got := lookAtBroker(t.Context(), state)
	if !got.absent || !got.file.exists {
		t.Errorf("%+v", got)
	}
	if text := saidHere(got); !strings.Contains(text, "note broker.running no broker is running at "+socket+", where the socket is that of a service manager") {
		t.Error(text)
	}
	must(t, l.SetDeadline(time.Unix(1, 0)))
	if c, err := l.Accept(); err == nil {
		c.Close()
		t.Error("it was connected to")
	}
}

func TestALookGivesUpOnABrokerThatDoesNotAnswer(t *testing.T) {
	socket, state := place(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(filepath.Dir(socket), "control.sock"), Net: "unix"})
	must(t, err)
	defer l.Close()
	start := time.Now()
	got := lookAtBroker(t.Context(), state)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if got.running != nil || got.runErr == nil || got.absent {
		t.Errorf("%+v", got)
	}
	if text := saidHere(got); !strings.HasPrefix(text, "error broker.running the broker at "+socket+" gives no answer") {
		t.Error(text)
	}
}

func TestALookSeesWhatABrokerWouldRefuse(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, socket, state string)
		want  string
	}{
		{"nothing", func(*testing.T, string, string) {}, ""},
		{"nothing there", func(t *testing.T, socket, state string) {
			must(t, os.RemoveAll(filepath.Dir(socket)))
			must(t, os.RemoveAll(state))
		}, ""},
		{"others may enter the socket's directory", func(t *testing.T, socket, _ string) {
			must(t, os.Chmod(filepath.Dir(socket), 0o750))
		}, "warning broker.directory no broker starts with this directory of the socket"},
		{"others may write to the state directory", func(t *testing.T, _, state string) {
			must(t, os.Chmod(state, 0o770))
		}, "warning broker.directory no broker starts with this state directory"},
		{"others may rename the state directory", func(t *testing.T, _, state string) {
			must(t, os.Chmod(filepath.Dir(state), 0o777))
		}, "warning broker.directory no broker starts with this state directory"},
		{"a file in the socket's place", func(t *testing.T, socket, _ string) {
			must(t, os.WriteFile(socket, nil, 0o600))
		}, "error broker.socket " + "broker.sock is no socket"},
		{"a loose state file", func(t *testing.T, _, state string) {
			must(t, os.WriteFile(filepath.Join(state, "broker-state.json"), []byte("{}"), 0o644))
		}, "error broker.state broker-state.json has mode 0644"},
		{"a linked state file", func(t *testing.T, _, state string) {
			must(t, os.Symlink("nowhere", filepath.Join(state, "broker-state.json")))
		}, "error broker.state broker-state.json is no regular file"},
		{"a state file with two names", func(t *testing.T, _, state string) {
			must(t, os.WriteFile(filepath.Join(state, "broker-state.json"), []byte("{}"), 0o600))
			must(t, os.Link(filepath.Join(state, "broker-state.json"), filepath.Join(state, "copy")))
		}, "error broker.state broker-state.json has 2 names"},
		{"a FIFO for an audit log", func(t *testing.T, _, state string) {
			must(t, unix.Mkfifo(filepath.Join(state, "broker-audit.log"), 0o600))
		}, "warning broker.audit broker-audit.log is no regular file"},
		{"a large audit log", func(t *testing.T, _, state string) {
			path := filepath.Join(state, "broker-audit.log")
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, os.Truncate(path, 9<<20))
		}, "warning broker.audit broker-audit.log has 9437184 bytes"},
		{"a directory for a lock", func(t *testing.T, socket, _ string) {
			must(t, os.Mkdir(socket+".lock", 0o700))
		}, "warning broker.lock the lock broker.sock.lock cannot be used"},
		{"a path that is too long", func(t *testing.T, _, _ string) {
			t.Setenv("SPENDONCE_SOCKET", "/"+strings.Repeat("l", 107))
		}, "error broker.path no path for a socket"},
		{"a path that is not absolute", func(t *testing.T, _, _ string) {
			t.Setenv("SPENDONCE_SOCKET", "broker.sock")
		}, `error broker.path no path for a socket: "broker.sock" is not absolute`},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket, state := place(t)
			c.spoil(t, socket, state)
			got := lookAtBroker(t.Context(), state)
			text := strings.NewReplacer(filepath.Dir(socket)+"/", "", state+"/", "").Replace(saidHere(got))
			lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "note broker.running no broker is running") })
			if first := strings.Join(lines, "\n"); !strings.HasPrefix(first, c.want) || c.want == "" && first != "" || len(lines) > 1 {
				t.Errorf("said\n%s\nwanted %q", text, c.want)
			}
		})
	}
}

func TestWithoutARuntimeDirectoryTheStateDirectoryIsJudgedAsBoth(t *testing.T) {
	_, state := place(t)
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("SPENDONCE_STATE_DIR", state)
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d", os.Geteuid())); err == nil {
		if got := lookAtBroker(t.Context(), state); got.fallback {
			t.Errorf("%+v", got)
		}
		return
	}
	must(t, os.Chmod(state, 0o750)) // good enough for a state alone
	got := lookAtBroker(t.Context(), state)
	if !got.fallback || got.socket != filepath.Join(state, "broker.sock") || len(got.dirs) != 1 || got.dirs[0].err == nil {
		t.Errorf("%+v", got)
	}
}

func TestOnlyOptionsThatHideOurOwnProcessesCount(t *testing.T) {
	line := func(options string) string {
		return "22 1 8:1 / / rw - ext4 /dev/sda rw\n85 67 0:40 / /proc rw,nosuid shared:12 - proc proc " + options + "\n"
	}
	for _, c := range []struct {
		mounts string
		uid    int
		want   string
	}{
		{"", 1000, ""},
		{line("rw"), 1000, ""},
		{line("rw,hidepid=0"), 1000, ""},
		{line("rw,hidepid=off"), 1000, ""},
		{line("rw,hidepid=2"), 1000, "2"},
		{line("rw,hidepid=noaccess"), 1000, "noaccess"},
		{line("rw,hidepid=invisible"), 0, ""},
		{line("rw,gid=100,hidepid=invisible"), 1000, ""},
		{line("rw,gid=101,hidepid=invisible"), 1000, "invisible"},
		{line("rw,gid=100,hidepid=ptraceable"), 1000, "ptraceable"},
		{line("rw,gid=100,hidepid=4"), 1000, "4"},
		{line("rw,hidepid=2") + line("rw"), 1000, ""}, // the last one is on top
		{line("rw") + line("rw,hidepid=2"), 1000, "2"},
		{"85 67 0:40 / /other rw - proc proc rw,hidepid=2\n", 1000, ""},
	} {
		if got := hiding(c.mounts, c.uid, []int{7, 100}); got != c.want {
			t.Errorf("%d: %q of\n%s", c.uid, got, c.mounts)
		}
	}
}

func TestThisKernelIsSeenAsItIs(t *testing.T) {
	k := lookAtKernel()
	var major, minor int
	if n, err := fmt.Sscanf(k.release, "%d.%d", &major, &minor); n != 2 {
		t.Fatalf("release %q: %v", k.release, err)
	}
	since := func(a, b int) bool { return major > a || major == a && minor >= b }
	if since(5, 3) && !k.pidfds || since(6, 5) && !k.peerPidfds {
		t.Errorf("%+v", k)
	}
	if p := lookAtProc(); p.err != nil {
		t.Errorf("%+v", p)
	}
}
