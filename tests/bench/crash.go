package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
)

// watched is how long a worker waits behind the holder that is then killed:
// long enough to poll as rarely as it ever does.
const watched = 300 * time.Millisecond

// crashes is row c: a holder is killed while the server has its request.
func crashes(ctx context.Context, b *bench) ([]row, error) {
	mine, err := newOurs(b, b.server.TokenEndpoint())
	if err != nil {
		return nil, err
	}
	flock, err := newSimple(b, b.server.TokenEndpoint(), false)
	if err != nil {
		return nil, err
	}
	next := func(c contender, crashed bool) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return b.nextCall(ctx, c, crashed) }
	}
	calls, err := inTurn(ctx, b.pairs, next(mine, false), next(mine, true), next(flock, false), next(flock, true))
	if err != nil {
		return nil, err
	}
	waits, err := inTurn(ctx, b.pairs,
		func(ctx context.Context) (float64, error) { return b.handOver(ctx, mine) },
		func(ctx context.Context) (float64, error) { return b.handOver(ctx, flock) })
	if err != nil {
		return nil, err
	}

	// A crash leaves the flock client nothing to clean up, so what it adds is
	// about zero, or below. Twice that is no bound: the least that counts is
	// what two calls without a crash differ by anyway.
	extra, flockExtra := spreadOf(differences(calls[1], calls[0])), spreadOf(differences(calls[3], calls[2]))
	noise := restlessness(calls[0])
	limit := 2 * max(flockExtra.Median, noise)
	return []row{
		row{
			ID: "c1", Name: "after a crash, the next process' own call: beyond the normal", Unit: "ms", Figure: extra,
			Detail: fmt.Sprintf("%s ms after a crash, %s ms without; flock %s and %s, adds %s ms; noise %s ms",
				short(spreadOf(calls[1]).Median), short(spreadOf(calls[0]).Median),
				short(spreadOf(calls[3]).Median), short(spreadOf(calls[2]).Median), short(flockExtra.Median), short(noise)),
		}.atMost(limit),
		{ID: "c2", Name: "the same call, whole, against flock", Figure: spreadOf(ratios(calls[1], calls[3]))},
		row{
			ID: "c3", Name: "after a crash, one that waits has its token: later than flock", Unit: "ms",
			Figure: spreadOf(differences(waits[0], waits[1])),
			Detail: fmt.Sprintf("%s ms after the kill, flock %s ms", short(spreadOf(waits[0]).Median), short(spreadOf(waits[1]).Median)),
		}.atMost(15),
	}, nil
}

// restlessness is the median difference of two measurements of one thing,
// one after the other.
func restlessness(figures []float64) float64 {
	var d []float64
	for i := 1; i < len(figures); i++ {
		d = append(d, math.Abs(figures[i]-figures[i-1]))
	}
	return spreadOf(d).Median
}

// nextCall returns how long the call of a worker takes, in ms, that finds an
// expired token and, if crashed, what a holder left that was killed before.
func (b *bench) nextCall(ctx context.Context, c contender, crashed bool) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	crew, err := b.lonely(ctx, c)
	if err != nil {
		return 0, err
	}
	if crashed {
		kill, err := b.hold(ctx, c)
		if err == nil {
			err = kill()
		}
		if err != nil {
			crew.dismiss()
			return 0, err
		}
		if err := b.server.WaitFor(ctx, func(n spendoncetest.Counters) bool { return n.InFlight == 0 }); err != nil {
			crew.dismiss()
			return 0, err
		}
	}
	var took time.Duration
	err = b.exchanges(1, func() error {
		crew.release()
		all, err := crew.wait()
		if err == nil {
			took = all[0].End - all[0].Start
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("the next call of %s: %w", c.name(), err)
	}
	return milliseconds(took), nil
}

// handOver returns how long after the kill of the holder a worker that has
// been waiting has its token, in ms.
func (b *bench) handOver(ctx context.Context, c contender) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	crew, err := b.lonely(ctx, c)
	if err != nil {
		return 0, err
	}
	kill, err := b.hold(ctx, c)
	if err != nil {
		crew.dismiss()
		return 0, err
	}
	var took time.Duration
	err = b.exchanges(1, func() error {
		crew.release()
		time.Sleep(watched)
		at := monotonic()
		killErr := kill()
		all, err := crew.wait()
		if err == nil {
			took = all[0].End - at
		}
		return errors.Join(killErr, err)
	})
	if err != nil {
		return 0, fmt.Errorf("the hand-over of %s: %w", c.name(), err)
	}
	return milliseconds(took), nil
}

// lonely returns one worker at the barrier, and an expired token.
func (b *bench) lonely(ctx context.Context, c contender) (*crew, error) {
	if err := c.expire(long()); err != nil {
		return nil, err
	}
	settle()
	crew, err := b.muster(ctx, c.job())
	if err != nil {
		return nil, err
	}
	if err := c.expire(past()); err != nil {
		crew.dismiss()
		return nil, err
	}
	settle()
	return crew, nil
}

// hold starts a command whose request the server keeps unanswered and
// unprocessed, and returns what kills it.
func (b *bench) hold(ctx context.Context, c contender, args ...string) (kill func() error, err error) {
	if err := b.server.Script(spendoncetest.Answer{Hold: spendoncetest.Before}); err != nil {
		return nil, err
	}
	cmd := c.command(args...)
	if err := cmd.Start(); err != nil {
		b.server.ClearScript()
		return nil, err
	}
	kill = func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
		return err
	}
	if err := b.server.WaitForHeld(ctx, spendoncetest.Before, 1); err != nil {
		b.server.ClearScript()
		return nil, errors.Join(err, kill())
	}
	return kill, nil
}
