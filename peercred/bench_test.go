//go:build linux

package peercred_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/peercred"
)

// depth is how many parents up the anchor is.
const depth = 8

// lineage is an anchor and, that deep below it, a descendant.
func lineage(b *testing.B) (anchor, deepest *member) {
	b.Helper()
	f := newFamily(b)
	anchor = f.child(nil)
	deepest = anchor
	for range depth {
		deepest = deepest.spawn()
	}
	return anchor, deepest
}

// processorTime has b report it too: unlike the other time it says little of
// who else is on the machine.
func processorTime(b *testing.B) (end func()) {
	b.Helper()
	used := func() time.Duration {
		var r unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkDoubleWalkDepth8 is to be held against BenchmarkRawReadsDepth8.
func BenchmarkDoubleWalkDepth8(b *testing.B) {
	l, pr := listen(b), newProver(b)
	anchor, deepest := lineage(b)
	a := anchored(b, pr, anchor.callsWell(l))
	c := deepest.callsWell(l)
	b.ReportAllocs()
	defer processorTime(b)()
	for b.Loop() {
		if _, err := pr.Identify(c); err != nil {
			b.Fatal(err)
		}
		if chain, err := pr.Descends(c, a); err != nil || len(chain) != depth+1 {
			b.Fatal(chain, err)
		}
	}
}

// BenchmarkRawReadsDepth8 opens, reads and closes the same files twice.
func BenchmarkRawReadsDepth8(b *testing.B) {
	l, pr := listen(b), newProver(b)
	anchor, deepest := lineage(b)
	chain, err := pr.Descends(deepest.callsWell(l), anchored(b, pr, anchor.callsWell(l)))
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	for _, link := range chain {
		names = append(names, strconv.Itoa(link.PID)+"/stat")
	}
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(proc)
	buf := make([]byte, 1024)
	b.ReportAllocs()
	defer processorTime(b)()
	for b.Loop() {
		for range 2 {
			for _, name := range names {
				fd, err := unix.Openat(proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := unix.Read(fd, buf); err != nil {
					b.Fatal(err)
				}
				_ = unix.Close(fd)
			}
		}
	}
}

// BenchmarkCall is a connection of a child of the anchor from dialing to the
// answer, to be held against BenchmarkEcho.
func BenchmarkCall(b *testing.B) {
	pr := newProver(b)
	chain, _ := pr.Explain(os.Getpid(), peercred.Process{})
	a, err := pr.OpenAnchor(chain[1].Process)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	l := listen(b)
	var done sync.WaitGroup
	defer done.Wait()
	defer l.Close()
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				request, err := io.ReadAll(c)
				if err == nil {
					err = c.Verify()
				}
				if err == nil {
					_, err = pr.Identify(c)
				}
				if err == nil {
					_, err = pr.Descends(c, a)
				}
				if err == nil {
					_, _ = c.Write(request)
				}
			}()
		}
	})
	call(b, l.Addr())
}

// BenchmarkEcho is the same without asking who calls.
func BenchmarkEcho(b *testing.B) {
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	var done sync.WaitGroup
	defer done.Wait()
	defer l.Close()
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Second))
				if request, err := io.ReadAll(c); err == nil {
					_, _ = c.Write(request)
				}
			}()
		}
	})
	call(b, l.Addr().String())
}

// call asks one after the other and checks the answers.
func call(b *testing.B, path string) {
	b.Helper()
	request := []byte(`{"action":"authenticate","session_id":"` + strings.Repeat("x", 43) + `","runtime_generation":0}` + "\n")
	b.ReportAllocs()
	defer processorTime(b)()
	for b.Loop() {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
		if err != nil {
			b.Fatal(err)
		}
		_, err = c.Write(request)
		if err == nil {
			err = c.CloseWrite()
		}
		answer, readErr := io.ReadAll(c)
		if err != nil || readErr != nil || !bytes.Equal(answer, request) {
			b.Fatal(err, readErr, string(answer))
		}
		c.Close()
	}
}
