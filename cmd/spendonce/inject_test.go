//go:build crash && linux

package main_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// These tests let strace make one system call of the real program fail, or
// kill the program in its place, for the first such call, the second, and so
// on until none is left.
//
// strace counts per thread, and the goroutine that refreshes moves to another
// thread while it waits for the network. So a run is cut in two there: in its
// first part the program is traced from its start, in the second strace comes
// when the server holds the answer. Whether a fault was injected is read from
// the trace, never assumed.

// part is a stretch of a command's life, in which one thread does the work.
type part struct {
	name    string
	args    []string
	prepare func(*injector)       // a new state, before each run
	check   func(*injector, *run) // what must hold after each run that met its fault
	commit  bool                  // attach while the server holds the answer
	calls   []string              // those worth a fault, if not all
}

// calls are the system calls that change the disk or decide about a lock, and
// those that read what is decided on.
var calls = []string{
	"openat", "pwrite64", "fsync", "fdatasync", "renameat", "unlinkat", "fallocate", "ftruncate", "flock", "fchmod", "read", "pread64",
}

// faults are what happens in place of a call.
var faults = []string{"signal=KILL", "error=EIO", "error=ENOSPC"}

// means reports whether the kernel has reason to answer the call so.
func means(call, fault string) bool {
	switch fault {
	case "error=ENOSPC":
		return slices.Contains([]string{"openat", "pwrite64", "fsync", "renameat", "fallocate", "ftruncate", "mkdirat"}, call)
	case "signal=KILL": // nothing happens between two reads
		return call != "read" && call != "pread64"
	}
	return true
}

// injector runs one command under strace.
type injector struct {
	*home
	dir    string // of traces
	before spendoncetest.Counters
	old    []byte // the store before the run
	table  map[string]*tally
	order  []string
	ends   map[string]int // how the runs that met an error ended
}

// tally counts one row of the table.
type tally struct {
	calls int // in a run without faults
	met   map[string]int
}

// run is one run of the command.
type run struct {
	call, fault string
	code        int    // -9 if it was killed
	out, err    string // what the program printed
	tracer      string // what strace said
	injected    []string
}

func (r *run) String() string { return fmt.Sprintf("%s in place of %q", r.fault, r.injected) }

func newInjector(t *testing.T) *injector {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can trace a process that is not dumpable")
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	h := newHome(t, spendoncetest.TokenServerConfig{ReuseGrace: 30 * time.Second})
	i := &injector{home: h, dir: t.TempDir(), table: map[string]*tally{}, ends: map[string]int{}}
	i.run("token", "work") // makes what is made once
	return i
}

// paths are what the calls are filtered by, where others make them too: the
// directories of relative names, and the files that are read.
func (i *injector) paths() []string {
	args := []string{}
	for _, name := range []string{
		"", "locks", "sessions", "remote-credentials.json", "remote-credentials.json.lock", "remote-credentials.json.lock.guard",
		"locks/work.lock", "locks/work.lock.guard", "sessions/work.json",
	} {
		args = append(args, "-P", i.state(name))
	}
	return args
}

const always = -1

// inject runs the part with a fault at the n-th call of each thread, at all
// of them, or without one if n is 0, and returns what became of it.
func (i *injector) inject(p part, call, fault string, n int) *run {
	i.t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		r := i.once(p, call, fault, n)
		if !tracerBroke(r.tracer) || try == tries {
			return r
		}
		i.endTraced()
	}
}

// tracerBroke reports whether it was strace that failed: rarely, on a busy
// machine, it takes the end of a thread for an error of its own and gives up.
// Such a run says nothing.
func tracerBroke(talk string) bool { return strings.Contains(talk, "strace: ptrace(") }

func (i *injector) trace() string { return filepath.Join(i.dir, "trace") }

