//go:build linux

package durable

import "testing"

func TestFlockHolderFindsTheLineOfTheFile(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 fe:00:131094 0 EOF
2: FLOCK  ADVISORY  WRITE 12 00:2a:131094 0 EOF
3: FLOCK  ADVISORY  WRITE 13 fe:00:31094 0 EOF
4: FLOCK  ADVISORY  WRITE 14 fe:00:131094 0 EOF
4: -> FLOCK  ADVISORY  WRITE 15 fe:00:131094 0 EOF
5: FLOCK  ADVISORY  WRITE -1 fe:00:7 0 EOF
6: -> FLOCK  ADVISORY  WRITE 16 fe:00:8 0 EOF
`
	for _, c := range []struct {
		name string
		pid  int
		held bool
	}{
		{"fe:00:131094", 14, true},
		{"00:2a:131094", 12, true}, // the same number on another file system
		{"fe:00:7", 0, true},
		{"fe:00:8", 0, false}, // only waits
		{"fe:00:9", 0, false},
		{"", 0, false},
	} {
		if pid, held := flockHolder(locks, c.name); pid != c.pid || held != c.held {
			t.Errorf("%s: %d, %t; want %d, %t", c.name, pid, held, c.pid, c.held)
		}
	}
}
