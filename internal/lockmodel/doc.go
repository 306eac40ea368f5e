// Package lockmodel is an explicit-state model of locking, refresh and
// commit: every interleaving of single file-system steps of two to four
// processes, with crashes, stops, lost answers and time-outs that fire at any
// moment, is walked and each send and each rename is judged.
//
// It holds no code that ships. Its tests prove two things. With all rules in
// force nothing that the rules promise is ever broken, and where they concede
// a loss (beside a program that knows only lock files, or on a file system
// without kernel locks) exactly the conceded kinds occur. And each rule that
// can be taken out is taken out, to see what it was good for: the search then
// names a violation and prints the shortest way to it, or the rule is listed
// as one that serves something else than safety.
//
// The model's process is one invocation for one target whose access token has
// expired. A refresh token is a small number; so are processes and servers.
// Real time does not exist: see [Clock].
package lockmodel
