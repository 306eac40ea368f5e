package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// waiting is row b: 64 processes that are already there and use the library.
func waiting(ctx context.Context, b *bench) ([]row, error) {
	mine, err := newOurs(b, b.server.TokenEndpoint())
	if err != nil {
		return nil, err
	}
	flock, err := newSimple(b, b.server.TokenEndpoint(), false)
	if err != nil {
		return nil, err
	}
	got, err := inTurn(ctx, b.pairs,
		func(ctx context.Context) (answered, error) { return b.rush(ctx, mine) },
		func(ctx context.Context) (answered, error) { return b.rush(ctx, flock) })
	if err != nil {
		return nil, err
	}
	last := func(a answered) float64 { return milliseconds(a.last) }
	median := func(a answered) float64 { return milliseconds(a.median) }
	cpu := func(a answered) float64 { return milliseconds(a.cpu) }
	compare := func(id, name string, figure func(answered) float64) row {
		a, f := each(got[0], figure), each(got[1], figure)
		return row{
			ID: id, Name: name, Figure: spreadOf(ratios(a, f)),
			Detail: fmt.Sprintf("%s ms, flock %s ms", short(spreadOf(a).Median), short(spreadOf(f).Median)),
		}
	}
	return []row{
		compare("b1", fmt.Sprintf("%d waiting workers, last answer against flock", crowd), last).atMost(0.7),
		compare("b2", "the same, the median answer", median),
		compare("b3", "the same, CPU", cpu),
	}, nil
}

// answered is how long after its release a crowd had its answers, and what
// CPU time that took of all of them together.
type answered struct{ last, median, cpu time.Duration }

// rush lets 64 workers wait with a fresh token, makes it expire, and releases
// them at once.
func (b *bench) rush(ctx context.Context, c contender) (a answered, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.expire(long()); err != nil {
		return a, err
	}
	settle()
	crew, err := b.muster(ctx, slices.Repeat([]job{c.job()}, crowd)...)
	if err != nil {
		return a, fmt.Errorf("workers of %s: %w", c.name(), err)
	}
	if err := c.expire(past()); err != nil {
		crew.dismiss()
		return a, err
	}
	settle()
	err = b.exchanges(1, func() error {
		at := crew.release()
		all, err := crew.wait()
		if err != nil {
			return err
		}
		var after []time.Duration
		for _, d := range all {
			if d.Token != all[0].Token {
				return errors.New("two workers got two tokens")
			}
			after = append(after, d.End-at)
			a.cpu += d.CPU
		}
		slices.Sort(after)
		a.last, a.median = after[len(after)-1], after[len(after)/2]
		return nil
	})
	if err != nil {
		return a, fmt.Errorf("workers of %s: %w", c.name(), err)
	}
	return a, nil
}
