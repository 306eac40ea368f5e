//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/spendoncetest"
)

// hung is echo, but for what has the method "hang", which is never answered,
// and a notification of that name, which is never taken.
func hung(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if bytes.Contains(body, []byte("hang")) {
		<-r.Context().Done()
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	echo(w, r)
}

// mustEnd returns the exit code of a process that has to end by now, and when
// it did.
func mustEnd(t *testing.T, p *process) (code int, took time.Duration) {
	t.Helper()
	began := time.Now()
	late := time.AfterFunc(30*time.Second, func() { _ = p.Process.Kill() })
	defer late.Stop()
	code, _ = p.end()
	return code, time.Since(began)
}

// withInput starts a proxy with an input of the test's own.
func (m *mcpHome) withInput(in *os.File, args ...string) *pipes {
	m.t.Helper()
	p := &pipes{process: m.command(append([]string{"mcp", "proxy", "work"}, args...)...)}
	p.Stdin, p.Stdout = in, nil
	var err error
	p.output, err = p.StdoutPipe()
	must(m.t, err)
	must(m.t, p.Start())
	must(m.t, in.Close())
	m.t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// fill writes until nothing more is taken.
func fill(t *testing.T, in *os.File, message string) {
	t.Helper()
	for {
		must(t, in.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
		if _, err := io.WriteString(in, message+"\n"); os.IsTimeout(err) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// ends are the two ends of what a client may give to a program as its input.
var ends = map[string]func(t *testing.T) (ours, theirs *os.File){
	"a pipe": func(t *testing.T) (*os.File, *os.File) {
		t.Helper()
		r, w, err := os.Pipe()
		must(t, err)
		return w, r
	},
	"a socket": func(t *testing.T) (*os.File, *os.File) {
		t.Helper()
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		must(t, unix.SetNonblock(fds[1], false))
		return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	},
}

func TestAClientThatGoesWhileTheServerTakesNothingIsNoticed(t *testing.T) {
	for kind, open := range ends {
		for how, leave := range map[string]func(f *os.File) error{
			"closes it":        (*os.File).Close,
			"writes no longer": func(f *os.File) error { return unix.Shutdown(int(f.Fd()), unix.SHUT_WR) },
		} {
			if kind == "a pipe" && how != "closes it" {
				continue
			}
			t.Run(kind+", "+how, func(t *testing.T) {
				h := withMCP(t, http.HandlerFunc(hung), lasting)
				ours, theirs := open(t)
				defer ours.Close()
				p := h.withInput(theirs, "--max-message", "65536")
				_, err := io.WriteString(ours, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
				must(t, err)
				fill(t, ours, `{"id":1,"method":"hang","params":"`+strings.Repeat("x", 60_000)+`"}`)
				must(t, leave(ours))
				code, took := mustEnd(t, p.process)
				if code != 0 || h.deleted.Load() != 1 || took > 5*time.Second {
					t.Errorf("exit code %d after %s, %d sessions ended; %s", code, took, h.deleted.Load(), p.err.String())
				}
			})
		}
	}
}

func TestAClientThatGoesWhileTheServerTakesNothingWaitsForAnExchange(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(hung), lasting)
	ours, theirs := ends["a pipe"](t)
	p := h.withInput(theirs, "--max-message", "65536", "--verbose")
	_, err := io.WriteString(ours, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	must(t, err)
	h.awaitTalk(p.process, "msg=sent")
	must(t, h.server.RevokeAccessToken(h.session.AccessToken.Reveal()))
	must(t, h.server.Hold(spendoncetest.After))
	fill(t, ours, `{"id":1,"method":"hang","params":"`+strings.Repeat("x", 60_000)+`"}`)
	h.held(spendoncetest.After, 1)
	must(t, ours.Close())
	h.awaitTalk(p.process, "not all that it said was taken")
	must(t, h.server.Release(spendoncetest.After))
	code, _ := mustEnd(t, p.process)
	if c := h.server.Counters(); code != 0 || c.Exchanges != 1 || h.deleted.Load() != 1 {
		t.Errorf("exit code %d, %d exchanges, %d sessions ended; %s", code, c.Exchanges, h.deleted.Load(), p.err.String())
	}
	if bytes.Contains(h.store(), []byte(h.session.RefreshToken.Reveal())) {
		t.Error("the store holds the token that was spent")
	}
}

func TestAHundredAnswersThatComeWhenTheClientHasSaidAllAreHad(t *testing.T) {
	const n = 100
	var here atomic.Int32
	all := make(chan struct{})
	h := withMCP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"m"`)) {
			if here.Add(1) == n {
				close(all)
			}
			<-all
		}
		echo(w, r)
	}), lasting)
	p := h.pipes()
	p.shakeHands()
	for i := range n {
		p.say(fmt.Sprintf(`{"id":%d,"method":"m"}`, i+1))
	}
	must(t, p.in.Close())
	code, rest := p.over()
	for i := range n {
		if strings.Count(rest, fmt.Sprintf(`{"id":%d,"result":0}`+"\n", i+1)) != 1 {
			t.Errorf("request %d has no answer, or more", i+1)
		}
	}
	if code != 0 || h.deleted.Load() != 1 {
		t.Errorf("exit code %d, %d sessions ended", code, h.deleted.Load())
	}
}

func TestAHundredRequestsThatHangDoNotHoldUpTheEnd(t *testing.T) {
	for how, end := range map[string]func(p *pipes) error{
		"the input ends": func(p *pipes) error { return p.in.Close() },
		"SIGTERM":        func(p *pipes) error { return p.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":         func(p *pipes) error { return p.Process.Signal(syscall.SIGHUP) },
		"SIGINT":         func(p *pipes) error { return p.Process.Signal(syscall.SIGINT) },
	} {
		t.Run(how, func(t *testing.T) {
			h := withMCP(t, http.HandlerFunc(hung), lasting)
			p := h.pipes()
			p.shakeHands()
			before := h.requests.Load()
			for i := range 100 {
				p.say(fmt.Sprintf(`{"id":%d,"method":"hang"}`, i+1))
			}
			h.eventually("they are at the server", func() bool { return h.requests.Load() >= before+100 })
			must(t, end(p))
			code, took := mustEnd(t, p.process)
			if code != 0 || h.deleted.Load() != 1 || took > 5*time.Second {
				t.Errorf("exit code %d after %s, %d sessions ended; %s", code, took, h.deleted.Load(), p.err.String())
			}
		})
	}
}

// The first SIGTERM is heeded; the second one means now.
func TestASecondSignalEndsAProxyInTheMidstOfAnExchange(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), expired)
	must(t, h.server.Hold(spendoncetest.Before))
	p := h.pipes()
	p.say(`{"id":1,"method":"m"}`)
	h.held(spendoncetest.Before, 1)
	must(t, p.Process.Signal(syscall.SIGTERM))
	h.awaitTalk(p.process, "finishing the refresh")
	must(t, p.Process.Signal(syscall.SIGTERM))
	if code, _ := mustEnd(t, p.process); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
}

// A client may stop reading, and keep everything open.
func TestAClientThatDoesNotReadDoesNotHoldUpTheEnd(t *testing.T) {
	for how, end := range map[string]func(p *pipes) error{
		"the input ends": func(p *pipes) error { return p.in.Close() },
		"SIGTERM":        func(p *pipes) error { return p.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(how, func(t *testing.T) {
			var sent atomic.Int32
			h := withMCP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte(`"m"`)) {
					sent.Add(1)
				}
				echo(w, r)
			}), lasting)
			p := h.pipes()
			p.shakeHands()
			for i := range 20 {
				p.say(fmt.Sprintf(`{"id":%d,"method":"m","params":%q}`, i+1, strings.Repeat("x", 20_000)))
			}
			h.eventually("they are at the server", func() bool { return sent.Load() == 20 })
			must(t, end(p))
			code, took := mustEnd(t, p.process)
			if code != 0 || h.deleted.Load() != 1 || took > 5*time.Second {
				t.Errorf("exit code %d after %s, %d sessions ended; %s", code, took, h.deleted.Load(), p.err.String())
			}
		})
	}
}

// What is said on standard error is often read by nobody.
func TestAClientThatDoesNotReadWhatIsSaidBesideLosesNothing(t *testing.T) {
	for _, level := range []string{"--verbose", "--log-json"} {
		t.Run(level, func(t *testing.T) {
			garbage := strings.Repeat("data: garbage\n\n", 3000)
			h := withMCP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte(`"m"`)) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = fmt.Fprintf(w, "%sdata: {\"id\":1,\"result\":0}\n\n", garbage)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				echo(w, r)
			}), lasting)
			r, w, err := os.Pipe()
			must(t, err)
			defer r.Close()
			p := &pipes{process: h.command("mcp", "proxy", "work", level)}
			p.Stdout, p.Stderr = nil, w
			p.output, err = p.StdoutPipe()
			must(t, err)
			p.in, err = p.StdinPipe()
			must(t, err)
			must(t, p.Start())
			must(t, w.Close())
			late := time.AfterFunc(30*time.Second, func() { _ = p.Process.Kill() })
			defer late.Stop()
			p.lines = bufio.NewReader(p.output)
			p.shakeHands()
			if got := p.ask(1); got != `{"id":1,"result":0}` {
				t.Errorf("got %s", got)
			}
			must(t, p.output.Close()) // it will want to say why it ends
			p.say(`{"id":1,"method":"m"}`)
			if code, _ := p.end(); code != 1 || h.deleted.Load() != 1 {
				t.Errorf("exit code %d, %d sessions ended", code, h.deleted.Load())
			}
			var said sync.WaitGroup
			said.Go(func() { _, _ = io.Copy(io.Discard, r) })
			said.Wait()
		})
	}
}
