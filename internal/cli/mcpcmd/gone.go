package mcpcmd

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// hungUp tells of an input whether its writer has gone, though there is
// something left to read. It is nil for an input that does not know.
func hungUp(in io.Reader) func() bool {
	f, ok := in.(*os.File)
	if !ok {
		return nil
	}
	fd := int32(f.Fd())
	return func() bool {
		look := []unix.PollFd{{Fd: fd, Events: unix.POLLIN | peerClosed}}
		n, err := unix.Poll(look, 0)
		return err == nil && n > 0 && look[0].Revents&(unix.POLLHUP|peerClosed) != 0
	}
}
