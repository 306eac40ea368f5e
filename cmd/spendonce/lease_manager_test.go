//go:build linux

package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// activated is the program as a service manager starts it: it has listeners as
// descriptors from 3 on, and says how it fares at a socket of the manager's.
type activated struct {
	*process
	notes *net.UnixConn
}

// socketUnit is what a manager makes of a socket unit.
func (r *realm) socketUnit(path string, option int) *os.File {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return c.Control(func(fd uintptr) {
			if option != 0 {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1)
			}
		})
	}}
	l, err := config.Listen(r.t.Context(), "unix", path)
	must(r.t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	f, err := l.(*net.UnixListener).File()
	must(r.t, err)
	must(r.t, l.Close())
	must(r.t, os.Chmod(path, 0o600))
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (r *realm) activate(files []*os.File, args ...string) *activated {
	r.t.Helper()
	notify := filepath.Join(r.dir, "notify")
	notes, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	must(r.t, err)
	r.t.Cleanup(func() {
		_ = notes.Close()
		_ = os.Remove(notify)
	})
	p := r.shell(fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d WATCHDOG_PID=$$ exec spendonce lease serve "$@"`, len(files)), args...)
	p.Env = append(p.Env, "NOTIFY_SOCKET="+notify, "WATCHDOG_USEC=40000")
	p.ExtraFiles = files
	return &activated{r.begin(p), notes}
}

// note is the next thing the manager is told.
func (a *activated) note() string {
	a.h.t.Helper()
	must(a.h.t, a.notes.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 1024)
	n, err := a.notes.Read(buf)
	if err != nil {
		a.h.t.Fatalf("the manager was told nothing: %v; %s", err, a.err.String())
	}
	return string(buf[:n])
}

func TestAManagersSocketIsServedAndTheManagerIsTold(t *testing.T) {
	r := newRealm(t)
	f := r.socketUnit(r.socket, unix.SO_PASSCRED)
	a := r.activate([]*os.File{f})
	if got := a.note(); got != "READY=1" {
		t.Fatalf("first it was told %q", got)
	}
	if got := r.ok(r.command("lease", "run", "--no-start", "--", "spendonce", "lease", "auth")); !strings.HasPrefix(got, `{"ok":true`) {
		t.Errorf("auth said %q", got)
	}
	if st := r.status(); st.PID != a.Process.Pid || st.Socket != r.socket {
		t.Errorf("status is %+v", st)
	}
	for range 3 {
		if got := a.note(); got != "WATCHDOG=1" {
			t.Fatalf("it was told %q", got)
		}
	}
	must(t, a.Process.Signal(unix.SIGTERM))
	got := a.note()
	for got == "WATCHDOG=1" {
		got = a.note()
	}
	if got != "STOPPING=1" {
		t.Errorf("last it was told %q", got)
	}
	if code, _ := a.end(); code != 0 {
		t.Errorf("it ended with %d: %s", code, a.err.String())
	}
	// The socket is the manager's, and goes on.
	if _, err := os.Lstat(r.socket); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
	if code, _, talk := r.finish(r.command("lease", "status")); code != 10 {
		t.Errorf("status ended with %d: %s", code, talk)
	}
}

// A request that comes while the broker is not there waits in the socket.
func TestARequestWaitsForTheBrokerThatTheManagerStarts(t *testing.T) {
	r := newRealm(t)
	f := r.socketUnit(r.socket, unix.SO_PASSCRED)
	p := r.begin(r.command("lease", "run", "--no-start", "--", "true"))
	r.eventually("it has connected", func() bool {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
		n, _ := unix.Poll(fds, 0)
		return n == 1
	})
	a := r.activate([]*os.File{f})
	if code, _ := p.end(); code != 0 {
		t.Errorf("it ended with %d: %s", code, p.err.String())
	}
	must(t, a.Process.Signal(unix.SIGTERM))
	_, _ = a.end()
}

func TestAManagersSocketMustBeFit(t *testing.T) {
	other := func(r *realm) string { return filepath.Join(r.dir, "run/spendonce/other.sock") }
	for name, tt := range map[string]struct {
		files func(*realm) []*os.File
		want  string
	}{
		"no credentials": {func(r *realm) []*os.File { return []*os.File{r.socketUnit(r.socket, 0)} }, "PassCredentials=yes"},
		"security labels": {func(r *realm) []*os.File {
			f := r.socketUnit(r.socket, unix.SO_PASSCRED)
			must(r.t, unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PASSSEC, 1))
			return []*os.File{f}
		}, "PassSecurity"},
		"another path": {func(r *realm) []*os.File { return []*os.File{r.socketUnit(other(r), unix.SO_PASSCRED)} }, "the service manager's socket is "},
		"two": {func(r *realm) []*os.File {
			return []*os.File{r.socketUnit(r.socket, unix.SO_PASSCRED), r.socketUnit(other(r), unix.SO_PASSCRED)}
		}, "handed over 2 sockets, and a broker serves one"},
		"no socket": {func(r *realm) []*os.File {
			f, err := os.Open("/dev/null")
			must(r.t, err)
			return []*os.File{f}
		}, "unfit inherited socket"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRealm(t)
			a := r.activate(tt.files(r))
			code, _ := a.end()
			if code != 1 && code != 2 && code != 6 {
				t.Errorf("it ended with %d", code)
			}
			if talk := a.err.String(); !strings.Contains(talk, tt.want) || strings.Count(talk, "\n") != 1 {
				t.Errorf("it said %q", talk)
			}
		})
	}
}

// What is meant for another process is not for us.
func TestListenersOfAnotherProcessAreNotTaken(t *testing.T) {
	r := newRealm(t)
	p := r.shell(`LISTEN_PID=1 LISTEN_FDS=1 exec spendonce lease serve`)
	p.ExtraFiles = []*os.File{r.socketUnit(filepath.Join(r.dir, "run/spendonce/other.sock"), 0)}
	r.begin(p)
	r.awaitTalk(p, "the broker listens at "+r.socket)
	must(t, p.Process.Signal(unix.SIGTERM))
	if code, _ := p.end(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// A starter's pipe is believed only where it is one.
func TestAForeignReadyVariableClosesNothing(t *testing.T) {
	r := newRealm(t)
	p := r.shell(`SPENDONCE_READY_FD=3 exec spendonce lease serve 3</dev/null`)
	r.begin(p)
	r.awaitTalk(p, "the broker listens at "+r.socket)
	r.ok(r.command("lease", "run", "--", "spendonce", "lease", "auth"))
	must(t, p.Process.Signal(unix.SIGTERM))
	if code, _ := p.end(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// verify asks systemd what it thinks of the units that are in a directory.
func (r *realm) verify(dir string) string {
	r.t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Geteuid() == 0 {
			r.t.Fatal("systemd-analyze is not installed: make test-needs does that")
		}
		r.t.Skip("systemd-analyze is not installed")
	}
	p := r.command()
	p.Path, p.Args = analyze, []string{"systemd-analyze", "verify", "--user", "--man=no",
		filepath.Join(dir, "spendonce-broker.socket"), filepath.Join(dir, "spendonce-broker.service")}
	code, out, talk := r.finish(p)
	return strings.TrimSpace(fmt.Sprintf("%d %s%s", code, out, talk))
}

func TestSystemdTakesTheUnits(t *testing.T) {
	for name, place := range map[string]string{
		"plain":             "plain",
		"with spaces":       "a b  c",
		"specifiers":        "100%h %%",
		"variables":         "$HOME ${PATH} $$",
		"quotes":            `it's "so" \x41\` + "x",
		"not ASCII":         "größe",
		"looks like a list": "a;b ; c",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRealm(t)
			dir := filepath.Join(r.dir, place)
			must(t, os.Mkdir(dir, 0o700))
			// systemd-analyze looks whether the program is there; it takes none
			// with a quote in its path.
			program := r.bin
			if !strings.ContainsAny(place, `'"\\`) {
				program = filepath.Join(dir, "spend once")
				r.ok(r.shell(`cp "$1" "$2"`, r.bin, program))
			}
			p := r.command("lease", "install", "--user", "--socket", filepath.Join(dir, "s.sock"), "--state-dir", filepath.Join(dir, "state"))
			p.Path = program
			code, _, talk := r.finish(p)
			if code != 1 || !strings.Contains(talk, "the units are in place") {
				t.Fatalf("install ended with %d: %s", code, talk)
			}
			if got := r.verify(filepath.Join(r.dir, "config/systemd/user")); got != "0" {
				t.Errorf("systemd says: %s", got)
			}
		})
	}
}

