//go:build linux

package democmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/lease"
)

// order is what the demo wants of the agent: processes of this program, all
// at once, with the same standard input.
type order struct {
	Args  []string `json:"args"`
	Input string   `json:"input"`
	Times int      `json:"times"`
	// Leave: start one, which takes over the agent's standard input and
	// output, and exit.
	Leave bool `json:"leave"`
}

// result is how one process ended.
type result struct {
	Code int    `json:"code"`
	Out  string `json:"out"`
	Talk string `json:"talk"` // the last line of standard error
}

// refused reports whether the broker said no with this code.
func (r result) refused(code lease.Refusal) bool {
	return r.Code != 0 && strings.HasSuffix(r.Talk, "("+string(code)+")")
}

// agentCommand is the program that becomes an anchor in the demo, as an agent
// would: it starts others, and all of them are members of its session.
func agentCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "agent",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agent(cmd.Context(), os.Stdin, os.Stdout)
		},
	}
}

// agent says which session it is in, then obeys until its input ends.
func agent(ctx context.Context, in, out *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	session := os.Getenv(lease.SessionVariable)
	if err := json.NewEncoder(out).Encode(session); err != nil {
		return err
	}
	orders := json.NewDecoder(in)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading what to do: %w", err)
		}
		if o.Leave {
			last := exec.Command(self, o.Args...) //nolint:noctx // it is to outlive us
			last.Stdin, last.Stdout, last.Stderr = in, out, out
			return last.Start()
		}
		results, err := together(o, func() *exec.Cmd { return exec.CommandContext(ctx, self, o.Args...) })
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(results); err != nil {
			return err
		}
	}
}

// together starts all processes before any of them gets its input: they stand
// ready and then go at once.
func together(o order, prepare func() *exec.Cmd) ([]result, error) {
	type one struct {
		cmd       *exec.Cmd
		in        io.WriteCloser
		out, talk bytes.Buffer
	}
	started := make([]*one, 0, o.Times)
	var err error
	for range o.Times {
		p := &one{cmd: prepare()}
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.talk
		if p.in, err = p.cmd.StdinPipe(); err == nil {
			err = p.cmd.Start()
		}
		if err != nil {
			break
		}
		started = append(started, p)
	}
	for _, p := range started {
		_, _ = io.WriteString(p.in, o.Input) // who has ended reads nothing
		_ = p.in.Close()
	}
	results := make([]result, len(started))
	for i, p := range started {
		waitErr := p.cmd.Wait()
		results[i] = result{p.cmd.ProcessState.ExitCode(), strings.TrimSpace(p.out.String()), strings.TrimPrefix(lastLine(p.talk.Bytes()), "spendonce: ")}
		var exit *exec.ExitError
		if waitErr != nil && !errors.As(waitErr, &exit) {
			err = errors.Join(err, waitErr)
		}
	}
	return results, err
}
