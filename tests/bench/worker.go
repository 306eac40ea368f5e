package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
	"github.com/spendonce/spendonce/tests/bench/baseline"
)

// workerCommand, as the first argument, makes this program a worker: it does
// the job in its second argument and prints one line of JSON.
const workerCommand = "worker"

// Descriptors of a worker.
const (
	barrierFD = 3 // its end of file lets go
	readyFD   = 4 // a byte on it says "here"
)

// job is what a worker does once the barrier falls: one call, or writes for a
// time.
type job struct {
	Client   string // "spendonce" or "flock"
	Path     string // state directory, or file of the session
	Endpoint string
	ClientID string

	WriteFor time.Duration // write static tokens for so long instead
	Target   string
}

// done is a worker's answer.
type done struct {
	Token      string        `json:"token,omitempty"`
	Start, End time.Duration // of the call, on the monotonic clock of the machine
	CPU        time.Duration // of the call
	Writes     int           `json:"writes,omitempty"`
	Error      string        `json:"error,omitempty"`
}

func work(ctx context.Context, text string, stdout io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	call, err := j.call()
	if err != nil {
		return err
	}
	if j.WriteFor == 0 {
		// A worker has been at work before: this call finds a fresh token.
		if _, err := call(ctx); err != nil {
			return fmt.Errorf("the call before the barrier: %w", err)
		}
	}
	ready := os.NewFile(readyFD, "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return err
	}
	_ = ready.Close()
	if _, err := os.NewFile(barrierFD, "barrier").Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the barrier: %w", err)
	}
	d := done{Start: monotonic(), CPU: -cpuTime()}
	for {
		d.Token, err = call(ctx)
		d.End = monotonic()
		if err != nil {
			d.Error = err.Error()
			break
		}
		if j.WriteFor == 0 {
			break
		}
		if d.End-d.Start > j.WriteFor {
			break // this one does not count: it ended too late
		}
		d.Writes++
	}
	d.CPU += cpuTime()
	return json.NewEncoder(stdout).Encode(d)
}

// call returns the one thing that the worker does.
func (j job) call() (func(context.Context) (string, error), error) {
	if j.Client == "flock" {
		c := &baseline.Client{Path: j.Path, Endpoint: j.Endpoint, ClientID: j.ClientID}
		return c.Token, nil
	}
	store, err := credstore.Open(credstore.Config{Dir: j.Path})
	if err != nil {
		return nil, err
	}
	if j.WriteFor > 0 {
		token := secret.New("static-0123456789abcdefghijklmnopqrstuvwxyz")
		return func(ctx context.Context) (string, error) { return "", store.SetStatic(ctx, j.Target, token) }, nil
	}
	source, err := newSource(store, j.Endpoint, j.ClientID)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		t, err := source.Get(ctx, credstore.Request{})
		return t.AccessToken.Reveal(), err
	}, nil
}

// newSource is what a program that uses the library writes.
func newSource(store *credstore.Store, endpoint, clientID string) (*credstore.Source, error) {
	requester := &oauthflow.Requester{}
	return store.Source(credstore.SourceConfig{
		Target: target,
		Settings: func() (credstore.Settings, error) {
			return credstore.Settings{Pin: credstore.Pin{TokenEndpoint: endpoint, ClientID: clientID}}, nil
		},
		Exchange: func(ctx context.Context, g credstore.Grant) (credstore.Tokens, error) {
			t, err := requester.Refresh(ctx, oauthflow.RefreshRequest{
				Server: oauthflow.Server{TokenEndpoint: g.Pin.TokenEndpoint}, Client: oauthflow.Client{ID: g.Pin.ClientID},
				RefreshToken: g.RefreshToken, Resource: g.Resource,
			})
			return credstore.Tokens{
				AccessToken: t.AccessToken, RefreshToken: t.RefreshToken, ExpiresAt: t.ExpiresAt, Lifetime: t.Lifetime,
			}, err
		},
	})
}

// crew is a crowd of workers behind one barrier.
type crew struct {
	cmds    []*exec.Cmd
	outs    []*bufio.Reader
	barrier *os.File
	stop    func() bool
}

// muster starts a worker for each job and returns when all of them stand at
// the barrier.
func (b *bench) muster(ctx context.Context, jobs ...job) (c *crew, err error) {
	wait, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer wait.Close()
	here, report, err := os.Pipe()
	if err != nil {
		_ = open.Close()
		return nil, err
	}
	defer here.Close()
	c = &crew{barrier: open}
	defer func() {
		if err != nil {
			c.dismiss()
		}
	}()
	for _, j := range jobs {
		text, err := json.Marshal(j)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(b.self, workerCommand, string(text)) //nolint:noctx // killed below
		cmd.Env = []string{"HOME=" + b.dir}
		cmd.Stderr = b.log
		cmd.ExtraFiles = []*os.File{wait, report}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		c.cmds, c.outs = append(c.cmds, cmd), append(c.outs, bufio.NewReader(out))
	}
	_ = report.Close()
	c.stop = context.AfterFunc(ctx, func() { killAll(c.cmds) })
	if _, err := io.ReadFull(here, make([]byte, len(jobs))); err != nil {
		return nil, fmt.Errorf("a worker did not come to the barrier: %w", errors.Join(err, ctx.Err()))
	}
	return c, nil
}

// release opens the barrier and tells when.
func (c *crew) release() time.Duration {
	at := monotonic()
	_ = c.barrier.Close()
	return at
}

// wait returns what the workers answered.
func (c *crew) wait() ([]done, error) {
	all := make([]done, len(c.cmds))
	var errs []error
	for i, out := range c.outs {
		line, _ := out.ReadBytes('\n')
		if err := c.cmds[i].Wait(); err != nil {
			errs = append(errs, fmt.Errorf("a worker: %w", err))
		} else if err := json.Unmarshal(line, &all[i]); err != nil {
			errs = append(errs, err)
		} else if all[i].Error != "" {
			errs = append(errs, errors.New(all[i].Error))
		}
	}
	c.stop()
	return all, errors.Join(errs...)
}

// dismiss ends a crew that nobody will wait for.
func (c *crew) dismiss() {
	_ = c.barrier.Close()
	killAll(c.cmds)
	for _, cmd := range c.cmds {
		_ = cmd.Wait()
	}
}
