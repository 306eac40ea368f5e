// Package procfs reads the few facts of /proc that tell one process from
// another: who its parent is and when it was started.
//
// All readings go through one kept descriptor of /proc that [Open] has judged:
// it is procfs, and of the pid namespace this process lives in. What is
// mounted over /proc afterwards changes nothing. Linux only.
package procfs
