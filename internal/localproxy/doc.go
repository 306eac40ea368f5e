// Package localproxy serves programs of this user that speak HTTP and cannot
// sign in: a reverse proxy on this machine that forwards what it is asked to
// one origin, with the target's token.
//
// Whoever may use it has the account, so who may is decided before anything is
// read: on a Unix socket the kernel says who connects, on TCP a secret of this
// run must be shown, in a request that no web page can have caused. The token
// is added by the Transport that is handed in (package bearer) and is never
// seen here.
package localproxy