func TestAProgramThatSystemdWouldNotRunIsNotInstalled(t *testing.T) {
	r := newRealm(t)
	for _, name := range []string{`a"b`, `a'b`, `a\b`} {
		program := filepath.Join(r.dir, name)
		r.ok(r.shell(`cp "$1" "$2"`, r.bin, program))
		p := r.command("lease", "install", "--print")
		p.Path = program
		if code, _, talk := r.finish(p); code != 2 || !strings.Contains(talk, "systemd runs no command whose path has a quote or a backslash") {
			t.Errorf("%s: install ended with %d: %s", name, code, talk)
		}
	}
}

func TestSystemdsComplaintsAreSeen(t *testing.T) {
	r := newRealm(t)
	code, _, talk := r.finish(r.command("lease", "install", "--user"))
	if code != 1 {
		t.Fatal(code, talk)
	}
	dir := filepath.Join(r.dir, "config/systemd/user")
	service := filepath.Join(dir, "spendonce-broker.service")
	text, err := os.ReadFile(service)
	must(t, err)
	for _, change := range [][2]string{
		{"ExecStart=\"", "ExecStart=\"/nowhere"},
		{"SystemCallFilter=@system-service", "SystemCallFilter=@no-such-group"},
		{"Type=notify", "Type=no-such-type"},
		{"NoNewPrivileges=", "NoSuchSetting="},
	} {
		must(t, os.WriteFile(service, []byte(strings.Replace(string(text), change[0], change[1], 1)), 0o600))
		if got := r.verify(dir); got == "0" {
			t.Errorf("%s: nothing", change[1])
		}
	}
}

