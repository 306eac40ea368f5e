// Package credstore keeps the credentials of one user's remote targets in one
// private file that many processes share, and spends one-time refresh tokens
// exactly once.
//
// A [Store] is the file, a [Source] hands out access tokens of one target. A
// fresh token is returned with no lock and no network. An expired one is
// exchanged by exactly one process: it proves first that the result can be
// saved, re-reads the record under the lock, sends, and commits by
// compare-and-swap on the refresh token that it sent. Everybody else waits
// and adopts the result.
//
// How the exchange itself is done is handed in as [Exchange]; this package
// knows neither HTTP nor OAuth. The rules are normative in docs/locking.md,
// the files are shown in docs/file-formats.md.
package credstore
