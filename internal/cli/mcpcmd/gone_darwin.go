package mcpcmd

// peerClosed: here that is a POLLHUP too.
const peerClosed = 0
