// Package ledger keeps the lease broker's sessions and the tokens that wait to
// be spent, in memory and in one file, so that a token is good for exactly one
// use whatever crashes in between. docs/protocol.md has the rules.
//
// Its promise: no token is accepted twice, and nothing is answered with success
// that a crash or a power loss could take back. A request whose commit failed
// is told so and may or may not have had its effect on the disk, but then
// never a second time.
//
// What a request does to the state is decided by a pure function of both
// (state.go). One goroutine applies all requests that wait, commits the outcome
// once for all of them, and only then answers (commit.go).
//
// The package works on Linux only, as the broker does.
package ledger
