//go:build linux

package conformance

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

func placeChecks() []check {
	return []check{
		{rule: "place.directory", name: "the socket's directory is ours and gives nobody else anything", run: func(t *trial) {
			t.private(filepath.Dir(t.socket), fs.ModeDir)
		}},
		{rule: "place.socket", name: "the socket is ours and gives nobody else anything", run: func(t *trial) {
			t.private(t.socket, fs.ModeSocket)
		}},
		{rule: "place.server", name: "the process that listens runs as this user", run: func(t *trial) {
			s, err := dial(t.socket, patience*time.Millisecond)
			if err != nil {
				t.broken(err.Error(), "a connection")
			}
			defer s.close()
			uid, err := s.peerUID()
			t.must(err)
			same(t, uid, os.Geteuid(), "user")
		}},
	}
}

// private ends the check unless path is of that kind, this user's, and
// without any permission for others.
func (t *trial) private(path string, kind fs.FileMode) {
	info, err := os.Stat(path)
	if err != nil {
		t.broken(err.Error(), kind.String())
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.must(fmt.Errorf("examining %s: this system tells no owner", path))
	}
	t.want = fmt.Sprintf("%v, others without permissions, user %d", kind, os.Geteuid())
	t.got = fmt.Sprintf("%v, user %d", info.Mode(), st.Uid)
	if info.Mode().Type() != kind || info.Mode().Perm()&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		t.broken(t.got, t.want)
	}
}
