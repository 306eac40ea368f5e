//go:build linux

package ledger_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
)

// rawReplace is the least that makes new content durable.
func rawReplace(dir int, n int, content []byte) error {
	name := fmt.Sprintf(".raw%d.tmp", n)
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, err = unix.Pwrite(fd, content, 0)
	if err == nil {
		err = unix.Fsync(fd)
	}
	if err == nil {
		err = unix.Renameat(dir, name, dir, "raw")
	}
	_ = unix.Close(fd)
	if err == nil {
		err = unix.Fsync(dir)
	}
	return err
}

// One caller's requests, each beside a raw replacement of as many bytes: both
// see the same disk. The ratio is of the medians.
func BenchmarkCommitBesideARawReplacement(b *testing.B) {
	for _, tokens := range []int{0, 200} {
		b.Run(fmt.Sprint(tokens, "pending"), func(b *testing.B) {
			path := b.TempDir()
			dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			must(b, err)
			defer unix.Close(dir)
			var steps sync.Map
			l := openOn(b, durable.Disk{Hook: func(s durable.Step, do func() error) error {
				start := time.Now()
				err := do()
				n, _ := steps.LoadOrStore(s.Op, new(atomic.Int64))
				n.(*atomic.Int64).Add(int64(time.Since(start)))
				return err
			}}, path, ledger.Config{})
			s := register(b, l, 1, 0)
			for n := range tokens {
				mint(b, l, s, n)
			}
			content, err := os.ReadFile(stateFile(path))
			must(b, err)
			steps.Clear()
			var raw, ours []time.Duration
			for n := range b.N {
				start := time.Now()
				must(b, rawReplace(dir, n, content))
				middle := time.Now()
				token, err := l.Mint(start.Add(time.Minute), s.ID, 0, bound(1))
				end := time.Now()
				must(b, err)
				raw, ours = append(raw, middle.Sub(start)), append(ours, end.Sub(middle))
				must(b, rawReplace(dir, n, content))
				start = time.Now()
				must(b, consumed(l, s, token))
				ours = append(ours, time.Since(start))
				raw = append(raw, start.Sub(end))
			}
			b.ReportMetric(float64(median(raw).Microseconds()), "us/raw")
			b.ReportMetric(float64(median(ours).Microseconds()), "us/commit")
			b.ReportMetric(float64(median(ours))/float64(median(raw)), "ratio")
			sum := int64(0)
			for _, d := range ours {
				sum += int64(d)
			}
			for _, op := range commitSteps {
				n, _ := steps.LoadOrStore(op, new(atomic.Int64))
				x := n.(*atomic.Int64).Load()
				sum -= x
				b.ReportMetric(float64(x)/float64(len(ours))/1000, "us/"+op)
			}
			b.ReportMetric(float64(sum)/float64(len(ours))/1000, "us/else")
		})
	}
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// Mint and consume by so many callers at once.
func BenchmarkPairs(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers, "callers"), func(b *testing.B) {
			l := open(b, b.TempDir(), ledger.Config{})
			s := register(b, l, 1, 0)
			var left atomic.Int64
			left.Store(int64(b.N))
			before := l.Stats()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						token, err := l.Mint(time.Now().Add(time.Minute), s.ID, 0, bound(1))
						if err == nil {
							_, err = l.Consume(time.Now().Add(time.Minute), s.ID, 0, token)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			after := l.Stats()
			b.ReportMetric(float64(after.Batched-before.Batched)/float64(after.Batches-before.Batches), "requests/batch")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}

// What a commit costs beside the disk.
func BenchmarkWithoutADisk(b *testing.B) {
	for _, tokens := range []int{0, 200} {
		b.Run(fmt.Sprint(tokens, "pending"), func(b *testing.B) {
			l := openOn(b, quick(), memory(b), ledger.Config{})
			s := register(b, l, 1, 0)
			for n := range tokens {
				mint(b, l, s, n)
			}
			b.ReportAllocs()
			for b.Loop() {
				must(b, consumed(l, s, mint(b, l, s, 1)))
			}
		})
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	l := openOn(b, quick(), memory(b), ledger.Config{})
	var s ledger.Session
	for n := range 1024 {
		s = register(b, l, n, 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		must(b, l.Authenticate(s.ID, 0))
	}
}
