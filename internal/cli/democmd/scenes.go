package democmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
)

const (
	target = "demo"
	crowd  = 64
)

// socket is where the demo's broker listens.
func (st *stage) socket() string { return filepath.Join(st.dir, "run", "broker.sock") }

// child prepares one process of this program.
func (st *stage) child(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, st.self, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "SPENDONCE_") // who runs us may have places, tokens and sessions of their own
	})
	cmd.Env = append(cmd.Env, "SPENDONCE_STATE_DIR="+st.state, "SPENDONCE_SOCKET="+st.socket(), "XDG_CONFIG_HOME="+st.dir)
	return cmd
}

// output runs one process; its error says what the process said.
func (st *stage) output(ctx context.Context, args ...string) ([]byte, error) {
	out, err := st.child(ctx, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, lastLine(exit.Stderr))
	}
	return out, err
}

// signIn signs in through the real form, as a person with a browser does.
func (st *stage) signIn(ctx context.Context) scene {
	const asked = "sign in through the server's form"
	if err := st.login(ctx); err != nil {
		return wrong(asked, err)
	}
	c := st.server.Counters()
	return outcome(asked, counted(c.Logins, 1, "login", "logins"), counted(c.CodeExchanges, 1, "code exchanged", "codes exchanged"))
}

func (st *stage) login(ctx context.Context) error {
	cmd := st.child(ctx, "login", target, "--no-browser", "--issuer", st.server.Issuer(), "--url", st.server.ResourceURL(), "--client-id", st.server.ClientID())
	talk, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(talk)
	for lines.Scan() {
		at := strings.Index(lines.Text(), st.server.AuthorizationURL())
		if at < 0 {
			continue
		}
		redirect, err := spendoncetest.Person{}.Authorize(ctx, strings.TrimSpace(lines.Text()[at:]))
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, redirect.String(), nil)
		if err != nil {
			return err
		}
		page, err := (&http.Client{}).Do(req)
		if err != nil {
			return err
		}
		_ = page.Body.Close()
	}
	_, _ = io.Copy(io.Discard, talk)
	return cmd.Wait()
}

// expire leaves an expired access token in the store.
func (st *stage) expire(ctx context.Context) error {
	if err := st.lifetime(time.Millisecond); err != nil {
		return err
	}
	if out, err := st.child(ctx, "token", target, "--refresh", "--quiet").CombinedOutput(); err != nil {
		return fmt.Errorf("letting the token expire: %w (%s)", err, lastLine(out))
	}
	return st.lifetime(time.Hour)
}

func (st *stage) lifetime(d time.Duration) error {
	return st.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.Lifetime = d })
}

// answer is what one process of a crowd printed.
type answer struct {
	token string
	err   error
}

