//go:build linux && !race

package procfs_test

import (
	"os"
	"testing"
)

// The way of every request: an allocation more is a thousand a second.
func TestReadingAgainAllocatesNoName(t *testing.T) {
	fs := openProc(t)
	entry, err := fs.Entry(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer entry.Close()
	if n := testing.AllocsPerRun(100, func() { _, _ = entry.Again() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = fs.Stat(os.Getpid()) }); n > 3 {
		t.Errorf("Stat: %v allocations", n)
	}
}
