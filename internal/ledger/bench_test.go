//go:build linux

package ledger_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
)

func benchOpen(b *testing.B, path string, cfg ledger.Config) (*ledger.Ledger, ledger.Session) {
	dir, err := durable.Disk{}.OpenDir(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(dir.Close)
	cfg.BootID = "01234567-89ab-cdef-0123-456789abcdef"
	l, err := ledger.Open(dir, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	s, err := l.Register(time.Time{}, ledger.Anchor{PID: 7, StartTime: 9}, 0, 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	return l, s
}

func BenchmarkRaw(b *testing.B) {
	path := b.TempDir()
	fd, _ := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	defer unix.Close(fd)
	content := make([]byte, 600)
	i := 0
	for b.Loop() {
		i++
		name := fmt.Sprintf(".x%d.tmp", i)
		f, err := unix.Openat(fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = unix.Pwrite(f, content, 0)
		if err := unix.Fsync(f); err != nil {
			b.Fatal(err)
		}
		_ = unix.Renameat(fd, name, fd, "x")
		unix.Close(f)
		if err := unix.Fsync(fd); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPairs(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			path := b.TempDir()
			l, s := benchOpen(b, path, ledger.Config{})
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			start := time.Now()
			before := l.Stats()
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						tok, err := l.Mint(time.Now().Add(time.Second*10), s.ID, 0, ledger.Binding{HSource: "sha256:0123456789", HPayload: "sha256:0123456789", SchemaVersion: 1})
						if err != nil {
							b.Error(err)
							return
						}
						if _, err := l.Consume(time.Now().Add(time.Second*10), s.ID, 0, tok); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			after := l.Stats()
			b.ReportMetric(float64(after.Batched-before.Batched)/float64(after.Batches-before.Batches), "batch")
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "pairs/s")
			b.ReportMetric(float64(time.Since(start).Microseconds())/float64(after.Commits-before.Commits), "us/commit")
			_ = os.Remove(filepath.Join(path, "nothing"))
		})
	}
}