// ask starts n processes while the server holds its answer, so that they
// really ask at the same time, and returns what they printed.
func (st *stage) ask(ctx context.Context, n int, stdin string, args ...string) ([]answer, error) {
	if err := st.server.Hold(spendoncetest.Before); err != nil {
		return nil, err
	}
	started := make([]*exec.Cmd, 0, n)
	outputs := make([]bytes.Buffer, n)
	talk := make([]bytes.Buffer, n)
	var startErr error
	for i := range n {
		cmd := st.child(ctx, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &outputs[i], &talk[i]
		if startErr = cmd.Start(); startErr != nil {
			break
		}
		started = append(started, cmd)
	}
	waitCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
	err := st.server.WaitForHeld(waitCtx, spendoncetest.Before, 1)
	cancel()
	err = errors.Join(startErr, err, st.server.Release(spendoncetest.Before))
	answers := make([]answer, len(started))
	for i, cmd := range started {
		answers[i].err = cmd.Wait()
		answers[i].token = strings.TrimSpace(outputs[i].String())
		if answers[i].err != nil {
			answers[i].err = fmt.Errorf("%w: %s", answers[i].err, lastLine(talk[i].Bytes()))
		}
	}
	return answers, err
}

func lastLine(b []byte) string {
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// live counts the answers that the server accepts.
func (st *stage) live(answers []answer) (n int, firstErr error) {
	for _, a := range answers {
		if a.err != nil && firstErr == nil {
			firstErr = a.err
		}
		if a.err == nil && st.server.Live(a.token) {
			n++
		}
	}
	return n, firstErr
}

func (st *stage) storm(ctx context.Context) scene {
	asked := fmt.Sprintf("%d processes at once, token expired", crowd)
	if err := st.expire(ctx); err != nil {
		return wrong(asked, err)
	}
	return st.crowdScene(ctx, asked, "", "token", target)
}

func (st *stage) rejected(ctx context.Context) scene {
	asked := fmt.Sprintf("%d processes at once, all got a 401", crowd)
	out, err := st.output(ctx, "token", target)
	if err != nil {
		return wrong(asked, err)
	}
	token := string(bytes.TrimSpace(out))
	if err := st.server.RevokeAccessToken(token); err != nil {
		return wrong(asked, err)
	}
	return st.crowdScene(ctx, asked, token, "token", target, "--rejected", "-")
}

func (st *stage) crowdScene(ctx context.Context, asked, stdin string, args ...string) scene {
	before := st.server.Counters()
	answers, err := st.ask(ctx, crowd, stdin, args...)
	live, askErr := st.live(answers)
	if err := errors.Join(err, askErr); err != nil {
		return wrong(asked, err)
	}
	after := st.server.Counters()
	return outcome(asked,
		counted(after.Exchanges-before.Exchanges, 1, "exchange", "exchanges"),
		counted(after.DoubleSpends-before.DoubleSpends, 0, "double spend", "double spends"),
		counted(live, crowd, "live token", "live tokens"))
}

// crash kills a process while the server has its request.
func (st *stage) crash(ctx context.Context) scene {
	const asked = "one killed in mid-exchange (kill -9), then the next"
	if err := st.expire(ctx); err != nil {
		return wrong(asked, err)
	}
	err := st.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.ReuseGrace = 30 * time.Second })
	if err != nil {
		return wrong(asked, err)
	}
	if err := st.server.Hold(spendoncetest.After); err != nil {
		return wrong(asked, err)
	}
	victim := st.child(ctx, "token", target)
	if err := victim.Start(); err != nil {
		return wrong(asked, err)
	}
	waitCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	heldErr := st.server.WaitForHeld(waitCtx, spendoncetest.After, 1)
	killErr := victim.Process.Kill()
	_ = victim.Wait()
	if err := errors.Join(heldErr, killErr, st.server.Release(spendoncetest.After)); err != nil {
		return wrong(asked, err)
	}
	start := time.Now()
	out, err := st.output(ctx, "token", target)
	took := time.Since(start)
	if err != nil {
		return wrong(asked, err)
	}
	c := st.server.Counters()
	return outcome(asked,
		fact{fmt.Sprintf("served after %d ms", took.Milliseconds()), took < 10*time.Second},
		fact{"session alive", st.server.Live(string(bytes.TrimSpace(out))) && c.FamiliesRevoked == 0})
}

// fullDisk gives a second session a file system of 64 KiB, and fills it up.
func (st *stage) fullDisk(ctx context.Context) scene {
	const asked = "token expired, disk full; then room again"
	disk := filepath.Join(st.dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		return wrong(asked, err)
	}
	unmount, err := mountSmallDisk(disk)
	if err != nil {
		return scene{Asked: asked, Happened: "this user may not mount a file system", OK: true, Skipped: true}
	}
	defer unmount()
	small := *st
	small.state = filepath.Join(disk, "state")
	if err := errors.Join(small.login(ctx), small.expire(ctx)); err != nil {
		return wrong(asked, err)
	}
	store := filepath.Join(small.state, "remote-credentials.json")
	before, err := os.ReadFile(store)
	if err != nil {
		return wrong(asked, err)
	}
	filler := filepath.Join(disk, "filler")
	fill(filler)
	posts := st.server.Counters().TokenPosts
	refused := small.child(ctx, "token", target)
	out, refusedErr := refused.CombinedOutput()
	sent := st.server.Counters().TokenPosts - posts
	after, err := os.ReadFile(store)
	if err != nil {
		return wrong(asked, err)
	}
	if refused.ProcessState.ExitCode() != 6 {
		return wrong(asked, fmt.Errorf("with a full disk: %w: %s", refusedErr, lastLine(out)))
	}
	if err := os.Remove(filler); err != nil {
		return wrong(asked, err)
	}
	token, err := small.output(ctx, "token", target)
	if err != nil {
		return wrong(asked, err)
	}
	return outcome(asked,
		fact{fmt.Sprintf("%d sent", sent), sent == 0},
		fact{"store untouched", bytes.Equal(before, after)},
		fact{"then served", st.server.Live(string(bytes.TrimSpace(token)))})
}

// fill writes until nothing more fits.
func fill(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for size := 4096; size > 0; size /= 2 {
		block := make([]byte, size)
		for {
			if _, err := f.Write(block); err != nil {
				break
			}
		}
	}
}
