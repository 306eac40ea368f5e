//go:build linux

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wrappers are the two ways to run a command as an anchor's program.
var wrappers = map[string]string{"in place": "spendonce lease run --", "beside": "spendonce lease run --stay --"}

// TestTheCommandStartsAsItWouldWithoutUs compares what a command sees of
// itself with and without us, where a broker runs and where it has to be
// started.
func TestTheCommandStartsAsItWouldWithoutUs(t *testing.T) {
	for name, script := range map[string]string{
		"limits":                   `ulimit -Sn 333; ulimit -Sc 0; exec $1 cat /proc/self/limits`,
		"signals":                  `exec env --ignore-signal=HUP --ignore-signal=INT --ignore-signal=TTOU --block-signal=USR2 --block-signal=WINCH $1 grep -E '^Sig(Ign|Blk)|^Shd' /proc/self/status`,
		"signals of a shell's job": `exec $1 grep -E '^Sig(Ign|Blk)' /proc/self/status`,
		"descriptors":              `exec 7</dev/zero 9>>kept; exec $1 sh -c 'for fd in /proc/self/fd/*; do echo "${fd##*/} $(readlink "$fd")"; done | sed "s/pipe:.*/pipe/;/ \/proc\//d"' 2>/dev/null`,
		"directory":                `cd /usr; exec $1 pwd`,
		"mask":                     `umask 027; exec $1 sh -c umask`,
		"name":                     `exec $1 sh -c 'tr "\0" " " </proc/$$/cmdline; cat /proc/$$/comm'`,
		"tracing":                  `exec $1 grep -E '^(NoNewPrivs|Seccomp|CapEff|Uid|Gid|Groups|THP_enabled|Speculation)' /proc/self/status`,
		"dumpable":                 `exec $1 stat -c %u:%a /proc/self/environ`,
		"environment":              `exec env -i PATH="$PATH" HOME="$HOME" SPENDONCE_STATE_DIR="$SPENDONCE_STATE_DIR" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" A=b $1 env | grep -v '^SPENDONCE_\(SOCKET\|SESSION_ID\|GENERATION\|GENERATION_FILE\)='`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRealm(t)
			plain := r.ok(r.shell(script, ""))
			if plain == "" {
				t.Fatal("the script shows nothing")
			}
			for _, broker := range []string{"starting a broker", "beside a broker"} {
				for how, wrapper := range wrappers {
					if got := r.ok(r.shell(script, wrapper)); got != plain {
						t.Errorf("%s, %s, it is\n%s\nand without us\n%s", how, broker, got, plain)
					}
				}
				if broker == "starting a broker" {
					must(t, stopBroker(r.socket))
				}
			}
		})
	}
}

// A closed standard stream becomes /dev/null, so that nothing else that is
// opened later can take its number.
func TestClosedStreamsAreNobodys(t *testing.T) {
	for how, wrapper := range wrappers {
		t.Run(how, func(t *testing.T) {
			r := newRealm(t)
			r.begin(r.shell(`exec ` + wrapper + ` sh -c 'echo $$ >pid; exec sleep 60' <&- >&- 2>&-`))
			var pid int
			r.eventually("the command runs", func() bool {
				b, _ := os.ReadFile(filepath.Join(r.dir, "pid"))
				pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
				comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				return string(comm) == "sleep\n"
			})
			if got := descriptors(t, pid); got[0] != "/dev/null" || got[1] != "/dev/null" || got[2] != "/dev/null" {
				t.Errorf("they lead to %v", got)
			}
			r.ok(r.shell(`kill $1`, strconv.Itoa(pid)))
		})
	}
}

// A background job of a script, or one under nohup, has signals ignored, and so
// must its command.
func TestIgnoredSignalsDoNotEndWhatTheyWereIgnoredFor(t *testing.T) {
	for how, wrapper := range wrappers {
		t.Run(how, func(t *testing.T) {
			r := newRealm(t)
			i := r.inside(r.shell(`exec env --ignore-signal=HUP --ignore-signal=INT ` + wrapper + ` sh -c 'echo $$ $PPID; read -r line; echo still here'`))
			pids := strings.Fields(i.next())
			for _, pid := range pids[:1] {
				r.ok(r.shell(`kill -HUP $1; kill -INT $1`, pid))
			}
			if how == "beside" {
				r.ok(r.shell(`kill -HUP $1; kill -INT $1`, pids[1]))
			}
			_, err := fmt.Fprintln(i.in)
			must(t, err)
			if line := i.next(); line != "still here" {
				t.Errorf("it said %q", line)
			}
			if code := i.leave(); code != 0 {
				t.Errorf("it ended with %d", code)
			}
		})
	}
}

