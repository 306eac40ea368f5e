// Command bench measures spendonce against the small programs that it
// replaces, on this machine and in one run.
//
// It prints ratios. Two things are measured in turn (A B A B ...), each pair
// gives one ratio, and the median of the ratios is the figure: what slows the
// whole machine slows both. docs/figures.md says what each row is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(code) //nolint:forbidigo // this is main
}

// options are what the command line says.
type options struct {
	binary string
	dir    string
	pairs  int
	only   string
	json   string
	svg    string
	docs   string
	strict bool
}

const (
	exitFailed = 1
	exitUsage  = 2
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	if len(args) == 2 && args[0] == workerCommand {
		if err := work(ctx, args[1], stdout); err != nil {
			return exitFailed, err
		}
		return 0, nil
	}
	if len(args) == 2 && args[0] == echoCommand {
		return exitFailed, echo(ctx, args[1], stdout)
	}
	if len(args) == 2 && args[0] == mcpEchoCommand {
		return exitFailed, mcpEcho(ctx, args[1], stdout)
	}
	if len(args) == 2 && args[0] == depthCommand {
		return 0, descend(ctx, args[1], stdout)
	}
	var opt options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&opt.binary, "bin", "", "the spendonce to measure (default: one is built as for a release)")
	flags.StringVar(&opt.dir, "dir", "", "measure below this directory (default: that of temporary files)")
	flags.IntVar(&opt.pairs, "pairs", 21, "pairs of each comparison; the cheap ones make a multiple of it")
	flags.StringVar(&opt.only, "only", "", "measure only these, by the letters of docs/figures.md, for example a,c")
	flags.StringVar(&opt.json, "json", "", "write the figures to this `file`")
	flags.StringVar(&opt.svg, "svg", "", "draw a storm into this `file`")
	flags.StringVar(&opt.docs, "update", "", "put the table into this `file`, between its markers")
	flags.BoolVar(&opt.strict, "strict", false, "fail if a bound is missed")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0, nil
		}
		return exitUsage, nil
	}
	if flags.NArg() > 0 || opt.pairs < 1 {
		return exitUsage, fmt.Errorf("no arguments are taken, and at least one pair is measured")
	}
	return measureAll(ctx, opt, stdout, stderr)
}

// measurement is one part of the table.
type measurement struct {
	letter string
	what   string
	run    func(context.Context, *bench) ([]row, error)
}

var measurements = []measurement{
	{"a", "storms of whole commands", storms},
	{"b", "storms of waiting workers", waiting},
	{"c", "crashed holders", crashes},
	{"d", "fresh reads in process", freshReads},
	{"e", "fresh reads by command", freshCommands},
	{"f", "locked durable writes", writes},
	{"g", "tokens minted and consumed", spending},
	{"h", "requests that change nothing", asking},
	{"i", "the way from a process to its anchor", ancestry},
	{"j", "calls to an MCP server through a proxy", mcpProxies},
}

func measureAll(ctx context.Context, opt options, stdout, stderr io.Writer) (int, error) {
	b, err := newBench(ctx, opt, stderr)
	if err != nil {
		return exitFailed, err
	}
	defer b.close()
	r := report{Machine: describeMachine(b.dir), Pairs: opt.pairs}
	r.Machine.describe(stdout)
	for _, m := range measurements {
		if opt.only != "" && !slices.Contains(strings.Split(opt.only, ","), m.letter) {
			continue
		}
		fmt.Fprintf(stderr, "bench: %s: %s\n", m.letter, m.what)
		rows, err := m.run(ctx, b)
		if ctx.Err() != nil {
			return exitFailed, context.Cause(ctx)
		}
		if err != nil {
			rows = append(rows, row{ID: m.letter, Name: m.what, Error: err.Error()})
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.LoadAtEnd = loadAverage()
	r.table(stdout)
	if opt.svg != "" {
		err = errors.Join(err, picture(ctx, b, opt.svg))
	}
	if opt.json != "" {
		err = errors.Join(err, r.writeJSON(opt.json))
	}
	if opt.docs != "" {
		err = errors.Join(err, r.updateDocs(opt.docs))
	}
	switch {
	case err != nil:
		return exitFailed, err
	case r.unmeasured() > 0:
		return exitFailed, fmt.Errorf("%d of the figures could not be measured", r.unmeasured())
	case opt.strict && r.missed() > 0:
		return exitFailed, fmt.Errorf("%d of the bounds are missed", r.missed())
	}
	return 0, nil
}
