// Package socketplace is where a Unix socket lives: a directory that nobody
// else can change, and a lock beside the socket that makes one server the only
// one there. What a dead server left is replaced, a living one never, and
// only what was bound here is ever unlinked. Linux only.
package socketplace
