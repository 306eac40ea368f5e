package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/spendoncetest"
)

const (
	batches   = 50
	batchSize = 200
)

// freshReads is row d: a fresh token asked for in process, with nobody else
// there and while another process refreshes the same target.
func freshReads(ctx context.Context, b *bench) ([]row, error) {
	mine, err := newOurs(b, b.server.TokenEndpoint())
	if err != nil {
		return nil, err
	}
	if err := mine.expire(long()); err != nil {
		return nil, err
	}
	store, err := credstore.Open(credstore.Config{Dir: mine.state()})
	if err != nil {
		return nil, err
	}
	source, err := newSource(store, mine.endpoint, b.server.ClientID())
	if err != nil {
		return nil, err
	}
	got, err := inTurn(ctx, b.pairs,
		func(ctx context.Context) (float64, error) { settle(); return readMany(ctx, source) },
		func(ctx context.Context) (ns float64, err error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			kill, err := b.hold(ctx, mine, "--refresh")
			if err != nil {
				return 0, err
			}
			ns, err = readMany(ctx, source)
			held := b.server.Counters().HeldBefore
			if held != 1 {
				err = errors.Join(err, errors.New("the other process did not refresh all the time"))
			}
			return ns, errors.Join(err, kill(), b.server.WaitFor(ctx, func(n spendoncetest.Counters) bool { return n.InFlight == 0 }))
		})
	if err != nil {
		return nil, err
	}
	alone, beside := spreadOf(got[0]), spreadOf(got[1])
	return []row{
		row{ID: "d1", Name: "fresh token in process", Unit: "µs", Figure: spreadOf(each(got[0], func(ns float64) float64 { return ns / 1000 }))}.atMost(2),
		row{
			ID: "d2", Name: "the same while another process refreshes, against alone", Figure: spreadOf(ratios(got[1], got[0])),
			Detail: fmt.Sprintf("%.0f ns, alone %.0f ns", beside.Median, alone.Median),
		}.atMost(1.5),
	}, nil
}

// readMany returns the median time of a call in ns, of batches: the clock
// costs too much to look at it for each.
func readMany(ctx context.Context, source *credstore.Source) (float64, error) {
	if _, err := source.Get(ctx, credstore.Request{}); err != nil { // remembers the file
		return 0, err
	}
	var took []float64
	for range batches {
		start := time.Now()
		for range batchSize {
			if _, err := source.Get(ctx, credstore.Request{}); err != nil {
				return 0, err
			}
		}
		took = append(took, float64(time.Since(start))/batchSize)
	}
	return spreadOf(took).Median, nil
}

// cheap says how many more pairs are made of what costs milliseconds.
const cheap = 10

// freshCommands is row e: the whole command with a fresh token.
func freshCommands(ctx context.Context, b *bench) ([]row, error) {
	mine, err := newOurs(b, b.server.TokenEndpoint())
	if err != nil {
		return nil, err
	}
	flock, err := newSimple(b, b.server.TokenEndpoint(), false)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(mine.expire(long()), flock.expire(long())); err != nil {
		return nil, err
	}
	nothing, err := exec.LookPath("true")
	if err != nil {
		return nil, err
	}
	type sample struct{ wall, cpu float64 }
	one := func(command func() *exec.Cmd) func(context.Context) (sample, error) {
		return func(context.Context) (sample, error) {
			cmd := command()
			start := time.Now()
			if err := cmd.Run(); err != nil {
				return sample{}, fmt.Errorf("%s: %w", cmd.Path, err)
			}
			wall := time.Since(start)
			return sample{milliseconds(wall), milliseconds(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime())}, nil
		}
	}
	// What is timed prints to /dev/null; that it prints a token is asked once.
	var out []byte
	err = b.exchanges(0, func() error {
		out, err = mine.command().Output()
		return err
	})
	if err != nil || len(out) < 2 || !b.server.Live(string(out[:len(out)-1])) {
		return nil, fmt.Errorf("the command does not print a live token: %w", err)
	}
	got, err := inTurn(ctx, b.pairs*cheap,
		one(func() *exec.Cmd { return mine.command() }),
		one(func() *exec.Cmd { return exec.Command(nothing) }), //nolint:noctx // ends by itself
		one(func() *exec.Cmd { return flock.command() }),
		one(mine.headers))
	if err != nil {
		return nil, err
	}
	wall := func(s sample) float64 { return s.wall }
	cpu := func(s sample) float64 { return s.cpu }
	compare := func(id, what string, figure func(sample) float64) row {
		a, t, f := each(got[0], figure), each(got[1], figure), each(got[2], figure)
		return row{
			ID: id, Name: "fresh token by command, " + what + " against true", Figure: spreadOf(ratios(a, t)),
			Detail: fmt.Sprintf("%s ms, true %s ms, flock %s ms", short(spreadOf(a).Median), short(spreadOf(t).Median), short(spreadOf(f).Median)),
		}
	}
	token, headers := each(got[0], wall), each(got[3], wall)
	helper := row{
		ID: "e3", Name: "fresh token as headers, wall time against token", Figure: spreadOf(ratios(headers, token)),
		Detail: fmt.Sprintf("%s ms, token %s ms", short(spreadOf(headers).Median), short(spreadOf(token).Median)),
	}
	return []row{compare("e1", "wall time", wall).atMost(3.5), compare("e2", "CPU", cpu), helper.atMost(1.2)}, nil
}
