//go:build linux

package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/lease"
)

// requests are those that an actor makes by the client of package lease.
var requests = map[string]func(order) reply{
	"register": func(o order) reply {
		return timed(func() (reply, error) {
			s, err := clientOf(o).RegisterAnchor(context.Background(), o.Generation)
			return reply{Session: s.ID.Reveal()}, err
		})
	},
	"authenticate": func(o order) reply {
		return timed(func() (reply, error) {
			return reply{}, clientOf(o).Authenticate(context.Background(), sessionOf(o))
		})
	},
	"mint": func(o order) reply {
		return timed(func() (reply, error) {
			token, err := clientOf(o).Mint(context.Background(), sessionOf(o), o.Binding)
			return reply{Token: token.Reveal()}, err
		})
	},
	"consume": func(o order) reply {
		return timed(func() (reply, error) {
			b, err := clientOf(o).Consume(context.Background(), sessionOf(o), lease.NewSecret(o.Token))
			return reply{Binding: b}, err
		})
	},
	"storm": storm,
}

func clientOf(o order) *lease.Client { return &lease.Client{Socket: o.Path} }

func sessionOf(o order) lease.Session {
	return lease.Session{ID: lease.NewSecret(o.Session), Generation: o.Generation}
}

func timed(request func() (reply, error)) reply {
	began := sharedClock()
	r, err := request()
	r.Began, r.Ended, r.Code = began, sharedClock(), codeOf(err)
	return r
}

func sharedClock() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// What a request may come to beside a refusal.
const (
	ok       = "OK"
	unknown  = "no answer"
	noBroker = "no broker"
)

func codeOf(err error) string {
	var refusal lease.Refusal
	switch {
	case err == nil:
		return ok
	case errors.As(err, &refusal):
		return string(refusal)
	case errors.Is(err, lease.ErrOutcomeUnknown):
		return unknown
	case errors.Is(err, lease.ErrNoBroker):
		return noBroker
	}
	return err.Error()
}

// session is one with the place where it is known.
type session struct {
	socket     string
	id         string
	generation uint64
}

// register makes a an anchor.
func (a *actor) register(socket string, generation uint64) session {
	a.t.Helper()
	r := a.tell(order{Do: "register", Path: socket, Generation: generation})
	if r.Code != ok {
		a.t.Fatalf("process %d registers: %s", a.pid, r.Code)
	}
	return session{socket, r.Session, generation}
}

func (s session) order(what string) order {
	return order{Do: what, Path: s.socket, Session: s.id, Generation: s.generation}
}

func (a *actor) authenticate(s session) string {
	a.t.Helper()
	return a.tell(s.order("authenticate")).Code
}

var aBinding = lease.Binding{CompactionEpoch: 1, RequestEpoch: 2, HSource: "sha256:s", HPayload: "sha256:p", SchemaVersion: 3}

// mint mints a token, which must be granted.
func (a *actor) mint(s session) string {
	a.t.Helper()
	code, token := a.tryMint(s)
	if code != ok {
		a.t.Fatalf("process %d mints: %s", a.pid, code)
	}
	return token
}

func (a *actor) tryMint(s session) (code, token string) {
	a.t.Helper()
	o := s.order("mint")
	o.Binding = aBinding
	r := a.tell(o)
	return r.Code, r.Token
}

func (a *actor) consume(s session, token string) string {
	a.t.Helper()
	o := s.order("consume")
	o.Token = token
	r := a.tell(o)
	if r.Code == ok && r.Binding != aBinding {
		a.t.Errorf("the binding that came back is %+v", r.Binding)
	}
	return r.Code
}

func want(t testing.TB, what, got, code string) {
	t.Helper()
	if got != code {
		t.Errorf("%s: %s, want %s", what, got, code)
	}
}

// byHand are the steps of a request, one at a time.
var byHand = map[string]func(*role, order) (reply, error){
	"dial": func(r *role, o order) (reply, error) {
		c, err := net.Dial("unix", o.Path)
		if err != nil {
			return reply{}, err
		}
		r.conn, _ = c.(*net.UnixConn)
		return reply{}, nil
	},
	"send": func(r *role, o order) (reply, error) {
		_, err := io.WriteString(r.conn, o.Text)
		if errors.Is(err, unix.EPIPE) {
			err = nil // the answer is there already
		}
		return reply{}, err
	},
	"send-descriptors": func(r *role, o order) (reply, error) {
		_, _, err := r.conn.WriteMsgUnix([]byte(o.Text), unix.UnixRights(make([]int, o.N)...), nil) // of stdin
		return reply{}, err
	},
	"half-close": func(r *role, _ order) (reply, error) { return reply{}, r.conn.CloseWrite() },
	"receive": func(r *role, _ order) (reply, error) {
		defer r.conn.Close()
		b, err := io.ReadAll(r.conn)
		if errors.Is(err, unix.ECONNRESET) {
			err = nil // the answer came before all was read
		}
		return reply{Text: string(b)}, err
	},
	// The connection goes to the test, over the line.
	"give": func(r *role, _ order) (reply, error) {
		f, err := r.conn.File()
		if err != nil {
			return reply{}, err
		}
		defer f.Close()
		_, _, err = r.line.WriteMsgUnix([]byte(" "), unix.UnixRights(int(f.Fd())), nil)
		return reply{}, err
	},
}

// frame is a request for what, as bytes.
func (s session) frame(what string) string {
	return fmt.Sprintf(`{"action":%q,"session_id":%q,"runtime_generation":%d}`+"\n", what, s.id, s.generation)
}

// refusalIn is the code in the bytes of an answer, or "OK".
func refusalIn(t testing.TB, answer string) string {
	t.Helper()
	var a struct {
		OK   bool   `json:"ok"`
		Code string `json:"code"`
	}
	if !strings.HasSuffix(answer, "\n") {
		t.Fatalf("the answer is %q", answer)
	}
	if err := json.Unmarshal([]byte(answer), &a); err != nil {
		t.Fatal(err)
	}
	if a.OK {
		return ok
	}
	return a.Code
}

// finish ends what is said on a connection and returns the answer.
func finish(t testing.TB, conn *os.File) string {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// eventually waits for what happens in the background, with a generous bound.
func eventually(t testing.TB, what func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !what(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("what should come about does not")
		}
	}
}