// endTraced kills the program that strace may have left running.
func (i *injector) endTraced() {
	i.t.Helper()
	b, err := os.ReadFile(i.trace())
	must(i.t, err)
	first, _, _ := strings.Cut(string(b), " ")
	if pid, err := strconv.Atoi(first); err == nil {
		_ = unix.Kill(pid, unix.SIGKILL) // most likely it has ended
	}
}

func (i *injector) once(p part, call, fault string, n int) *run {
	i.t.Helper()
	for _, left := range i.left() {
		must(i.t, os.Remove(left)) // by a run whose successor needed no lock
	}
	i.renew()
	i.addRecords(map[string]any{
		"future": map[string]any{"kind": "passkey"},
		"ci":     map[string]any{"kind": "static", "token": "an-old-static-token", "note": "kept"},
	})
	if p.prepare != nil {
		p.prepare(i)
	}
	i.old, i.before = i.store(), i.server.Counters()

	args := []string{"-f", "-o", i.trace(), "-e", "trace=" + call}
	switch {
	case n > 0:
		args = append(args, "-e", fmt.Sprintf("inject=%s:%s:when=%d", call, fault, n))
	case n == always:
		args = append(args, "-e", fmt.Sprintf("inject=%s:%s", call, fault))
	}
	if slices.Contains([]string{"openat", "read", "pread64"}, call) {
		args = append(args, i.paths()...)
	}
	r := &run{call: call, fault: fault}
	if p.commit {
		i.attach(p, r, args)
	} else {
		if fault != "signal=KILL" { // which needs the slower way to stop at a call
			args = append(args, "--seccomp-bpf")
		}
		cmd := i.command()
		cmd.Path, cmd.Args = "strace", append(append(append([]string{"strace"}, args...), i.bin), p.args...)
		var err error
		cmd.Path, err = exec.LookPath("strace")
		must(i.t, err)
		must(i.t, cmd.Start())
		r.code, r.out = cmd.end()
		r.err = cmd.err.String()
		r.tracer = r.err // they share it
	}
	b, err := os.ReadFile(i.trace())
	must(i.t, err)
	r.injected = injectedIn(string(b), call, r.code == -int(unix.SIGKILL))
	if n == 0 {
		i.tally(p, call).calls = len(callsIn(string(b), call))
	}
	return r
}

// attach starts the command and lets strace come while the server holds the
// answer.
func (i *injector) attach(p part, r *run, args []string) {
	i.t.Helper()
	must(i.t, i.server.Hold(spendoncetest.After))
	cmd := i.start(p.args...)
	i.held(spendoncetest.After, 1)
	tracer := exec.Command("strace", append(args, "-p", fmt.Sprint(cmd.Process.Pid))...)
	var talk buffer
	tracer.Stderr = &talk
	must(i.t, tracer.Start())
	i.eventually("strace has attached", func() bool { return strings.Contains(talk.String(), "attached") })
	must(i.t, i.server.Release(spendoncetest.After))
	r.code, r.out = cmd.end()
	r.err = cmd.err.String()
	_ = tracer.Wait() // its own exit code says nothing
	r.tracer = talk.String()
}

// callsIn returns the lines of a trace that begin a call, without the
// thread's number. Others tell of signals, ends, and calls that strace did
// not get to see.
func callsIn(trace, call string) []string {
	var all []string
	for line := range strings.Lines(trace) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		if line = strings.TrimSpace(line); strings.HasPrefix(line, call+"(") {
			all = append(all, line)
		}
	}
	return all
}

// injectedIn returns the calls in whose place something else happened. A kill
// leaves no mark but the death of the process: the last call is the one.
func injectedIn(trace, call string, killed bool) []string {
	all := callsIn(trace, call)
	if killed && len(all) > 0 {
		return all[len(all)-1:]
	}
	var injected []string
	for line := range strings.Lines(trace) {
		if strings.Contains(line, "(INJECTED)") {
			injected = append(injected, strings.TrimSpace(line))
		}
	}
	return injected
}

