package doctorcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

var keeper = lockfile.Process{PID: 4711, Name: "spendonce"}

// serving is a broker that runs and in which nothing is wrong.
func serving() brokerSight {
	return brokerSight{
		here: true, socket: "/r/spendonce/broker.sock", runtime: "/r",
		dirs:  []brokerDir{{path: "/s", what: "state directory", exists: true, mend: "--state-dir"}, {path: "/r/spendonce", what: "directory of the socket", exists: true, mend: "SPENDONCE_SOCKET"}},
		file:  brokerFile{path: "/r/spendonce/broker.sock", exists: true, facts: durable.Facts{Type: fs.ModeSocket, Mode: 0o600, UID: 1000}},
		state: brokerFile{path: "/s/broker-state.json", exists: true, facts: durable.Facts{ID: durable.ID{Size: 500}, Mode: 0o600, UID: 1000, Links: 1}},
		audit: brokerFile{path: "/s/broker-audit.log", exists: true, facts: durable.Facts{ID: durable.ID{Size: 500}, Mode: 0o600, UID: 1000, Links: 1}},
		locks: []brokerLock{{what: "state", path: "/s/broker-state.json.lock", held: true, by: keeper}, {what: "socket", path: "/r/spendonce/broker.sock.lock", held: true, by: keeper}},
		running: &brokerRunning{
			pid: 4711, since: noon.Add(-time.Hour), stateDir: "/s", pending: 2, spent: 7,
			sessions: []statusSession{{"b83bd136", 42, "claude", 3, 2}},
			refusal:  &statusRefusal{noon.Add(-time.Minute), "TOKEN_REPLAY", "consume_token", "", 43},
		},
		kernel: kernelSight{release: "6.18", pidfds: true, peerPidfds: true},
	}
}

// at rest is what a broker that was ended leaves.
func atRest() brokerSight {
	b := serving()
	b.running, b.runErr, b.absent = nil, errors.New("nobody listens"), true
	b.file = brokerFile{path: b.socket}
	b.locks[0].held, b.locks[1].held = false, false
	return b
}

// never is a user who has never had a broker.
func never() brokerSight {
	b := atRest()
	b.dirs, b.locks = nil, nil
	b.state, b.audit = brokerFile{path: b.state.path}, brokerFile{path: b.audit.path}
	return b
}

func with(b brokerSight) scene {
	s := well()
	s.broker = b
	return s
}

