package takeover

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/movein"
)

// leaseLife is for how long mcp-remote believes in a lease.
const leaseLife = 30 * time.Second

// interlock takes the lock by which the other program keeps its own processes
// from refreshing at once, and refuses where it is at work.
func interlock(dir *durable.Dir, p Place) (unlock func(), err error) {
	switch p.Program {
	case movein.MCPRemote:
		return interlockMCPRemote(dir, p)
	case movein.Kubelogin:
		return interlockKubelogin(dir, p)
	}
	return func() {}, nil
}

func interlockKubelogin(dir *durable.Dir, p Place) (func(), error) {
	lock, err := dir.OpenKept(p.Name + ".lock")
	if err != nil {
		return nil, err
	}
	got, err := lock.TryLock()
	if err == nil && !got {
		err = failing(ErrInUse, nil, "kubelogin is at work with this session (it holds %s): try again when it has ended", dir.Join(p.Name+".lock"))
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock.Close, nil
}

func interlockMCPRemote(dir *durable.Dir, p Place) (func(), error) {
	hash := strings.TrimSuffix(p.Name, movein.MCPRemoteTokens)
	if f, err := dir.Read(hash+movein.MCPRemoteLock, movein.Limit); err == nil {
		if pid, _, ok := movein.MCPRemoteHolder(f.Bytes); ok && alive(pid) {
			return nil, failing(ErrInUse, nil, "process %d uses this session, says mcp-remote's %s: end it first (if that process is something else, remove the file)", pid, dir.Join(hash+movein.MCPRemoteLock))
		}
	}
	if pid := running(p.URL); pid > 0 {
		return nil, failing(ErrInUse, nil, "mcp-remote runs for %s (process %d), and would sign in anew at its next request: end it first", p.URL, pid)
	}
	lease := hash + movein.MCPRemoteLease
	for range 2 {
		content := movein.MCPRemoteLeaseOf(os.Getpid(), rand.Text(), time.Now())
		err := dir.CreateExclusive(lease, content)
		if err == nil {
			return func() {
				// Ours for sure only while its content is.
				if f, err := dir.Read(lease, movein.Limit); err == nil && string(f.Bytes) == string(content) {
					_ = dir.Remove(lease)
				}
			}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		f, err := dir.Read(lease, movein.Limit)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// One that bears our own number is what an earlier call, or a process
		// that died with that number, could not remove.
		if pid, at, ok := movein.MCPRemoteHolder(f.Bytes); ok && pid != os.Getpid() && time.Since(at) < leaseLife && alive(pid) {
			return nil, failing(ErrInUse, nil, "mcp-remote refreshes this session just now (process %d): try again in a moment", pid)
		}
		if err := dir.Remove(lease); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("an abandoned lease of mcp-remote stays: %w", err)
		}
	}
	return nil, failing(ErrInUse, nil, "mcp-remote is at work with this session: try again in a moment")
}

// alive reports whether there is such a process, whoever's it is.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