// The broker that 'lease run' starts belongs to nobody: not to the command's
// tree, terminal, process group or directory, and it has nothing of the
// caller's environment and descriptors.
func TestAStartedBrokerHasNothingOfItsStarter(t *testing.T) {
	for how, wrapper := range wrappers {
		t.Run(how, func(t *testing.T) {
			r := newRealm(t)
			p := r.shell(`exec 9>kept; umask 0; exec ` + wrapper + ` sh -c 'read -r children </proc/$$/task/$$/children; echo "$$ $PPID [$children]"; read -r line'`)
			p.Env = append(p.Env, "MY_SECRET_SETTING=1", "NOTIFY_SOCKET=/nowhere", "LISTEN_FDS=1", "GODEBUG=http2debug=0", "XDG_SESSION_ID=7")
			i := r.inside(p)
			said := strings.Fields(i.next())
			if got := strings.Join(said[2:], " "); got != "[]" {
				t.Errorf("the command was born with children: %s", got)
			}
			command, err := strconv.Atoi(said[0])
			must(t, err)
			broker := r.status().PID
			above := ancestors(t, broker)
			if slices.Contains(above, command) || slices.Contains(above, p.Process.Pid) {
				t.Errorf("the broker descends from the anchor: its ancestors are %v", above)
			}
			if session := fields(t, broker)[3]; session != strconv.Itoa(broker) {
				t.Errorf("the broker is in session %s, not one of its own", session)
			}
			if tty := fields(t, broker)[4]; tty != "0" {
				t.Errorf("the broker has terminal %s", tty)
			}
			if os.Geteuid() != 0 {
				t.Skip("only root sees the rest of a process that is not dumpable")
			}
			if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", broker)); err != nil || dir != "/" {
				t.Errorf("the broker stands in %q, %v", dir, err)
			}
			environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", broker))
			must(t, err)
			if got := strings.ReplaceAll(string(environ), "\x00", " "); got != "SPENDONCE_READY_FD=3 PATH=/usr/bin:/bin " {
				t.Errorf("the broker's environment is %s", got)
			}
			for fd, to := range descriptors(t, broker) {
				ours := strings.HasPrefix(to, r.dir+"/run/spendonce") || strings.HasPrefix(to, r.state)
				if fd <= 2 && to != "/dev/null" || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, r.dir) && !ours {
					t.Errorf("the broker has descriptor %d: %s", fd, to)
				}
			}
			limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", broker))
			must(t, err)
			for line := range strings.Lines(string(limits)) {
				if words := strings.Fields(line); words[1] == "core" && (words[4] != "0" || words[5] != "0") {
					t.Errorf("the broker may dump a core: %s", line)
				}
			}
			if mask := proc(t, broker, "Umask"); mask != "0077" {
				t.Errorf("the broker's umask is %s", mask)
			}
			i.leave()
			// It outlives the command.
			if after := r.status().PID; after != broker {
				t.Errorf("the broker was %d, and then %d", broker, after)
			}
		})
	}
}

// fields are those of /proc/PID/stat behind the name: state, ppid, pgrp,
// session, tty ...
func fields(t *testing.T, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	text := string(b)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

func descriptors(t *testing.T, pid int) map[int]string {
	t.Helper()
	all := map[int]string{}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		must(t, err)
		if all[fd], err = os.Readlink(filepath.Join(dir, e.Name())); err != nil {
			delete(all, fd)
		}
	}
	return all
}

// An anchor may become another one by exec and keep what --subreaper gave it:
// the broker that the second one starts must not fall to it.
func TestAnAdoptingAnchorIsNotGivenTheBroker(t *testing.T) {
	r := newRealm(t)
	i := r.inside(r.shell(`exec spendonce lease run --subreaper --socket run/one.sock --state-dir one -- ` +
		`spendonce lease run --socket run/two.sock --state-dir two -- sh -c 'echo $$; read -r line; sh -c "sh orphan.sh \$\$ &"; read -r line <born; echo "$line"'`))
	r.write("orphan.sh", `while grep -q "^PPid:.$1$" /proc/$$/status; do :; done; grep -o "^PPid:.*" /proc/$$/status | cut -f 2 >born`)
	r.ok(r.shell("mkfifo born"))
	anchor := i.next()
	for _, socket := range []string{"run/one.sock", "run/two.sock"} {
		out := r.ok(r.command("lease", "why", "--socket", socket, anchor))
		if !strings.Contains(out, "belongs to session") {
			t.Errorf("at %s: %s", socket, out)
		}
	}
	pid, err := strconv.Atoi(anchor)
	must(t, err)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	must(t, err)
	if len(children) > 0 {
		t.Errorf("the anchor has the children %s", children)
	}
	// And it adopts as before.
	_, err = fmt.Fprintln(i.in)
	must(t, err)
	if parent := i.next(); parent != anchor {
		t.Errorf("an orphan was given to process %s, not to the anchor %s", parent, anchor)
	}
	i.leave()
}

