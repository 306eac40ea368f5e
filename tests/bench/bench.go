package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
)

const (
	crowd   = 64                   // processes of a storm
	service = 5 * time.Millisecond // of the token server
	// patience ends what hangs; nothing that is measured comes near it.
	patience = time.Minute
)

// bench is what the measurements share.
type bench struct {
	dir        string
	self       string // this program, to be started as a worker
	spendonce  string
	flocktoken string
	pairs      int
	server     *spendoncetest.TokenServer
	log        io.Writer
}

func newBench(ctx context.Context, opt options, log io.Writer) (b *bench, err error) {
	dir, err := os.MkdirTemp(opt.dir, "spendonce-bench-")
	if err != nil {
		return nil, err
	}
	b = &bench{dir: dir, pairs: opt.pairs, log: log, spendonce: opt.binary}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if b.spendonce == "" {
		b.spendonce = filepath.Join(dir, "spendonce")
		if err := build(ctx, "..", b.spendonce, "./cmd/spendonce"); err != nil {
			return nil, err
		}
	} else if b.spendonce, err = filepath.Abs(b.spendonce); err != nil {
		return nil, err
	}
	b.flocktoken = filepath.Join(dir, "flocktoken")
	if err := build(ctx, ".", b.flocktoken, "./bench/baseline/flocktoken"); err != nil {
		return nil, err
	}
	b.server, err = spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{Latency: service})
	return b, err
}

// build makes a binary as a release is built: a C library that is loaded at
// each start, or none, makes a difference of its own.
func build(ctx context.Context, dir, to, what string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, what)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s (run this in the directory tests): %w\n%s", what, err, out)
	}
	return nil
}

func (b *bench) close() {
	if b.server != nil {
		_ = b.server.Close()
	}
	_ = os.RemoveAll(b.dir)
}

// place makes a directory of its own for a contender.
func (b *bench) place(name string) (string, error) {
	return os.MkdirTemp(b.dir, name+"-")
}

// exchanges runs f and checks that the server saw want exchanges meanwhile
// and no token spent twice.
func (b *bench) exchanges(want int, f func() error) error {
	before := b.server.Counters()
	if err := f(); err != nil {
		return err
	}
	after := b.server.Counters()
	if n, twice := after.Exchanges-before.Exchanges, after.DoubleSpends-before.DoubleSpends; n != want || twice != 0 {
		return fmt.Errorf("%d exchanges and %d double spends where %d and none were due", n, twice, want)
	}
	return nil
}
