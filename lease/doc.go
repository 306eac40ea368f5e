// Package lease is the client of the lease broker: a daemon on this machine
// that learns from the kernel which agent session a process descends from, and
// issues tokens that work exactly once.
//
// A process that calls [Client.RegisterAnchor] becomes the anchor of a
// session. It and its descendants, and nobody else, can then prove that they
// belong to the session, mint tokens bound to a payload, and consume each of
// them once. Nothing that is passed around makes anybody a member: a session id
// or a token that leaks is worth nothing outside the anchor's tree.
//
// The words on the wire are in docs/protocol.md. The broker runs on Linux only.
package lease
