// Package wire is the lease broker's protocol as bytes: one frame in, one
// answer out. It decides what a well-formed request is and nothing about
// whether it is granted; it opens no socket, reads no clock and keeps no
// state. See docs/protocol.md.
//
// One connection carries one request: a JSON object, a newline, and then the
// end of the stream, which proves that there is no second one. [ReadFrame]
// takes that from a connection, [ParseRequest] reads it, [Answer.Append]
// writes what is sent back; [Request.Append] and [ReadAnswer] are the client's
// side of the same. A refusal is a [Code], and the first rule that is broken
// names it: frame, then JSON, then members.
//
// Both ends of the socket must take a request for the same thing, so there is
// one spelling of each name and no second reading of any value: names are
// compared as the bytes that were sent, each stands exactly once, and numbers
// are those integers that every JSON reader holds exactly.
package wire
