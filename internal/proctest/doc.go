// Package proctest makes processes with a pid of the test's choice, for tests
// of who is taken for whom, and reaps those that tests made. Linux only; to
// choose a pid takes root.
package proctest
