// Package bearer sends requests with a target's access token (RFC 6750).
//
// A token goes to the origins of its target and nowhere else: [Origin] is
// what decides that, and everything that hands a token to another program
// asks it too.
package bearer
