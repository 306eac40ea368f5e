// Package spendoncetest is a kit for testing programs that share an OAuth
// session whose refresh token is good for one use: a strict authorization
// server with the resource it protects, scripted and counted.
package spendoncetest