func TestADoctorFindsNothingWrongWithABrokerWhereNothingIs(t *testing.T) {
	for name, c := range map[string]struct {
		b    brokerSight
		want string
	}{
		"another system": {brokerSight{}, ""},
		"never used":     {never(), ""},
		"runs":           {serving(), ""},
		"does not run":   {atRest(), "note broker.running no broker is running at /r/spendonce/broker.sock -> nothing to do: 'spendonce lease run' starts one"},
	} {
		if got := said(with(c.b)); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestEachFaultOfABrokerIsFoundAndNamesTheNextStep(t *testing.T) {
	unsafe := errors.New("directory /r/spendonce has mode 0755")
	for _, c := range []struct {
		name   string
		from   func() brokerSight
		change func(*brokerSight)
		want   string // a line starts with it
		next   string // and ends with it
	}{
		{"state kept elsewhere", serving, func(b *brokerSight) { b.running.elsewhere, b.running.stateDir = true, "/other" }, "note broker.running process 4711 is the broker at /r/spendonce/broker.sock, and keeps its state in /other", "--state-dir"},
		{"no answer", serving, func(b *brokerSight) { b.running, b.runErr = nil, errors.New("i/o timeout") }, "error broker.running the broker at /r/spendonce/broker.sock gives no answer (i/o timeout)", "end its process"},
		{"in doubt", serving, func(b *brokerSight) { b.running.inDoubt = true }, "warning broker.commits the last change may not be on the disk", "look at the disk that holds /s"},

		{"a path that is too long", never, func(b *brokerSight) { b.socketErr = errors.New("it has 200 bytes") }, "warning broker.path it has 200 bytes", "a short absolute path"},
		{"a path that is too long for who uses it", atRest, func(b *brokerSight) { b.socketErr = errors.New("it has 200 bytes") }, "error broker.path it has 200 bytes", "a short absolute path"},
		{"a path that was named", never, func(b *brokerSight) { b.named, b.socketErr = true, errors.New("it is not absolute") }, "error broker.path it is not absolute", "a short absolute path"},
		{"no runtime directory", atRest, func(b *brokerSight) { b.runtime, b.fallback = "", true }, "note broker.runtime-directory XDG_RUNTIME_DIR is not set and there is no other", "set SPENDONCE_SOCKET for all of them"},
		{"a relative runtime directory", atRest, func(b *brokerSight) { b.runtime = "run" }, "note broker.runtime-directory XDG_RUNTIME_DIR is no absolute path", "unset it"},
		{"an unsafe socket directory", never, func(b *brokerSight) {
			b.dirs = []brokerDir{{path: "/r/spendonce", what: "directory of the socket", exists: true, err: unsafe, mend: "SPENDONCE_SOCKET"}}
		}, "warning broker.directory no broker starts with this directory of the socket: directory /r/spendonce has mode 0755", "SPENDONCE_SOCKET"},
		{"an unsafe socket directory of who uses it", serving, func(b *brokerSight) { b.dirs[1].err = unsafe }, "error broker.directory no broker starts with this directory of the socket", "SPENDONCE_SOCKET"},
		{"an unsafe state directory", serving, func(b *brokerSight) { b.dirs[0].err = unsafe }, "error broker.directory no broker starts with this state directory", "--state-dir"},

		{"no socket", atRest, func(b *brokerSight) { b.file.exists = true }, "error broker.socket /r/spendonce/broker.sock is no socket: no broker starts", "another path"},
		{"another's socket", serving, func(b *brokerSight) { b.file.facts.UID = 5 }, "error broker.socket /r/spendonce/broker.sock belongs to user 5", "another path"},
		{"a socket that cannot be looked at", serving, func(b *brokerSight) { b.file.err = errors.New("no such luck") }, "error broker.socket /r/spendonce/broker.sock cannot be looked at (no such luck)", "another path"},
		{"a loose socket", serving, func(b *brokerSight) { b.file.facts.Mode = 0o666 }, "warning broker.socket /r/spendonce/broker.sock has mode 0666", "start the broker again"},
		{"a dead socket", atRest, func(b *brokerSight) { b.file = serving().file }, "note broker.running no broker is running at /r/spendonce/broker.sock, where the socket is that of a service manager or of a broker that was killed", "clears up after a dead one"},

		{"stopped", serving, func(b *brokerSight) {
			b.running = nil
			b.locks[0].by.Stopped, b.locks[1].by.Stopped = true, true
		}, "error broker.lock process 4711 (spendonce), which is stopped, has the broker's lock of the state and that of the socket: nobody is answered", "continue it (kill -CONT 4711) or kill it"},
		{"one stopped beside one that runs", serving, func(b *brokerSight) {
			b.running = nil
			b.locks[0].by = lockfile.Process{PID: 9, Name: "old", Stopped: true}
		}, "error broker.lock process 9 (old), which is stopped, has the broker's lock of the state: nobody", "(kill -CONT 9) or kill it"},
		{"a broker elsewhere", atRest, func(b *brokerSight) { b.locks[0].held = true }, "error broker.lock process 4711 (spendonce) has the broker's lock of the state and does not listen at /r/spendonce/broker.sock", "that it was started with"},
		{"no lock", atRest, func(b *brokerSight) { b.locks[0].err = durable.ErrNotRegular }, "error broker.lock the lock /s/broker-state.json.lock cannot be used (not a regular file)", "while no broker runs"},

		{"a loose state", atRest, func(b *brokerSight) { b.state.facts.Mode = 0o640 }, "error broker.state /s/broker-state.json has mode 0640, so others may have read it or written to it: no broker starts -> if you know that nobody did: chmod 600 /s/broker-state.json", "agents register anew"},
		{"a state that is loose even to us", atRest, func(b *brokerSight) { b.state.facts.Mode = 0o700 }, "error broker.state /s/broker-state.json has mode 0700", "agents register anew"},
		{"a loose state of a broker that runs", serving, func(b *brokerSight) { b.state.facts.Mode = 0o640 }, "warning broker.state /s/broker-state.json has mode 0640, so others may have read it or written to it: the next broker will not start", "agents register anew"},
		{"another's state", atRest, func(b *brokerSight) { b.state.facts.UID = 5 }, "error broker.state /s/broker-state.json belongs to user 5", "agents register anew"},
		{"a state that is no file", atRest, func(b *brokerSight) { b.state.facts.Type = fs.ModeSymlink }, "error broker.state /s/broker-state.json is no regular file", "agents register anew"},
		{"a state with two names", atRest, func(b *brokerSight) { b.state.facts.Links = 2 }, "error broker.state /s/broker-state.json has 2 names: no broker starts", "the other names"},
		{"a large state", atRest, func(b *brokerSight) { b.state.facts.Size = 4<<20 + 1 }, "error broker.state /s/broker-state.json has 4194305 bytes, which no broker has written", "agents register anew"},
		{"an empty state", atRest, func(b *brokerSight) { b.state.facts.Size = 0 }, "error broker.state /s/broker-state.json has 0 bytes", "agents register anew"},
		{"a state that cannot be looked at", atRest, func(b *brokerSight) { b.state.err = errors.New("no such luck") }, "error broker.state /s/broker-state.json cannot be looked at (no such luck)", "agents register anew"},

		{"a large audit log", serving, func(b *brokerSight) { b.audit.facts.Size = 8<<20 + 1 }, "warning broker.audit /s/broker-audit.log has 8388609 bytes: it is not rotated any more", "renamed there"},
		{"an audit log that is no file", serving, func(b *brokerSight) { b.audit.facts.Type = fs.ModeNamedPipe }, "warning broker.audit /s/broker-audit.log is no regular file", "move it away"},
		{"an audit log that cannot be looked at", serving, func(b *brokerSight) { b.audit.err = errors.New("no such luck") }, "warning broker.audit /s/broker-audit.log cannot be looked at (no such luck)", "look at it"},

		{"no proc", never, func(b *brokerSight) { b.proc.err = errors.New("/proc is not a proc file system") }, "warning broker.proc no broker starts: /proc is not a proc file system", "with all its files"},
		{"hidden processes", atRest, func(b *brokerSight) { b.proc.hides = "invisible" }, "note broker.proc /proc is mounted with hidepid=invisible", "that you are in"},
		{"no pidfds", atRest, func(b *brokerSight) { b.kernel = kernelSight{release: "4.19"} }, "error broker.kernel this kernel (4.19), or a filter in front of it, has no pidfds", "pidfd_open through"},
		{"an old kernel", atRest, func(b *brokerSight) { b.kernel = kernelSight{release: "6.1", pidfds: true} }, "note broker.kernel this kernel (6.1) is older than 6.5", "stricter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.from()
			c.change(&b)
			s := with(b)
			got := said(s) + "\n"
			start := strings.Index("\n"+got, "\n"+c.want)
			if start < 0 {
				t.Fatalf("said\n%swanted %q", got, c.want)
			}
			line, _, _ := strings.Cut(got[start:], "\n")
			if !strings.HasSuffix(line, c.next) {
				t.Errorf("said\n%swanted %q ... %q", got, c.want, c.next)
			}
			if n := strings.Count(got, "\n"); n > 1 && (n > 2 || !strings.HasPrefix(got, "note broker.running no broker is running")) {
				t.Errorf("one fault is said %d times:\n%s", n, got)
			}
			for _, f := range judge(s) {
				if (f.Next == "") != (f.Level == fine) {
					t.Errorf("%s: level %s and next step %q", f.ID, f.Level, f.Next)
				}
			}
		})
	}
}

// What is worth knowing for who has a broker is no news to others.
func TestWhoHasNoBrokerIsNotToldWhatItWouldLack(t *testing.T) {
	b := never()
	b.runtime, b.fallback = "", true
	b.kernel = kernelSight{release: "6.1", pidfds: true}
	if got := said(with(b)); got != "" {
		t.Error(got)
	}
}

func TestWhoHasABrokerIsToldWhatItLacks(t *testing.T) {
	for name, change := range map[string]func(*brokerSight){
		"a broker that runs": func(b *brokerSight) { b.running, b.runErr = serving().running, nil },
		"a socket":           func(b *brokerSight) { b.file = serving().file },
		"a state file":       func(b *brokerSight) { b.state = serving().state },
		"a variable":         func(b *brokerSight) { b.named = true },
	} {
		b := never()
		b.kernel = kernelSight{release: "6.1", pidfds: true}
		change(&b)
		if got := said(with(b)); !strings.Contains(got, "note broker.kernel") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestARuntimeDirectoryThatIsNotAskedForIsNoMatter(t *testing.T) {
	b := serving()
	b.named, b.runtime = true, "run"
	if got := said(with(b)); got != "" {
		t.Error(got)
	}
}

// Nobody answers where no client dares to ask.
func TestAnUnsafePlaceIsSaidOnce(t *testing.T) {
	b := serving()
	b.running, b.runErr = nil, errors.New("the broker's socket is not safe")
	b.dirs[1].err = errors.New("directory /r/spendonce has mode 0777")
	if got := said(with(b)); !strings.HasPrefix(got, "error broker.directory") || strings.Contains(got, "\n") {
		t.Error(got)
	}
	s := with(b)
	s.report.State.Err = durable.ErrUnsafe // every other directory is as nothing
	if got := said(s); strings.Contains(got, "broker.directory") || !strings.Contains(got, "state.directory") {
		t.Error(got)
	}
}

func TestALooseStateFileOfTheBrokerIsSaidOnce(t *testing.T) {
	s := with(atRest())
	s.report.Loose = []string{"/s/broker-state.json", "/s/broker-audit.log"}
	if got := said(s); strings.Contains(got, "read or write /s/broker-state.json") || !strings.Contains(got, "read or write /s/broker-audit.log") {
		t.Error(got)
	}
}

func TestTheStatusTellsOfTheBroker(t *testing.T) {
	stopped, deaf, nowhere := serving(), serving(), never()
	stopped.running, stopped.locks[0].by.Stopped = nil, true
	deaf.running, deaf.runErr = nil, errors.New("i/o timeout")
	nowhere.socketErr = errors.New("the path is too long")
	for _, c := range []struct {
		name       string
		b          brokerSight
		line, json string
	}{
		{"runs", serving(), "process 4711 since 2026-11-30T11:00:00Z: 1 session, 2 tokens pending, 7 spent", `{"running":true,"socket":"/r/spendonce/broker.sock","pid":4711,"since":"2026-11-30T11:00:00Z","state_dir":"/s","sessions":[{"session":"b83bd136","anchor_pid":42,"anchor_command":"claude","runtime_generation":3,"tokens_pending":2}],"tokens_pending":2,"tokens_spent":7,"last_refusal":{"time":"2026-11-30T11:59:00Z","code":"TOKEN_REPLAY","action":"consume_token","pid":43}}`},
		{"does not run", atRest(), "not running", `{"running":false,"socket":"/r/spendonce/broker.sock","sessions":[],"tokens_pending":0,"tokens_spent":0}`},
		{"is stopped", stopped, "process 4711, which is stopped: nobody is answered", `{"running":false,"socket":"/r/spendonce/broker.sock","pid":4711,"stopped":true,"error":"stopped by a signal","sessions":[],"tokens_pending":0,"tokens_spent":0}`},
		{"does not answer", deaf, "i/o timeout", `{"running":false,"socket":"/r/spendonce/broker.sock","error":"i/o timeout","sessions":[],"tokens_pending":0,"tokens_spent":0}`},
		{"has no place", nowhere, "the path is too long", `{"running":false,"socket":"/r/spendonce/broker.sock","error":"the path is too long","sessions":[],"tokens_pending":0,"tokens_spent":0}`},
	} {
		st := c.b.status()
		b, err := json.Marshal(st)
		if got := st.String(); got != c.line || err != nil || string(b) != c.json {
			t.Errorf("%s: %s\n%s, %v", c.name, got, b, err)
		}
	}
	if st := (&brokerSight{}).status(); st != nil {
		t.Errorf("on another system: %v", st)
	}
}

func TestARefusalIsToldInALine(t *testing.T) {
	r := statusRefusal{noon, "PEER_REFUSED", "", "it has exited", 5}
	if got := r.String(); got != "2026-11-30T12:00:00Z PEER_REFUSED to process 5: it has exited" {
		t.Error(got)
	}
	r.Action, r.Reason = "mint_token", ""
	if got := r.String(); got != "2026-11-30T12:00:00Z PEER_REFUSED to process 5, mint_token" {
		t.Error(got)
	}
}

func TestOnlySoManySessionsAreShownAsFitOnAScreen(t *testing.T) {
	var out bytes.Buffer
	st := statusBroker{Sessions: make([]statusSession, 14)}
	st.Sessions[0].Command = "a\x1b[31mb"
	if err := st.printSessions(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 15 || !strings.HasSuffix(got, "and 2 more: 'spendonce lease status'\n") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	out.Reset()
	if err := (statusBroker{}).printSessions(&out); err != nil || out.Len() != 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}