// A member whose parent ends is a member no more, but under --subreaper.
func TestOnlyASubreaperKeepsOrphansInTheSession(t *testing.T) {
	for wrapper, want := range map[string]string{
		"spendonce lease run --":                    "9",
		"spendonce lease run --stay --":             "9",
		"spendonce lease run --subreaper --":        "0",
		"spendonce lease run --subreaper --stay --": "0",
	} {
		t.Run(wrapper, func(t *testing.T) {
			t.Parallel()
			r := newRealm(t)
			r.write("orphan.sh", `while grep -q "^PPid:.$1$" /proc/$$/status; do :; done; spendonce lease auth >auth 2>&1; echo $? >born`)
			r.ok(r.shell("mkfifo born"))
			got := r.ok(r.shell(wrapper + ` sh -c 'sh -c "sh orphan.sh \$\$ &"; read -r line <born; echo "$line"'`))
			if got != want {
				b, _ := os.ReadFile(filepath.Join(r.dir, "auth"))
				t.Errorf("the orphan's 'lease auth' ended with %s, not %s: %s", got, want, b)
			}
		})
	}
}

// The wrapper ends when its command does, and not when the last orphan does.
func TestAReaperDoesNotWaitForOrphans(t *testing.T) {
	r := newRealm(t)
	started := time.Now()
	code, _, _ := r.finish(r.shell(`exec spendonce lease run --stay --subreaper -- sh -c 'sh -c "sleep 20 </dev/null >/dev/null 2>&1 & echo \$! >sleeper"; exit 4'`))
	if code != 4 || time.Since(started) > 15*time.Second {
		t.Errorf("it ended with %d after %s", code, time.Since(started))
	}
	r.ok(r.shell(`kill $(cat sleeper)`))
}

// K11: an agent inside another is a session of its own, and cannot end or
// supersede the outer one.
func TestARunInsideARunIsASessionOfItsOwn(t *testing.T) {
	for how, wrapper := range wrappers {
		t.Run(how, func(t *testing.T) {
			r := newRealm(t)
			out := r.ok(r.shell(wrapper + ` sh -c '
				spendonce lease auth >outer
				echo "$0" | spendonce lease mint >token
				` + wrapper + ` sh -c "
					spendonce lease auth >inner
					spendonce lease consume <token; echo consume \$?
					SPENDONCE_SESSION_ID=$SPENDONCE_SESSION_ID spendonce lease auth | cmp - outer; echo outer \$?
				"
				` + strings.Replace(wrapper, " --", " --generation 5 --", 1) + ` true
				cmp -s outer inner; echo same $?
				spendonce lease auth | cmp - outer; echo outer $?
				spendonce lease consume <token >/dev/null; echo consume $?
			' '{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}'`))
			// The inner one is inside the outer tree too, and may say so.
			if want := "consume 9\nouter 0\nsame 1\nouter 0\nconsume 0"; out != want {
				t.Errorf("it said\n%s", out)
			}
		})
	}
}

// A broker that is stopped answers nobody: each command gives up, says what
// that means, and ends with exit code 10, or 125 for one that would have run
// another.
func TestAStoppedBrokerIsGivenUp(t *testing.T) {
	t.Parallel() // with its ten seconds
	r := newRealm(t)
	r.ok(r.command("lease", "serve", "--detach"))
	r.write("binding", `{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}`)
	r.write("ask.sh", `spendonce lease mint <binding >token
echo minted
read -r line
ask() { spendonce lease "$@" 2>&1; echo "$1 $?"; }
ask auth >end.1 &
ask consume <token >end.2 &
ask mint <binding >end.3 &
ask status >end.4 &
ask why 1 >end.5 &
ask run --generation 1 -- true >end.6 &
wait
cat end.*
`)
	i := r.inside(r.command("lease", "run", "--", "sh", "ask.sh"))
	i.next()
	stop(t, r.status().PID)
	_, _ = fmt.Fprintln(i.in)
	_, out := i.rest()
	for command, want := range map[string]string{
		"auth": "10", "mint": "10", "consume": "10", "status": "10", "why": "10", "run": "125",
	} {
		if !strings.Contains(out, "\n"+command+" "+want+"\n") {
			t.Errorf("%s did not end with %s", command, want)
		}
	}
	if strings.Count(out, "outcome is unknown") != 2 {
		t.Errorf("not both of mint and consume said that their outcome is unknown")
	}
	if t.Failed() {
		t.Logf("they said\n%s", out)
	}
}
