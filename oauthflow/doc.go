// Package oauthflow speaks with authorization servers: discovery from a
// resource (RFC 9728) and of a server (RFC 8414, OpenID Connect Discovery),
// registration (RFC 7591), sign-in with a browser (RFC 8252, PKCE), on another
// device (RFC 8628) and in a program's own name, token requests (RFC 6749) for
// a resource (RFC 8707), and revocation (RFC 7009).
//
// A refresh token is spent by sending it, so a token request here is careful
// in ways an ordinary HTTP client is not:
//
//   - It is sent at most once. Every exchange has its own HTTP/1.1
//     connection, and nothing is repeated or redirected behind the caller's
//     back. [Error.NotSent] and [Error.Broken] tell whether the server can
//     have seen the request.
//   - The end of the context is soft. If a byte of the answer has arrived by
//     then, even if it still lies in the kernel, the answer is read to its
//     end and judged: a laptop that wakes up with the reply in its socket has
//     not lost its session.
//   - What an answer means is decided by one pure function, [Judge].
//   - No error text holds a secret, not even one that the server echoes.
//
// The package keeps nothing on disk and takes no lock.
package oauthflow
