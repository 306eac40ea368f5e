//go:build linux

package doctorcmd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/procfs"
	"github.com/spendonce/spendonce/lease"
)

// answerPatience bounds the wait for a broker's answer: whoever calls a
// command that only looks gives it a second.
const answerPatience = 500 * time.Millisecond

// lookAtBroker sees everything that a broker would, and changes nothing.
// stateDir is absolute; "": there is none. The only thing that is sent is the
// question of 'lease status', to the control socket of a broker of ours: a
// connection to its other one could start a broker.
func lookAtBroker(ctx context.Context, stateDir string) brokerSight {
	b := brokerSight{here: true, named: os.Getenv(lease.SocketVariable) != "", runtime: os.Getenv("XDG_RUNTIME_DIR")}
	b.proc, b.kernel = lookAtProc(), lookAtKernel()
	if stateDir != "" {
		b.lookAtState(stateDir)
	}
	if b.socket, b.socketErr = lease.DefaultSocket(); b.socketErr != nil {
		return b
	}
	b.lookAtPlace(stateDir)
	if _, stopped := b.stopped(); !stopped { // else nobody would answer
		b.ask(ctx, stateDir)
	}
	return b
}

func (b *brokerSight) lookAtState(dir string) {
	d := brokerDir{path: dir, what: "state directory", mend: "--state-dir"}
	d.exists, d.err = trusted(dir, 0o022)
	if b.dirs = append(b.dirs, d); d.err != nil || !d.exists {
		return
	}
	b.state = lookAtFile(filepath.Join(dir, ledger.StateFile))
	b.audit = lookAtFile(filepath.Join(dir, "broker-audit.log"))
	b.lookAtLock("state", dir, ledger.LockFile)
}

func (b *brokerSight) lookAtPlace(stateDir string) {
	dir, name := filepath.Split(b.socket)
	dir = filepath.Clean(dir)
	b.fallback = !b.named && dir == filepath.Clean(stateDir)
	d := brokerDir{path: dir, what: "directory of the socket", mend: lease.SocketVariable}
	d.exists, d.err = trusted(dir, 0o077)
	if len(b.dirs) == 1 && b.dirs[0].path == dir {
		b.dirs = nil // the stricter rule holds
	}
	if b.dirs = append(b.dirs, d); d.err != nil || !d.exists {
		return
	}
	b.file = lookAtFile(b.socket)
	b.lookAtLock("socket", dir, name+".lock")
}

// trusted judges a directory by the broker's rule, if it is there.
func trusted(path string, forbidden uint32) (exists bool, err error) {
	err = durable.CheckPlace(path, forbidden)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, err
}

func lookAtFile(path string) brokerFile {
	f := brokerFile{path: path}
	f.facts, f.err = durable.LookAt(path)
	if errors.Is(f.err, fs.ErrNotExist) {
		f.err = nil
	} else {
		f.exists = f.err == nil
	}
	return f
}

// lookAtLock sees who has a lock, without trying it.
func (b *brokerSight) lookAtLock(what, dir, name string) {
	l := brokerLock{what: what, path: filepath.Join(dir, name)}
	d, err := durable.Disk{}.OpenDir(dir)
	if err != nil {
		return // said of the directory
	}
	defer d.Close()
	k, err := d.OpenKeptReadOnly(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // no broker was here
	case err != nil:
		l.err = err
	default:
		defer k.Close()
		l.held, l.by, _ = k.Holder()
	}
	b.locks = append(b.locks, l)
}

// ask puts the one question.
func (b *brokerSight) ask(ctx context.Context, stateDir string) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	st, err := broker.QueryStatus(ctx, b.socket)
	if err != nil {
		b.runErr, b.absent = err, errors.Is(err, lease.ErrNoBroker)
		return
	}
	b.running = &brokerRunning{
		pid: st.PID, since: st.Since, stateDir: st.StateDir, elsewhere: !sameDir(st.StateDir, stateDir),
		pending: st.Pending, spent: st.Spent, inDoubt: st.InDoubt, sessions: []statusSession{},
	}
	for _, s := range st.Sessions {
		b.running.sessions = append(b.running.sessions, statusSession{s.Session, s.AnchorPID, s.Command, s.Generation, s.Pending})
	}
	if len(st.Refusals) > 0 {
		r := st.Refusals[0]
		b.running.refusal = &statusRefusal{r.Time.UTC(), r.Code, r.Action, r.Reason, r.PID}
	}
}

func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func lookAtProc() procSight {
	proc, err := procfs.Open()
	if err != nil {
		return procSight{err: err}
	}
	defer proc.Close()
	if _, err := proc.BootID(); err != nil {
		return procSight{err: err}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return procSight{err: err}
	}
	groups, _ := os.Getgroups() // none is the safe answer
	return procSight{hides: hiding(string(mounts), os.Geteuid(), append(groups, os.Getegid()))}
}

// hiding returns the value of the option hidepid that /proc is mounted with,
// if it keeps entries of this user's own processes from this user: those of
// processes that are not dumpable.
func hiding(mountinfo string, uid int, groups []int) string {
	if uid == 0 { // sees everything
		return ""
	}
	mode, gid := "", -1
	for line := range strings.Lines(mountinfo) {
		// 23 28 0:21 / /proc rw,nosuid - proc proc rw,hidepid=invisible,gid=4
		f := strings.Fields(line)
		if len(f) < 10 || f[4] != "/proc" {
			continue
		}
		mode, gid = "", -1 // the last one is on top
		for _, option := range strings.Split(f[len(f)-1], ",") {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "hidepid":
				mode = value
			case "gid":
				if n, err := strconv.Atoi(value); err == nil {
					gid = n
				}
			}
		}
	}
	switch {
	case mode == "0" || mode == "off":
		return ""
	case mode == "4" || mode == "ptraceable": // no group is let in
		return mode
	case slices.Contains(groups, gid):
		return ""
	default:
		return mode
	}
}

func lookAtKernel() kernelSight {
	var k kernelSight
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		k.release = unix.ByteSliceToString(name.Release[:])
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		k.pidfds = true
		_ = unix.Close(pidfd)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return k
	}
	if peer, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		k.peerPidfds = true
		_ = unix.Close(peer)
	}
	_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	return k
}