// What the broker does in order to know its callers must be in the filter of
// the service.
func TestTheServicesFilterHasWhatTheBrokerNeeds(t *testing.T) {
	r := newRealm(t)
	p := r.command()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		r.verify("")
	}
	p.Path, p.Args = analyze, []string{"systemd-analyze", "syscall-filter"}
	allowed := map[string]bool{}
	groups := map[string][]string{}
	group := ""
	for line := range strings.Lines(r.ok(p)) {
		if word := strings.TrimSpace(line); strings.HasPrefix(line, "@") {
			group = word
		} else if word != "" && !strings.HasPrefix(word, "#") {
			groups[group] = append(groups[group], word)
		}
	}
	var add func(group string)
	add = func(group string) {
		for _, call := range groups[group] {
			if strings.HasPrefix(call, "@") {
				add(call)
			}
			allowed[call] = true
		}
	}
	for line := range strings.Lines(r.ok(r.command("lease", "install", "--print"))) {
		if filter, ok := strings.CutPrefix(line, "SystemCallFilter="); ok {
			add(strings.TrimSpace(filter))
		}
	}
	trace := filepath.Join(r.dir, "trace")
	serve := r.shell(`exec strace -f -qq -c -U name -o "$1" spendonce lease serve`, trace)
	r.begin(serve)
	r.awaitTalk(serve, "the broker listens")
	out := r.ok(r.shell(`exec spendonce lease run --stay -- sh -c 'kill -USR1 $PPID
		until [ "$(cat "$SPENDONCE_GENERATION_FILE")" = 1 ]; do :; done
		echo "$0" | spendonce lease mint | spendonce lease consume; spendonce lease why $$ >/dev/null' ` +
		`'{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}'`))
	if !strings.Contains(out, "sha") && !strings.Contains(out, "h_source") {
		t.Fatalf("the session said %q", out)
	}
	r.status()
	must(t, stopBroker(r.socket))
	if code, _ := serve.end(); code != 0 {
		t.Fatalf("it ended with %d: %s", code, serve.err.String())
	}
	b, err := os.ReadFile(trace)
	must(t, err)
	used := 0
	for line := range strings.Lines(string(b)) {
		call := strings.TrimSpace(line)
		if call == "" || strings.HasPrefix(call, "-") || call == "syscall" || call == "total" {
			continue
		}
		used++
		if !allowed[call] {
			t.Errorf("the broker calls %s, which the filter of its service does not allow", call)
		}
	}
	if used < 20 || !strings.Contains(string(b), "pidfd_open") && !strings.Contains(string(b), "getsockopt") {
		t.Errorf("the trace shows only %d calls:\n%s", used, b)
	}
}
