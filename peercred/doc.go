// Package peercred says who is at the other end of a Unix socket, and whether
// that process descends from another one. All of it comes from the kernel,
// nothing from the peer. Linux only.
//
// A [Listener] gives each connection its peer's credentials and a pidfd, both
// taken when it is accepted, and watches who writes to it. A [Prover] reads
// the peer's start time and walks its parents up to an [Anchor], a process
// whose pidfd is kept. A pid alone proves nothing, since the kernel gives it to
// somebody else once its process was reaped; a pid with a start time, read
// while the pidfd says that the process lives, does.
//
// The uid is the boundary of security here: a peer of another user is refused,
// root's included. Ancestry tells apart the processes of one user that do not
// try to look like one another: who can trace the anchor, or write what it
// loads, is the anchor.
//
// A lookup that fails refuses, and is not made up for by a weaker one. Two
// things depend on the kernel. One without sysctls does not tell which uid
// stands for users unknown here: there it is 65534, which nothing can change.
// And one before Linux 6.5 does not give the pidfd of who connected: there it
// is opened by pid, which proves less (see oldKernel).
//
// The rules are the peer.* and descent.* ones of docs/protocol.md: Accept keeps
// peer.connect and peer.user, Read and Verify peer.writer and peer.control,
// Verify and Descends peer.alive, and Descends the others.
package peercred
