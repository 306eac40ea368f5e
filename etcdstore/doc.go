// Package etcdstore keeps the values of targets in etcd, for fleets of
// machines that share sessions. It implements [credstore.Shared].
//
// Below the prefix, each target has three keys:
//
//	targets/<target>/value   sealed record and session; never read here
//	targets/<target>/lock    who refreshes; bound to a lease
//	targets/<target>/mark    what the last holder said of the refresh token
//
// The lock is a key that is created only where there is none, under a lease
// of StaleAfter that is renewed while its holder shows progress: the server
// ends it, and no clock of a client takes part. Whoever sends a refresh token
// puts a mark first, in a transaction that compares the lock. So a value may
// be put by whoever has the lock, and also by one that lost it as long as the
// mark is still its own: nobody else has sent the token then, and who is about
// to looks at the value again after its mark. See docs/etcd.md.
package etcdstore
