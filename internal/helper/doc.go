// Package helper holds the codecs of the protocols in which other programs
// ask for a credential: git, docker, kubectl, a JSON object of headers, and
// variables for a shell. It decides nothing and touches nothing but the
// reader and writer it is given.
//
// Every answer is written by one call of Write or not at all, so that who
// reads it never sees a part of one. Input is bounded, and no error quotes
// it: it may hold a password.
package helper