func (i *injector) tally(p part, call string) *tally {
	name := p.name + "\t" + call
	if i.table[name] == nil {
		i.table[name] = &tally{met: map[string]int{}}
		i.order = append(i.order, name)
	}
	return i.table[name]
}

// sweep puts each fault in the place of each call, one at a time.
func (i *injector) sweep(p part) {
	i.t.Helper()
	share := os.Getenv("SPENDONCE_SOAK") != "1"
	if p.calls == nil {
		p.calls = calls
	}
	for _, call := range p.calls {
		clean := i.inject(p, call, "", 0)
		if clean.code != 0 || len(clean.injected) != 0 {
			i.t.Fatalf("without a fault, %s ended with %d: %s", p.name, clean.code, clean.err)
		}
		row := i.tally(p, call)
		for _, fault := range faults {
			if row.calls == 0 || !means(call, fault) {
				continue
			}
			// A share meets every call that changes something with a kill and
			// with an error.
			step := 1
			switch {
			case share && fault == "error=ENOSPC":
				step = 3
			case share && call == "read":
				step = 2
			}
			patience := 1 // the thread that works may be another one the next time
			if !share {
				patience = 3
			}
			for n := 1; n <= row.calls && patience > 0; n += step {
				r := i.inject(p, call, fault, n)
				if len(r.injected) == 0 {
					if r.code != 0 {
						i.t.Errorf("%s: nothing was injected and it ended with %d: %s", p.name, r.code, r.err)
					}
					n, patience = n-step, patience-1
					continue
				}
				row.met[fault]++
				i.judge(p, r)
			}
			if row.met[fault] == 0 {
				i.t.Errorf("%s: no %s was ever in the place of %s, which proves nothing", p.name, fault, call)
			}
		}
	}
}

// judge checks what must hold after any fault, then what the part says.
func (i *injector) judge(p part, r *run) {
	i.t.Helper()
	killed := r.code == -int(unix.SIGKILL)
	if killed != (r.fault == "signal=KILL") {
		i.t.Errorf("%s: %s: ended with %d", p.name, r, r.code)
	}
	if !killed {
		end := fmt.Sprintf("exit %d", r.code)
		if r.code != 0 && r.out != "" {
			end += " and a token"
		}
		i.ends[end]++
	}
	all := i.records() // parses, or fails
	if all["future"]["kind"] != "passkey" || p.args[1] != "ci" && (all["ci"]["token"] != "an-old-static-token" || all["ci"]["note"] != "kept") {
		i.t.Errorf("%s: %s: another record has changed", p.name, r)
	}
	i.mustHoldNoSecret(p, r)
	for _, left := range i.left() {
		name := filepath.Base(left)
		isLock := filepath.Ext(left) == ".lock"
		st, err := os.Stat(left)
		must(i.t, err)
		switch {
		case killed && isLock && st.Size() == 0:
			// Died between making and writing it: the one crash that costs the
			// full time, because nothing tells whose file it is.
			i.ageFile(left)
		case killed:
		case isLock && strings.Contains(r.err, "a lock could not be removed"):
		case r.call == "unlinkat" && strings.Contains(fmt.Sprint(r.injected), `"`+name+`"`):
		default:
			i.t.Errorf("%s: %s: %s was left; it ended with %d and said: %s", p.name, r, name, r.code, r.err)
		}
		if !isLock {
			must(i.t, os.Remove(left)) // too young for the next run to sweep
		}
	}
	p.check(i, r)
}

// left are the locks and temporary files that stand.
func (i *injector) left() []string {
	i.t.Helper()
	var left []string
	must(i.t, filepath.WalkDir(i.state(""), func(path string, _ os.DirEntry, err error) error {
		if ext := filepath.Ext(path); ext == ".lock" || ext == ".tmp" {
			left = append(left, path)
		}
		return err
	}))
	return left
}

