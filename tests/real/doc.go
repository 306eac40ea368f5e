// Package real drives the spendonce program against authorization servers
// that are not ours.
//
// The strict token server of the main module was written by the same people as
// the client; where both misread a rule in the same way, its tests pass. Here
// the judge is somebody else's implementation of OAuth 2.0, reached over HTTP,
// with a login form that a scripted person fills in, and the program is the
// built binary, started as a user starts it.
//
// The tests build the binary once; SPENDONCE_BIN names another one to judge.
package real
