package doctorcmd

import (
	"fmt"
	"io/fs"
	"strings"
)

// What the broker does not let grow beyond.
const (
	largestBrokerState = 4 << 20
	largestAuditLog    = 8 << 20 // it is rotated at half of it
)

// brokerFindings are findings about the broker half, which many do without.
type brokerFindings struct {
	findings
	b brokerSight
}

// bad is something that keeps a broker from starting or serving: an error for
// who uses one.
func (f brokerFindings) bad(id, next, format string, args ...any) {
	level := warning
	if f.b.used() {
		level = failure
	}
	f.find(level, id, next, format, args...)
}

// worth is something worth knowing for who uses a broker.
func (f brokerFindings) worth(id, next, format string, args ...any) {
	if f.b.used() {
		f.find(note, id, next, format, args...)
	} else {
		f.ok(id, format, args...)
	}
}

func judgeBroker(all findings, s scene) {
	b := s.broker
	if !b.here {
		return
	}
	f := brokerFindings{all, b}
	f.judgeRunning()
	f.judgePath()
	if s.report.State.Err == nil { // else it was said of the state directory
		f.judgeDirs()
	}
	f.judgeFile(s.around.uid)
	f.judgeLocks()
	f.judgeState(s.around.uid)
	f.judgeAudit()
	f.judgeProc()
	f.judgeKernel()
}

func (f brokerFindings) judgeRunning() {
	const id = "broker.running"
	b := f.b
	switch r := b.running; {
	case r != nil && r.elsewhere:
		f.find(note, id, "nothing to do if that is meant; else end it and start one with this --state-dir", "process %d is the broker at %s, and keeps its state in %s", r.pid, b.socket, r.stateDir)
	case r != nil:
		f.ok(id, "process %d is the broker at %s", r.pid, b.socket)
	case b.runErr == nil, b.untrusted(): // nobody was asked, which is said elsewhere
	case b.absent && b.file.facts.Type == fs.ModeSocket:
		f.worth(id, "nothing to do: a service manager starts one at the first request, and 'spendonce lease run' clears up after a dead one", "no broker is running at %s, where the socket is that of a service manager or of a broker that was killed", b.socket)
	case b.absent:
		f.worth(id, "nothing to do: 'spendonce lease run' starts one", "no broker is running at %s", b.socket)
	default:
		f.find(failure, id, "wait a moment if it has just been started, else end its process", "the broker at %s gives no answer (%v)", b.socket, b.runErr)
	}
	if b.running != nil && b.running.inDoubt {
		f.find(warning, "broker.commits", "look at the disk that holds "+b.running.stateDir, "the last change may not be on the disk: the next one writes it again first, and nothing is granted unless that works")
	}
}

// judgePath is about where the socket is.
func (f brokerFindings) judgePath() {
	b := f.b
	if b.socketErr != nil {
		f.bad("broker.path", "set SPENDONCE_SOCKET to a short absolute path", "%v", b.socketErr)
		return
	}
	f.ok("broker.path", "%s has %d bytes", b.socket, len(b.socket))
	const id = "broker.runtime-directory"
	switch {
	case b.named:
		f.ok(id, "SPENDONCE_SOCKET says where the broker listens")
	case b.runtime != "" && !strings.HasPrefix(b.runtime, "/"):
		f.worth(id, "correct it, or unset it", "XDG_RUNTIME_DIR is no absolute path, so it is not used: the broker's place is %s", b.socket)
	case b.fallback:
		f.worth(id, "nothing to do as long as all who are to share a broker run without it; else set SPENDONCE_SOCKET for all of them", "XDG_RUNTIME_DIR is not set and there is no other runtime directory of yours: the broker's socket is in the state directory")
	case b.runtime == "":
		f.ok(id, "XDG_RUNTIME_DIR is not set, and the usual directory is there")
	default:
		f.ok(id, "XDG_RUNTIME_DIR says where the broker listens")
	}
}

func (f brokerFindings) judgeDirs() {
	for _, d := range f.b.dirs {
		switch {
		case d.err != nil:
			f.bad("broker.directory", "mend it, or use another place: "+d.mend, "no broker starts with this %s: %v", d.what, d.err)
		case d.exists:
			f.ok("broker.directory", "nobody else can put something in the place of %s", d.path)
		}
	}
}

// judgeFile is about what stands where the socket should.
func (f brokerFindings) judgeFile(uid int) {
	const id = "broker.socket"
	b := f.b
	switch s := b.file; {
	case s.err != nil:
		f.bad(id, "look at it, or set SPENDONCE_SOCKET to another path", "%s cannot be looked at (%v)", s.path, s.err)
	case !s.exists:
	case s.facts.Type != fs.ModeSocket:
		f.bad(id, "move it away, or set SPENDONCE_SOCKET to another path", "%s is no socket: no broker starts", s.path)
	case int(s.facts.UID) != uid:
		f.bad(id, "set SPENDONCE_SOCKET to another path", "%s belongs to user %d: no broker starts, and no client asks it", s.path, s.facts.UID)
	case s.facts.Mode&0o077 != 0:
		f.find(warning, id, "set SocketMode=0600 in its unit, or start the broker again", "%s has mode %04o: only its directory keeps others away", s.path, s.facts.Mode)
	default:
		f.ok(id, "%s is yours alone", s.path)
	}
}