func (i *injector) mustHoldNoSecret(p part, r *run) {
	i.t.Helper()
	values := []canary.Value{
		{Name: "old access token", Secret: i.session.AccessToken}, {Name: "old refresh token", Secret: i.session.RefreshToken},
		canary.Of("stored static token", "an-old-static-token"), canary.Of("new static token", "a-new-static-token"),
	}
	for _, member := range []string{"accessJwt", "refreshToken"} {
		if s := i.stored(member); s != "" {
			values = append(values, canary.Value{Name: "stored " + member, Secret: secret.New(s)})
		}
	}
	if p.args[0] == "token" && r.out != "" {
		values = append(values, canary.Of("printed token", r.out))
	}
	found, err := canary.Find(values, canary.Places{Outputs: map[string][]byte{"stderr": []byte(r.err)}})
	must(i.t, err)
	for _, f := range found {
		i.t.Errorf("%s: %s: %v", p.name, r, f)
	}
}

// since is what the server has counted since the run began.
func (i *injector) since() (posts, doubleSpends, replays, revoked int) {
	a, b := i.before, i.server.Counters()
	return b.TokenPosts - a.TokenPosts, b.DoubleSpends - a.DoubleSpends, b.GraceReplays - a.GraceReplays, b.FamiliesRevoked - a.FamiliesRevoked
}

// checkToken: the session survives every single fault, and its token is sent
// again only if the first sender died before it could save the answer.
func checkToken(i *injector, r *run) {
	i.t.Helper()
	killed := r.fault == "signal=KILL"
	sentByRun, _, _, _ := i.since()
	stored, isOld := i.stored("refreshToken"), bytes.Equal(i.store(), i.old)
	if !isOld && !i.server.Spendable(stored) {
		i.t.Errorf("%s: the store holds neither the old nor the new record", r)
	}
	notSaved := false
	switch {
	case killed:
	case r.code == 0:
		if !i.server.Live(r.out) || i.stored("accessJwt") != r.out {
			i.t.Errorf("%s: ended with 0 and its token is not live or not stored", r)
		}
	case r.code == 6 && r.out != "":
		notSaved = true
		if len(r.injected) == 1 {
			i.t.Errorf("%s: one fault, and the token was not saved: %s", r, r.err)
		}
		if !i.server.Live(r.out) || !strings.Contains(r.err, "not saved") {
			i.t.Errorf("%s: ended with 6, and its token is not live or nothing was said of it", r)
		}
	case r.code == 6:
		if sentByRun != 0 || !isOld {
			i.t.Errorf("%s: ended with 6 and no token, and sent %d requests", r, sentByRun)
		}
	default:
		i.t.Errorf("%s: ended with %d", r, r.code)
	}
	if sentByRun > 1 || !killed && r.code != 0 && strings.TrimSpace(r.err) == "" {
		i.t.Errorf("%s: %d requests, exit %d, said %q", r, sentByRun, r.code, r.err)
	}

	next := i.start("token", "work")
	code, token := next.end()
	posts, doubleSpends, replays, revoked := i.since()
	if doubleSpends != 0 || revoked != 0 {
		i.t.Errorf("%s: %d double spends, %d sessions revoked", r, doubleSpends, revoked)
	}
	switch {
	case notSaved && code == 4: // nobody sends a token that is known to be spent
	case code != 0 || !i.server.Live(token):
		i.t.Errorf("%s: the next process ended with %d and a live token: %v; %s", r, code, i.server.Live(token), next.err.String())
	case r.code == 0 && token != r.out:
		i.t.Errorf("%s: the next process printed another token", r)
	}
	if replays > 0 && !(killed && isOld) || posts-replays > 1 {
		i.t.Errorf("%s: %d requests, %d of them with a token that was spent", r, posts, replays)
	}
	if left := i.left(); len(left) != 0 && code == 0 && posts > sentByRun {
		i.t.Errorf("%s: the next process left %q", r, left)
	}
}

