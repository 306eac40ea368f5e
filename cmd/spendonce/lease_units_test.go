//go:build linux

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
