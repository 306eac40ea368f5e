//go:build linux

package broker_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/lease"
)

func prefix(id string) string { return lease.NewSecret(id).Fingerprint()[:8] }

func TestStatusTellsOfSessionsCountersAndRefusals(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor, other := c.actor(), c.actor()
	s := anchor.register(at.socket, 3)
	o := other.register(at.socket, 0)
	spent, _, _ := anchor.mint(s), anchor.mint(s), other.mint(o)
	want(t, "a consumption", anchor.consume(s, spent), ok)
	s = anchor.register(at.socket, 4) // revokes one
	anchor.mint(s)
	anchor.mint(s)
	want(t, "a stranger", other.authenticate(s), "NOT_DESCENDANT")

	st := at.status()
	if st.Version != 1 || st.Socket != at.socket || st.StateDir != at.state || st.InDoubt {
		t.Errorf("the status is %+v", st)
	}
	if st.Pending != 3 || st.Minted != 5 || st.Spent != 1 || st.Revoked != 1 || st.Commits == 0 {
		t.Errorf("the counters are %+v", st)
	}
	if st.Answers["OK"] != 9 || st.Answers["NOT_DESCENDANT"] != 1 || st.Latency.Of != 10 || st.Latency.MostMicros < st.Latency.MedianMicros {
		t.Errorf("the answers are %v, %+v", st.Answers, st.Latency)
	}
	if len(st.Refusals) != 1 || st.Refusals[0].Session != prefix(s.id) || st.Refusals[0].PID != other.pid {
		t.Errorf("the refusals are %+v", st.Refusals)
	}
	for _, row := range st.Sessions {
		want := broker.SessionStatus{Session: prefix(s.id), AnchorPID: anchor.pid, Generation: 4, Pending: 2}
		if row.AnchorPID == other.pid {
			want = broker.SessionStatus{Session: prefix(o.id), AnchorPID: other.pid, Pending: 1}
		}
		if row.StartTime == 0 || row.Command != "exe" {
			t.Errorf("a session is %+v", row)
		}
		row.StartTime, row.Command = 0, ""
		if row != want {
			t.Errorf("a session is %+v, want %+v", row, want)
		}
	}
}

func TestWhyTellsTheChainAndTheHopThatFailed(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor, stranger := c.actor(), c.actor()
	s := anchor.register(at.socket, 0)
	grandchild := anchor.below(2)
	why := func(pid int, id string) broker.Why {
		t.Helper()
		w, err := broker.QueryWhy(t.Context(), at.socket, pid, lease.NewSecret(id))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := why(grandchild.pid, s.id)
	if len(w.Chain) != 3 || w.Chain[0].PID != grandchild.pid || w.Chain[2].PID != anchor.pid || w.Belongs != prefix(s.id) || w.Answers[0].Code != ok {
		t.Errorf("a grandchild: %+v", w)
	}
	if w := why(grandchild.pid, ""); w.Belongs != prefix(s.id) {
		t.Errorf("a grandchild, of all sessions: %+v", w)
	}
	if w := why(stranger.pid, s.id); w.Belongs != "" || len(w.Answers) != 1 || w.Answers[0].Code != "NOT_DESCENDANT" || w.Answers[0].Reason == "" {
		t.Errorf("a stranger: %+v", w)
	}
	if w := why(grandchild.pid, strings.Repeat("A", 43)); len(w.Answers) != 1 || w.Answers[0].Code != "SESSION_UNKNOWN" || len(w.Chain) < 3 {
		t.Errorf("of no session: %+v", w)
	}
	if _, err := broker.QueryWhy(t.Context(), at.socket, 1<<22+1, lease.Secret{}); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("of no process: %v", err)
	}
}

func TestTheControlSocketChangesNothing(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	anchor.mint(s)
	before := at.stateFile()
	for _, question := range []string{
		s.mintFrame(), s.frame("authenticate"), `{"query":"stop"}` + "\n", `{"query":"status","pid":1}` + "\n", "[]\n", "{}", "\n", "",
		`{"query":"why","pid":-1}` + "\n", `{"query":"why","pid":` + strings.Repeat("9", 30) + "}\n",
	} {
		conn := at.control()
		_, _ = io.WriteString(conn, question)
		_ = conn.CloseWrite()
		answer, err := io.ReadAll(conn)
		if err != nil || len(answer) == 0 || strings.Contains(string(answer), `"token":`) {
			t.Errorf("to %q: %q, %v", question, answer, err)
		}
	}
	if at.stateFile() != before {
		t.Error("the state has changed")
	}
	if st := at.status(); st.Minted != 1 || st.Answers["OK"] != 2 {
		t.Errorf("the status is %+v", st)
	}
}

func (s *site) control() *net.UnixConn {
	s.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(filepath.Dir(s.socket), "control.sock")})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestACrowdAtTheControlSocketIsTurnedAwayWithAnErrorAndDelaysNoRequest(t *testing.T) {
	at := newSite(t)
	at.serve(within(time.Minute))
	for range 16 {
		at.control()
	}
	_, err := broker.QueryStatus(t.Context(), at.socket)
	if err == nil || !strings.Contains(err.Error(), "too many ask") {
		t.Errorf("one more: %v", err)
	}
	if _, err := at.client().RegisterAnchor(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

func TestAQuestionEndsWithItsContext(t *testing.T) {
	at := newSite(t)
	mkdir(t, filepath.Dir(at.socket), 0o700)
	silent, err := net.Listen("unix", filepath.Join(filepath.Dir(at.socket), "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := broker.QueryStatus(ctx, at.socket); err == nil {
		t.Error("a broker that says nothing has a status")
	}
}
