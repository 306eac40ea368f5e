// Package proctest makes processes with a pid of the test's choice, for tests
// of who is taken for whom. Linux only, and only for root.
package proctest
