// Package broker is the lease broker's server: it accepts connections on a
// Unix socket, learns from the kernel who is calling, decides, and answers.
//
// One connection carries one request. Its way is the package's map:
//
//	serve.go     accepts, bounds the number of connections, ends everything
//	request.go   one connection: frame, shape, peer, session, descent, decision, answer
//	anchors.go   the processes that sessions hang on, watched until they exit
//	audit.go     one line for each decision
//	control.go   what 'spendonce lease status' and 'lease why' ask
//	open.go      everything that must be right before the socket exists
//
// What a request means is decided in internal/ledger, who is calling in
// peercred, and what the bytes say in internal/wire. The rules are in
// docs/protocol.md.
package broker
