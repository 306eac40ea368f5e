package spendoncetest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
)

func formRequest(t *testing.T, to string, kv ...string) (*http.Request, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(withDeadline(t))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form(kv...).Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return req, cancel
}

// send posts a refresh in the background; the status is 0 if it was cut off.
func send(t *testing.T, s *spendoncetest.TokenServer, rt string) (status <-chan int, cancel context.CancelFunc) {
	t.Helper()
	req, cancel := formRequest(t, s.TokenEndpoint(), "grant_type", "refresh_token", "refresh_token", rt)
	ended := make(chan int, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			ended <- 0
			return
		}
		resp.Body.Close()
		ended <- resp.StatusCode
	}()
	return ended, cancel
}

func TestAClientThatDiesBeforeProcessingHasSpentNothing(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	rt := s.NewSession("alice").RefreshToken.Reveal()
	must(t, s.Hold(spendoncetest.Before))
	ended, cancel := send(t, s, rt)
	must(t, s.WaitForHeld(withDeadline(t), spendoncetest.Before, 1))
	if !s.Spendable(rt) || s.Counters().TokenPosts != 1 {
		t.Fatal("the held request was processed")
	}
	cancel()
	<-ended
	must(t, s.WaitFor(withDeadline(t), func(c spendoncetest.Counters) bool { return c.Abandoned == 1 }))
	must(t, s.Release(spendoncetest.Before))
	if a := refresh(t, s, rt); a.status != 200 {
		t.Fatalf("the next client: %d %s", a.status, a.body)
	}
	if c := s.Counters(); c.Exchanges != 1 || c.HeldBefore != 0 || c.DoubleSpends != 0 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestAClientThatDiesAfterProcessingHasSpentItsToken(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{ReuseGrace: time.Hour})
	rt := s.NewSession("alice").RefreshToken.Reveal()
	must(t, s.Hold(spendoncetest.After))
	ended, cancel := send(t, s, rt)
	must(t, s.WaitForHeld(withDeadline(t), spendoncetest.After, 1))
	if s.Spendable(rt) || s.Counters().Exchanges != 1 {
		t.Fatal("the held request was not processed")
	}
	cancel()
	<-ended
	must(t, s.WaitFor(withDeadline(t), func(c spendoncetest.Counters) bool { return c.AnswersLost == 1 }))
	must(t, s.Release(spendoncetest.After))
	if a := refresh(t, s, rt); a.status != 200 || s.Counters().GraceReplays != 1 {
		t.Fatalf("the replay: %d", a.status)
	}
}

func TestAReleaseLetsEverybodyGo(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	must(t, s.Hold(spendoncetest.Before))
	script(t, s, spendoncetest.Answer{}, spendoncetest.Answer{Hold: spendoncetest.After})
	one, _ := send(t, s, s.NewSession("alice").RefreshToken.Reveal())
	two, _ := send(t, s, s.NewSession("bob").RefreshToken.Reveal())
	must(t, s.WaitForHeld(withDeadline(t), spendoncetest.Before, 2))
	must(t, s.Release(spendoncetest.Before))
	must(t, s.WaitForHeld(withDeadline(t), spendoncetest.After, 1))
	must(t, s.Release(spendoncetest.After))
	if a, b := <-one, <-two; a != 200 || b != 200 {
		t.Fatal(a, b)
	}
	if a := refresh(t, s, s.NewSession("carol").RefreshToken.Reveal()); a.status != 200 {
		t.Fatal("the gate is still shut")
	}
}

func TestWaitingEndsWithItsContextOrTheServer(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitForPosts(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, s.Hold(spendoncetest.Before))
	held, _ := send(t, s, s.NewSession("alice").RefreshToken.Reveal())
	must(t, s.WaitForHeld(withDeadline(t), spendoncetest.Before, 1))
	waits := make(chan error)
	go func() { waits <- s.WaitForPosts(withDeadline(t), 2) }()
	must(t, s.Close())
	if err := <-waits; !errors.Is(err, spendoncetest.ErrClosed) {
		t.Error(err)
	}
	if status := <-held; status != 0 {
		t.Error("a held request was answered by a closing server")
	}
	if c := s.Counters(); c.InFlight != 0 || c.HeldBefore != 0 || c.Exchanges != 0 {
		t.Errorf("counters: %+v", c)
	}
}

func TestLatencyBeforeProcessingLetsAClientGoUnspent(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{LatencyBefore: time.Hour})
	rt := s.NewSession("alice").RefreshToken.Reveal()
	ended, cancel := send(t, s, rt)
	must(t, s.WaitForPosts(withDeadline(t), 1))
	cancel()
	<-ended
	must(t, s.WaitFor(withDeadline(t), func(c spendoncetest.Counters) bool { return c.Abandoned == 1 && c.InFlight == 0 }))
	if !s.Spendable(rt) {
		t.Fatal("the token was spent")
	}
	must(t, s.Configure(func(c *spendoncetest.TokenServerConfig) { c.LatencyBefore, c.Latency = 0, time.Hour }))
	_, cancel = send(t, s, rt)
	must(t, s.WaitFor(withDeadline(t), func(c spendoncetest.Counters) bool { return c.Exchanges == 1 }))
	cancel()
	must(t, s.WaitFor(withDeadline(t), func(c spendoncetest.Counters) bool { return c.AnswersLost == 1 }))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
