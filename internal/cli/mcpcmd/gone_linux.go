package mcpcmd

import "golang.org/x/sys/unix"

// peerClosed is what a socket says whose other side only writes no more.
const peerClosed = unix.POLLRDHUP
