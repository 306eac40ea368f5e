package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

const (
	writers  = 8
	writeFor = 5 * time.Second
	// together is how many writes make one measurement: what one way leaves
	// in the journal, the first write of the other pays.
	together = 20
)

// writes is row f: the price of the lock on top of a durable write, and
// whether it serves everybody.
func writes(ctx context.Context, b *bench) ([]row, error) {
	mine, err := newOurs(b, b.server.TokenEndpoint())
	if err != nil {
		return nil, err
	}
	store, err := credstore.Open(credstore.Config{Dir: mine.state()})
	if err != nil {
		return nil, err
	}
	token := secret.New("static-0123456789abcdefghijklmnopqrstuvwxyz")
	for i := range writers {
		if err := store.SetStatic(ctx, writer(i), token); err != nil {
			return nil, err
		}
	}
	locked := func(ctx context.Context) (float64, error) {
		start := time.Now()
		for i := range together {
			if err := store.SetStatic(ctx, writer(i%writers), token); err != nil {
				return 0, err
			}
		}
		return milliseconds(time.Since(start)) / together, nil
	}
	content, err := os.ReadFile(mine.store())
	if err != nil {
		return nil, err
	}
	raw := func(context.Context) (float64, error) {
		start := time.Now()
		for range together {
			if err := replace(filepath.Join(mine.state(), "raw"), content); err != nil {
				return 0, err
			}
		}
		return milliseconds(time.Since(start)) / together, nil
	}
	got, err := inTurn(ctx, b.pairs, locked, raw)
	if err != nil {
		return nil, err
	}
	fair, err := inTurn(ctx, max(3, b.pairs/5), func(ctx context.Context) (share, error) { return b.compete(ctx, mine) })
	if err != nil {
		return nil, err
	}
	ms := spreadOf(got[0])
	rate := spreadOf(each(fair[0], func(s share) float64 { return s.rate }))
	return []row{
		row{
			ID: "f1", Name: "rate of locked durable writes, against the bare system calls", Figure: spreadOf(ratios(got[1], got[0])),
			Detail: fmt.Sprintf("%s ms each, bare %s ms", short(ms.Median), short(spreadOf(got[1]).Median)),
		}.atLeast(0.85),
		row{
			ID: "f2", Name: fmt.Sprintf("%d writers for %s, the least served against the best", writers, writeFor),
			Figure: spreadOf(each(fair[0], func(s share) float64 { return s.least })),
			Detail: fmt.Sprintf("%.0f writes/s together, one alone %.0f", rate.Median, 1000/ms.Median),
		}.atLeast(0.6),
	}, nil
}

func writer(i int) string { return fmt.Sprintf("writer-%d", i) }

// replace is the least that replaces a file durably.
func replace(path string, content []byte) error {
	temp := path + ".tmp"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fsync(fd), unix.Close(fd))
}

// share is how a crowd of writers was served.
type share struct {
	least float64 // writes of the least served over those of the best
	rate  float64 // writes in a second, of all
}

// compete lets 8 processes write as fast as they can, each its own target of
// one store.
func (b *bench) compete(ctx context.Context, c *ours) (share, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	jobs := make([]job, writers)
	for i := range jobs {
		jobs[i] = c.job()
		jobs[i].WriteFor, jobs[i].Target = writeFor, writer(i)
	}
	crew, err := b.muster(ctx, jobs...)
	if err != nil {
		return share{}, err
	}
	crew.release()
	all, err := crew.wait()
	if err != nil {
		return share{}, err
	}
	least, most, sum := all[0].Writes, all[0].Writes, 0
	for _, d := range all {
		least, most, sum = min(least, d.Writes), max(most, d.Writes), sum+d.Writes
	}
	if most == 0 {
		return share{}, errors.New("nobody could write")
	}
	return share{float64(least) / float64(most), float64(sum) / writeFor.Seconds()}, nil
}
