package main

import (
	"context"
	"fmt"
	"time"
)

// storms is row a: 64 whole commands with an expired token.
func storms(ctx context.Context, b *bench) ([]row, error) {
	mine, err := newOurs(b, b.server.TokenEndpoint())
	if err != nil {
		return nil, err
	}
	flock, err := newSimple(b, b.server.TokenEndpoint(), false)
	if err != nil {
		return nil, err
	}
	unlocked, err := newSimple(b, b.server.TokenEndpoint(), true)
	if err != nil {
		return nil, err
	}
	var twice, dead []float64
	got, err := inTurn(ctx, b.pairs,
		func(ctx context.Context) (ran, error) { return b.storm(ctx, mine) },
		func(ctx context.Context) (ran, error) { return b.storm(ctx, flock) },
		func(ctx context.Context) (ran, error) {
			before := b.server.Counters().DoubleSpends
			r, err := b.stormUnlocked(ctx, unlocked)
			twice = append(twice, float64(b.server.Counters().DoubleSpends-before))
			live := 0
			for _, t := range r.tokens {
				if b.server.Live(t) {
					live++
				}
			}
			dead = append(dead, float64(crowd-live))
			return r, err
		})
	if err != nil {
		return nil, err
	}
	wall := func(r ran) float64 { return milliseconds(r.wall) }
	cpu := func(r ran) float64 { return milliseconds(r.cpu) }
	compare := func(id, what string, figure func(ran) float64) row {
		a, f, u := each(got[0], figure), each(got[1], figure), each(got[2], figure)
		return row{
			ID: id, Name: fmt.Sprintf("storm of %d commands, %s against flock", crowd, what), Figure: spreadOf(ratios(a, f)),
			Detail: fmt.Sprintf("%s ms, flock %s ms, unlocked %s ms", short(spreadOf(a).Median), short(spreadOf(f).Median), short(spreadOf(u).Median)),
		}
	}
	return []row{
		compare("a1", "wall time", wall).atMost(1.2),
		compare("a2", "CPU", cpu).atMost(1.3),
		{
			ID: "a3", Name: "the same storm without a lock: double spends", Figure: spreadOf(twice[1:]),
			Detail: fmt.Sprintf("%.0f of %d processes end without a live token", spreadOf(dead[1:]).Median, crowd),
		},
	}, nil
}

// storm lets the token expire and 64 commands ask for one.
func (b *bench) storm(ctx context.Context, c contender) (r ran, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.expire(past()); err != nil {
		return ran{}, err
	}
	settle()
	err = b.exchanges(1, func() error {
		r, err = runAll(ctx, b.dir, commands(c, crowd))
		if err != nil {
			return err
		}
		return b.agree(r, crowd)
	})
	if err != nil {
		return ran{}, fmt.Errorf("storm of %s: %w", c.name(), err)
	}
	return r, nil
}

// stormUnlocked does not check what comes of it. It needs a new session each
// time, because the server ends one whose token was spent twice.
func (b *bench) stormUnlocked(ctx context.Context, c contender) (ran, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.signIn(past()); err != nil {
		return ran{}, err
	}
	settle()
	return runAll(ctx, b.dir, commands(c, crowd))
}

// settle lets what the last round left behind come to rest, and the store's
// file grow old enough to be remembered.
func settle() { time.Sleep(30 * time.Millisecond) }
