package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ran is a crowd that has ended.
type ran struct {
	wall, cpu time.Duration
	tokens    []string // one of each process that succeeded, in the order of their ends
	failed    int      // processes that ended with an error
	talk      string   // what they said of it
}

// runAll starts the commands one right after the other and returns when the
// last has ended. Wall time begins before the first start. CPU time is that
// of the processes, not of this one, which is also their server.
func runAll(ctx context.Context, dir string, cmds []*exec.Cmd) (r ran, err error) {
	// One file for all of them: a pipe each would give this process work.
	out, err := os.CreateTemp(dir, "tokens-")
	if err != nil {
		return ran{}, err
	}
	defer discard(out)
	talk, err := os.CreateTemp(dir, "talk-")
	if err != nil {
		return ran{}, err
	}
	defer discard(talk)
	if out, err = appending(out); err != nil {
		return ran{}, err
	}
	defer out.Close()
	if talk, err = appending(talk); err != nil {
		return ran{}, err
	}
	defer talk.Close()

	started := 0
	stop := context.AfterFunc(ctx, func() { killAll(cmds) })
	defer stop()
	start := time.Now()
	for _, cmd := range cmds {
		cmd.Stdout, cmd.Stderr = out, talk
		if err = cmd.Start(); err != nil {
			break
		}
		started++
	}
	for _, cmd := range cmds[:started] {
		waitErr := cmd.Wait()
		if _, failed := errors.AsType[*exec.ExitError](waitErr); failed {
			r.failed++
		} else if waitErr != nil {
			err = errors.Join(err, waitErr)
		}
		r.cpu += cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime()
	}
	r.wall = time.Since(start)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return ran{}, err
	}
	tokens, err := os.ReadFile(out.Name())
	if err != nil {
		return ran{}, err
	}
	r.tokens = strings.Fields(string(tokens))
	said, err := os.ReadFile(talk.Name())
	r.talk = string(said)
	return r, err
}

func discard(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// appending opens the file anew so that many processes can write to it.
func appending(f *os.File) (*os.File, error) {
	return os.OpenFile(f.Name(), os.O_WRONLY|os.O_APPEND, 0)
}

func killAll(cmds []*exec.Cmd) {
	for _, cmd := range cmds {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	}
}

// agree checks that n processes printed one token and that it is live.
func (b *bench) agree(r ran, n int) error {
	if r.failed > 0 || len(r.tokens) != n {
		return fmt.Errorf("%d of %d processes failed: %.300s", n-len(r.tokens), n, r.talk)
	}
	for _, t := range r.tokens {
		if t != r.tokens[0] {
			return errors.New("two processes printed two tokens")
		}
	}
	if !b.server.Live(r.tokens[0]) {
		return errors.New("the token that all of them printed is dead")
	}
	return nil
}

func commands(c contender, n int) []*exec.Cmd {
	cmds := make([]*exec.Cmd, n)
	for i := range cmds {
		cmds[i] = c.command()
	}
	return cmds
}