// checkStore: a command that only changes the store does it or does not, and
// says which.
func checkStore(done func(*injector) bool) func(*injector, *run) {
	return func(i *injector, r *run) {
		i.t.Helper()
		isDone, isOld := done(i), bytes.Equal(i.store(), i.old)
		switch {
		case !isDone && !isOld:
			i.t.Errorf("%s: the store is neither old nor new", r)
		case r.code == 0 && !isDone:
			i.t.Errorf("%s: ended with 0 and did nothing", r)
		case r.fault != "signal=KILL" && r.code != 0 && r.code != 6:
			i.t.Errorf("%s: ended with %d", r, r.code)
		case r.fault != "signal=KILL" && r.code == 6 && strings.TrimSpace(r.err) == "":
			i.t.Errorf("%s: failed and said nothing", r)
		}
		_, there := i.records()["work"]
		next := i.start("token", "work")
		code, token := next.end()
		posts, _, _, _ := i.since()
		want := map[bool]int{true: 0, false: 3}[there]
		if code != want || there && !i.server.Live(token) || posts > 1 {
			i.t.Errorf("%s: the next process ended with %d, want %d, after %d requests: %s", r, code, want, posts, next.err.String())
		}
	}
}

func (i *injector) report() {
	i.t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "part\tcall\tin a clean run\tkilled\tEIO\tENOSPC")
	total := map[string]int{}
	for _, name := range i.order {
		row := i.table[name]
		if row.calls == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%d", name, row.calls)
		for _, fault := range faults {
			fmt.Fprintf(w, "\t%d", row.met[fault])
			total[fault] += row.met[fault]
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "total\t\t\t%d\t%d\t%d\n", total[faults[0]], total[faults[1]], total[faults[2]])
	must(i.t, w.Flush())
	i.t.Logf("faults that were in the trace:\n%s", b.String())
	for _, end := range slices.Sorted(maps.Keys(i.ends)) {
		i.t.Logf("%d runs with an error: %s", i.ends[end], end)
	}
}

func TestATokenSurvivesEveryInjectedFault(t *testing.T) {
	i := newInjector(t)
	i.sweep(part{
		name: "token, to the request", args: []string{"token", "work"}, check: checkToken,
		prepare: func(i *injector) {
			for _, name := range []string{"locks/work.lock.guard", storeLock + ".guard"} {
				must(i.t, os.Chmod(i.state(name), 0o640))
			}
		},
	})
	i.sweep(part{
		name: "token, first of all", args: []string{"token", "work"}, check: checkToken, calls: []string{"mkdirat", "fsync"},
		prepare: func(i *injector) {
			for _, name := range []string{"locks", "sessions", storeLock + ".guard"} {
				must(i.t, os.RemoveAll(i.state(name)))
			}
		},
	})
	i.sweep(part{name: "token, from the answer", args: []string{"token", "work"}, commit: true, check: checkToken})
	i.report()
}

// One fault is survived by trying again; one that stays costs the session, and
// nothing else: the caller gets the token, and is told.
func TestATokenThatCannotBeSavedIsPrintedAndItsPredecessorNotSentAgain(t *testing.T) {
	i := newInjector(t)
	defer func() { i.t = t }()
	for _, call := range []string{"openat", "fsync", "ftruncate", "renameat", "pwrite64"} {
		for _, fault := range []string{"error=EIO", "error=ENOSPC"} {
			t.Run(call+", "+fault, func(t *testing.T) {
				i.t = t
				p := part{name: "token, from the answer", args: []string{"token", "work"}, commit: true}
				r := i.inject(p, call, fault, always)
				if len(r.injected) == 0 {
					t.Fatal("nothing was injected")
				}
				if r.code != 6 || !i.server.Live(r.out) || !strings.Contains(r.err, "not saved") || !bytes.Equal(i.store(), i.old) {
					t.Errorf("ended with %d and a live token: %v; the store is as it was: %v; said: %s", r.code, i.server.Live(r.out), bytes.Equal(i.store(), i.old), r.err)
				}
				i.mustHoldNoSecret(p, r)
				next := i.start("token", "work")
				code, token := next.end()
				posts, doubleSpends, replays, _ := i.since()
				if call == "pwrite64" {
					// Not even the mark could be written: the one case in which
					// a spent token is sent again, and the program says so.
					if code != 0 || !i.server.Live(token) || posts != 2 || replays != 1 || !strings.Contains(r.err, "could not be recorded") {
						t.Errorf("the next process ended with %d, %d requests, %d replays: %s", code, posts, replays, next.err.String())
					}
				} else if code != 4 || posts != 1 {
					t.Errorf("the next process ended with %d after %d requests in all: %s", code, posts, next.err.String())
				}
				if doubleSpends != 0 {
					t.Errorf("%d double spends", doubleSpends)
				}
			})
		}
	}
}

