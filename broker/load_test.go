//go:build linux

package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// load is the process that makes it.
func load() error {
	socket := os.Getenv(loadSocketVariable)
	long, err := time.ParseDuration(os.Getenv(loadDurationVariable))
	if err != nil {
		return err
	}
	end := time.Now().Add(long)
	var (
		mu     sync.Mutex
		wrong  []string
		actors sync.WaitGroup
	)
	for part, scene := range []func(t testing.TB, socket string){
		comeAndGo, comeAndGo, comeAndGo, beSlow, beSlow, drip, talkRubbish, vanish, halfOpen, ask,
	} {
		actors.Go(func() {
			for time.Now().Before(end) {
				text := perform(socket, scene)
				mu.Lock()
				if text != "" {
					wrong = append(wrong, fmt.Sprintf("part %d: %s", part, text))
				}
				failed := len(wrong) > 0
				mu.Unlock()
				if failed {
					return
				}
			}
		})
	}
	actors.Wait()
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// stage is what a scene of the load has for a test. It ends with the scene.
type stage struct {
	testing.TB
	mu    sync.Mutex
	text  bytes.Buffer
	after []func()
}

func (s *stage) Helper() {}

func (s *stage) Cleanup(f func()) { s.after = append(s.after, f) }

func (s *stage) Error(args ...any) { s.say(fmt.Sprint(args...)) }

func (s *stage) Errorf(f string, args ...any) { s.say(fmt.Sprintf(f, args...)) }

func (s *stage) Fatal(args ...any) { s.say(fmt.Sprint(args...)); runtime.Goexit() }

func (s *stage) Fatalf(f string, args ...any) { s.say(fmt.Sprintf(f, args...)); runtime.Goexit() }

func (s *stage) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.WriteString(text + "; ")
}

// perform plays one scene and returns what was wrong in it.
func perform(socket string, scene func(t testing.TB, socket string)) string {
	s := &stage{}
	done := make(chan struct{})
	go func() { // which Fatal ends
		defer close(done)
		defer func() {
			for i := len(s.after) - 1; i >= 0; i-- {
				s.after[i]()
			}
		}()
		scene(s, socket)
	}()
	<-done
	return s.text.String()
}

// patient repeats what was too slow, or came while there were too many: a
// loaded machine may make that of any request.
func patient(try func() string) string {
	for {
		if code := try(); code != "DEADLINE_EXCEEDED" && code != "BUSY" {
			return code
		}
	}
}

// comeAndGo is the life of an anchor.
func comeAndGo(t testing.TB, socket string) {
	c := newCast(t)
	anchor := c.actor()
	s := session{socket: socket}
	register := func(generation uint64) string {
		return patient(func() string {
			r := anchor.tell(order{Do: "register", Path: socket, Generation: generation})
			if r.Code == ok {
				s.id, s.generation = r.Session, generation
			}
			return r.Code
		})
	}
	mint := func(a *actor) (token string) {
		want(t, "a mint", patient(func() string {
			code, minted := a.tryMint(s)
			token = minted
			return code
		}), ok)
		return token
	}
	consume := func(a *actor, of session, token string) string {
		return patient(func() string { return a.consume(of, token) })
	}
	anchor.tell(order{Do: "adopt"})
	want(t, "a registration", register(0), ok)
	children := []*actor{anchor.spawn(), anchor.below(2)}
	for generation := range uint64(3) {
		old := s
		var left []string
		for range 5 {
			spent := mint(children[0])
			results := make(chan string, len(children))
			for _, child := range children { // both at once
				go func() { results <- consume(child, old, spent) }()
			}
			if a, b := <-results, <-results; a == b || a != ok && b != ok || a != "TOKEN_REPLAY" && b != "TOKEN_REPLAY" {
				t.Errorf("two consumptions of one token: %s, %s", a, b)
			}
			left = append(left, mint(children[1]))
		}
		want(t, "a higher generation", register(generation+1), ok)
		want(t, "the old generation", consume(children[0], old, left[0]), "GENERATION_STALE")
		want(t, "a revoked token", consume(children[0], s, left[1]), "TOKEN_REPLAY")
	}
	mint(anchor)
	anchor.end()
	want(t, "a session whose anchor has ended", consume(children[0], s, strings.Repeat("A", 43)), "SESSION_UNKNOWN")
}

func connection(t testing.TB, socket string) *net.UnixConn {
	return (&site{t: t, socket: socket}).connect()
}

// answered reads the answer, which must be one of codes.
func answered(t testing.TB, conn *net.UnixConn, codes ...string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	got := answerOn(t, conn)
	for _, code := range codes {
		if got == code {
			return
		}
	}
	t.Errorf("the answer is %s, want %v", got, codes)
}

func beSlow(t testing.TB, socket string) {
	for range 10 {
		conn := connection(t, socket)
		text := session{}.frame("authenticate")
		_, _ = io.WriteString(conn, text[:rand.IntN(len(text))])
		defer answered(t, conn, "DEADLINE_EXCEEDED", "BUSY")
	}
}

func drip(t testing.TB, socket string) {
	conn := connection(t, socket)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 100 {
		if _, err := io.WriteString(conn, "{"); err != nil {
			break
		}
		<-tick.C
	}
	answered(t, conn, "DEADLINE_EXCEEDED", "BUSY")
}

func talkRubbish(t testing.TB, socket string) {
	frame := []byte(session{id: strings.Repeat("A", 43)}.mintFrame())
	for range 50 {
		conn := connection(t, socket)
		text := bytes.Clone(frame)
		for range 1 + rand.IntN(4) {
			text[rand.IntN(len(text))] = byte(rand.IntN(256))
		}
		if rand.IntN(20) == 0 {
			text = bytes.Repeat(text, 1+rand.IntN(600))
		}
		_, _ = conn.Write(text)
		_ = conn.CloseWrite()
		// A changed value may still make a request, of no session.
		answered(t, conn, "FRAME_MALFORMED", "FRAME_MULTIPLE", "FRAME_UNTERMINATED", "FRAME_TOO_LARGE",
			"REQUEST_INVALID", "ACTION_UNKNOWN", "SESSION_UNKNOWN", "DEADLINE_EXCEEDED", "BUSY")
		conn.Close()
	}
}

func vanish(t testing.TB, socket string) {
	for range 20 {
		conn := connection(t, socket)
		_, _ = io.WriteString(conn, session{id: strings.Repeat("A", 43)}.frame("authenticate"))
		if rand.IntN(2) == 0 {
			_ = conn.CloseWrite()
		}
		conn.Close()
		<-time.After(5 * time.Millisecond) // or there would be room for nobody else
	}
}

func halfOpen(t testing.TB, socket string) {
	for range 20 {
		connection(t, socket)
	}
	<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
}

func ask(t testing.TB, socket string) {
	st := (&site{t: t, socket: socket}).status()
	if st.Pending > 256 || len(st.Sessions) > 100 {
		t.Errorf("the broker says %+v", st)
	}
}
