// Package bearer sends requests with a target's access token (RFC 6750).
//
// A token goes to the origins of its target and nowhere else: [Origin] is
// what decides that, and everything that hands a token to another program
// asks it too.
//
// [Transport] is an [http.RoundTripper] for an [http.Client]: it adds the
// token, and when the resource refuses it, has it exchanged once by everybody
// who holds it and tries once more.
package bearer