func TestALoginAndALogoutSurviveEveryInjectedFault(t *testing.T) {
	i := newInjector(t)
	i.write("rejected", "a-new-static-token")
	i.sweep(part{
		name: "login", args: []string{"login", "ci", "--token-file", filepath.Join(i.home.dir, "rejected")},
		check: checkStore(func(i *injector) bool { return i.records()["ci"]["token"] == "a-new-static-token" }),
	})
	session, err := os.ReadFile(i.state("sessions/work.json"))
	must(t, err)
	i.sweep(part{
		name: "logout", args: []string{"logout", "work"},
		prepare: func(i *injector) { i.write("state/sessions/work.json", string(session)) },
		check: checkStore(func(i *injector) bool {
			_, there := i.records()["work"]
			return !there
		}),
	})
	i.report()
}

// A file system without kernel locks: the older rules must do, and they do.
func TestWithoutKernelLocksTheOlderRulesServe(t *testing.T) {
	for _, answer := range []string{"ENOLCK", "EOPNOTSUPP", "ENOSYS"} {
		t.Run(answer, func(t *testing.T) {
			for !newInjector(t).stormWithoutLocks(answer) {
				t.Log("strace failed; once more")
			}
		})
	}
}

// stormWithoutLocks reports whether strace was up to it.
func (i *injector) stormWithoutLocks(answer string) bool {
	t := i.t
	t.Helper()
	i.renew()
	before := i.server.Counters().TokenPosts
	must(t, i.server.Hold(spendoncetest.After))
	strace, err := exec.LookPath("strace")
	must(t, err)
	var all []*process
	var traces []string
	for n := range 4 {
		traces = append(traces, filepath.Join(i.dir, fmt.Sprint(n)))
		p := i.command()
		p.Path = strace
		p.Args = []string{"strace", "-f", "--seccomp-bpf", "-o", traces[n], "-e", "trace=flock", "-e", "inject=flock:error=" + answer, i.bin, "token", "work"}
		must(t, p.Start())
		all = append(all, p)
		if n == 0 {
			i.held(spendoncetest.After, 1)
		}
	}
	for _, name := range []string{"locks/work.lock", storeLock} {
		if c := i.content(name); strings.Contains(c, "guarded") || c == "" {
			t.Errorf("%s holds %d bytes and is marked: %v", name, len(c), strings.Contains(c, "guarded"))
		}
	}
	must(t, i.server.Release(spendoncetest.After))
	tokens, broke := map[string]bool{}, false
	for n, p := range all {
		code, token := p.end()
		if tracerBroke(p.err.String()) {
			broke = true
			continue
		}
		if code != 0 || !i.server.Live(token) || p.err.String() != "" {
			t.Errorf("process %d ended with %d and said %q", n, code, p.err.String())
		}
		tokens[token] = true
	}
	if broke {
		return false
	}
	if posts := i.server.Counters().TokenPosts - before; posts != 1 || len(tokens) != 1 {
		t.Errorf("%d requests, %d tokens", posts, len(tokens))
	}
	b, err := os.ReadFile(traces[0])
	must(t, err)
	if n := len(injectedIn(string(b), "flock", false)); n == 0 {
		t.Error("nothing was injected")
	}
	i.mustBeTidy()
	return true
}
