// Package conformance judges any lease broker by what its socket does.
//
// [Run] speaks the protocol of docs/protocol.md to a running broker, byte by
// byte, and returns one [Result] for each thing that the protocol promises
// and that can be seen from outside. It shares no code with this project's
// broker, client or codec, so that a mistake in one of them is not made by
// its judge too, and it needs nothing beyond the standard library.
//
// Who is asking is half of the protocol, so the kit needs other processes:
// an anchor, its descendants, an orphan, a process that writes on a
// connection it was handed. These are actors: copies of the program that the
// kit is part of, started by [Config].Actor, whose main is [Act].
//
// Linux only, as the protocol is.
package conformance