// judgeLocks says who keeps other brokers from starting.
func (f brokerFindings) judgeLocks() {
	const id = "broker.lock"
	b := f.b
	for _, l := range b.locks {
		if l.err != nil {
			f.bad(id, "look at it, and move it aside while no broker runs", "the lock %s cannot be used (%v)", l.path, l.err)
		}
	}
	for _, h := range b.holders() {
		switch {
		case h.by.Stopped:
			f.find(failure, id, fmt.Sprintf("continue it (kill -CONT %d) or kill it", h.by.PID), "%s, which is stopped, has %s: nobody is answered, and no other broker starts", holder(h.by), h.locks)
		case b.absent:
			f.find(failure, id, "end it, or set SPENDONCE_SOCKET to the socket that it was started with", "%s has %s and does not listen at %s: no broker starts there", holder(h.by), h.locks, b.socket)
		default:
			f.ok(id, "%s has %s", holder(h.by), h.locks)
		}
	}
}

// judgeState looks at the state file as a broker does before it reads it.
func (f brokerFindings) judgeState(uid int) {
	const id = "broker.state"
	s := f.b.state
	if s.path == "" {
		return
	}
	// A broker that runs has read it before.
	trouble, when := failure, "no broker starts"
	if f.b.running != nil {
		trouble, when = warning, "the next broker will not start"
	}
	aside := fmt.Sprintf("move it aside (mv %s %s.damaged); agents register anew", s.path, s.path)
	switch {
	case s.err != nil:
		f.find(trouble, id, "look at it, or "+aside, "%s cannot be looked at (%v)", s.path, s.err)
	case !s.exists:
		f.ok(id, "no broker has kept anything")
	case s.facts.Type != 0:
		f.find(trouble, id, aside, "%s is no regular file: %s", s.path, when)
	case int(s.facts.UID) != uid:
		f.find(trouble, id, aside, "%s belongs to user %d: %s", s.path, s.facts.UID, when)
	case s.facts.Mode != 0o600:
		f.find(trouble, id, "if you know that nobody did: chmod 600 "+s.path+"; else "+aside, "%s has mode %04o, so others may have read it or written to it: %s", s.path, s.facts.Mode, when)
	case s.facts.Links != 1:
		f.find(trouble, id, "find and remove the other names", "%s has %d names: %s", s.path, s.facts.Links, when)
	case s.facts.Size == 0 || s.facts.Size > largestBrokerState:
		f.find(trouble, id, aside, "%s has %d bytes, which no broker has written: %s", s.path, s.facts.Size, when)
	default:
		f.ok(id, "%s has %d bytes", s.path, s.facts.Size)
	}
}

func (f brokerFindings) judgeAudit() {
	const id = "broker.audit"
	switch a := f.b.audit; {
	case a.path == "":
	case a.err != nil:
		f.find(warning, id, "look at it", "%s cannot be looked at (%v)", a.path, a.err)
	case !a.exists:
		f.ok(id, "no decision was written down yet")
	case a.facts.Type != 0:
		f.find(warning, id, "move it away", "%s is no regular file: no decision is written down", a.path)
	case a.facts.Size > largestAuditLog:
		f.find(warning, id, "move it away; if it grows like that again, see whether files can be renamed there", "%s has %d bytes: it is not rotated any more", a.path, a.facts.Size)
	default:
		f.ok(id, "%s has %d bytes", a.path, a.facts.Size)
	}
}

func (f brokerFindings) judgeProc() {
	const id = "broker.proc"
	switch p := f.b.proc; {
	case p.err != nil:
		f.bad(id, "mount /proc in this pid namespace, with all its files", "no broker starts: %v", p.err)
	case p.hides != "":
		f.worth(id, "for an agent or hook that is refused so, mount it without hidepid, or with hidepid=invisible and the gid= of a group that you are in",
			"/proc is mounted with hidepid=%s: a process that made itself not dumpable cannot be looked up and is refused with PEER_REFUSED", p.hides)
	default:
		f.ok(id, "/proc tells of all your processes")
	}
}

func (f brokerFindings) judgeKernel() {
	const id, nothing = "broker.kernel", "nothing to do; a newer kernel is stricter"
	switch k := f.b.kernel; {
	case !k.pidfds:
		f.bad(id, "run a kernel from 5.3 on, and let pidfd_open through", "this kernel (%s), or a filter in front of it, has no pidfds: every request is refused", k.release)
	case !k.peerPidfds:
		f.worth(id, nothing, "this kernel (%s) is older than 6.5 and gives no pidfd of who connects: one is opened by number, so who connects, hands the connection on and exits before it is accepted may be taken for the process that got its pid", k.release)
	default:
		f.ok(id, "this kernel (%s) gives pidfds of who connects, and an inode for each process", k.release)
	}
}
