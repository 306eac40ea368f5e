//go:build linux

package broker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func TestEveryDecisionIsOneLineWithItsReason(t *testing.T) {
	at, c := newSite(t), newCast(t)
	stop := at.serve()
	anchor, stranger := c.actor(), c.actor()
	child := anchor.below(2)
	child.tell(order{Do: "rename", Text: "a \"b\"\n) \xff"})

	type line struct {
		action, code, reason, session, token string
		generation                           any
		pid                                  int
		chain                                []int
	}
	var wanted []line
	s := anchor.register(at.socket, 2)
	wanted = append(wanted, line{action: "register_anchor", code: "OK", session: s.id, generation: 2, pid: anchor.pid, chain: []int{anchor.pid}})
	token := child.mint(s)
	middle := parentOf(t, child.pid)
	chain := []int{child.pid, middle, anchor.pid}
	ours := map[int]bool{child.pid: true, middle: true, anchor.pid: true, stranger.pid: true}
	wanted = append(wanted, line{action: "mint_token", code: "OK", session: s.id, token: token, generation: 2, pid: child.pid, chain: chain})
	child.consume(s, token)
	wanted = append(wanted, line{action: "consume_token", code: "OK", session: s.id, token: token, generation: 2, pid: child.pid, chain: chain})
	child.consume(s, token)
	wanted = append(wanted, line{action: "consume_token", code: "TOKEN_REPLAY", session: s.id, token: token, generation: 2, pid: child.pid, chain: chain})
	child.authenticate(session{at.socket, s.id, 3})
	wanted = append(wanted, line{action: "authenticate", code: "GENERATION_UNKNOWN", session: s.id, generation: 3, pid: child.pid, chain: chain})
	stranger.authenticate(s)
	wanted = append(wanted, line{
		action: "authenticate", code: "NOT_DESCENDANT", session: s.id, generation: 2, pid: stranger.pid,
		reason: "has no parent", chain: ancestors(t, stranger.pid),
	})
	stranger.authenticate(session{at.socket, strings.Repeat("A", 43), 2})
	wanted = append(wanted, line{action: "authenticate", code: "SESSION_UNKNOWN", session: strings.Repeat("A", 43), generation: 2, pid: stranger.pid})
	anchor.tell(order{Do: "register", Path: at.socket, Generation: 1})
	wanted = append(wanted, line{action: "register_anchor", code: "GENERATION_STALE", generation: 1, pid: anchor.pid, chain: []int{anchor.pid}})
	for text, code := range map[string]string{"{}": "FRAME_UNTERMINATED"} {
		conn := at.connect()
		_, _ = io.WriteString(conn, text)
		_ = conn.CloseWrite()
		want(t, text, answerOn(t, conn), code)
		wanted = append(wanted, line{code: code, pid: os.Getpid()})
	}
	stop()

	got := at.audit()
	if len(got) != len(wanted) {
		t.Fatalf("%d lines for %d decisions: %v", len(got), len(wanted), got)
	}
	for i, w := range wanted {
		d := got[i]
		member := func(name string, wants any) {
			if fmt.Sprint(d[name]) != fmt.Sprint(wants) {
				t.Errorf("line %d: %s is %v, want %v: %v", i, name, d[name], wants, d)
			}
		}
		optional := func(text string, of func(string) string) any {
			if text == "" {
				return nil
			}
			return of(text)
		}
		same := func(s string) string { return s }
		member("action", optional(w.action, same))
		member("code", w.code)
		member("session", optional(w.session, prefix))
		member("token", optional(w.token, prefix))
		member("generation", w.generation)
		member("pid", w.pid)
		member("uid", os.Geteuid())
		if at, err := time.Parse(time.RFC3339, fmt.Sprint(d["time"])); err != nil || time.Since(at).Abs() > time.Hour {
			t.Errorf("line %d: the time is %v", i, d["time"])
		}
		if reason, _ := d["reason"].(string); !strings.Contains(reason, w.reason) {
			t.Errorf("line %d: the reason is %q", i, reason)
		}
		var pids []int
		links, _ := d["chain"].([]any)
		for _, l := range links {
			link, _ := l.(map[string]any)
			pid, _ := link["pid"].(float64)
			pids = append(pids, int(pid))
			name := "exe"
			if int(pid) == child.pid {
				name = "a \"b\"\n) \ufffd"
			}
			if start, _ := link["starttime"].(float64); start == 0 || ours[int(pid)] && link["command"] != name {
				t.Errorf("line %d: a link is %v", i, link)
			}
		}
		if fmt.Sprint(pids) != fmt.Sprint(w.chain) {
			t.Errorf("line %d: the chain is %v, want %v", i, pids, w.chain)
		}
		if len(pids) > 0 && d["starttime"] == nil {
			t.Errorf("line %d has no start time", i)
		}
	}
	if mode := modeOf(t, filepath.Join(at.state, "broker-audit.log")); mode != 0o600 {
		t.Errorf("the log has mode %o", mode)
	}
}

func parentOf(t testing.TB, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var state string
	var parent int
	if _, err := fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}

// ancestors are those of a process that a walk meets which finds no anchor.
func ancestors(t testing.TB, pid int) []int {
	t.Helper()
	all := []int{pid}
	for {
		pid = parentOf(t, pid)
		if pid <= 1 {
			return all
		}
		all = append(all, pid)
	}
}

func TestTheAuditLogIsRotated(t *testing.T) {
	at, c := newSite(t), newCast(t)
	stop := at.serve(func(c *broker.Config) { c.AuditLimit = 1000 })
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	old := filepath.Join(at.state, "broker-audit.log.1")
	eventually(t, func() bool {
		anchor.authenticate(s)
		_, err := os.Stat(old)
		return err == nil
	})
	stop()
	if mode := modeOf(t, old); mode != 0o600 {
		t.Errorf("the old log has mode %o", mode)
	}
}

func TestABrokerThatCannotWriteItsAuditLogWarnsOnceAndServes(t *testing.T) {
	at, c := newSite(t), newCast(t)
	mkdir(t, at.state, 0o700)
	mkdir(t, filepath.Join(at.state, "broker-audit.log"), 0o700)
	stop := at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	eventually(t, func() bool { return strings.Contains(at.warned(), "audit log") })
	before := at.warned()
	for range 3 {
		want(t, "a token", anchor.consume(s, anchor.mint(s)), ok)
	}
	stop() // what is left is tried to be written now
	if at.warned() != before {
		t.Errorf("the warnings are %q", at.warned())
	}
}

// A session id is in the state file and in answers, a token in one answer: and
// nowhere else.
func TestNoSessionIDOrTokenIsFoundAnywhereElse(t *testing.T) {
	at, c := newSite(t), newCast(t)
	b := at.run(nil)
	anchor, stranger := c.actor(), c.actor()
	child := anchor.spawn()
	s, own := anchor.register(at.socket, 0), stranger.register(at.socket, 0)
	var values []canary.Value
	secret := func(name, value string) { values = append(values, canary.Of(name, value)) }
	secret("session", s.id)
	secret("another session", own.id)
	said := map[string][]byte{}
	hear := func(name string, r reply) {
		r.Session, r.Token = "", ""
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		said[name] = text
	}
	for i, spend := range []bool{true, false} {
		token := child.mint(s)
		secret(fmt.Sprintf("token %d", i), token)
		o := s.order("consume")
		o.Token = token
		hear(fmt.Sprintf("a stranger's attempt %d", i), stranger.tell(o))
		if spend {
			want(t, "a consumption", child.consume(s, token), ok)
			hear("a replay", child.tell(o))
		}
		o.Generation = 9
		hear(fmt.Sprintf("an attempt of another generation %d", i), child.tell(o))
		o.Token = token[:42]
		hear(fmt.Sprintf("a misspelt token %d", i), child.tell(o))
		o.Session = s.id[:42] + "!"
		hear(fmt.Sprintf("a misspelt session %d", i), child.tell(o))
	}
	for name, frame := range map[string]string{
		"half a frame":   s.frame("authenticate")[:60],
		"two frames":     s.frame("authenticate") + s.frame("authenticate"),
		"a wrong action": s.frame(s.id),
		"a wrong member": strings.Replace(s.frame("authenticate"), "session_id", s.id, 1),
		"two members":    strings.Replace(s.frame("authenticate"), `"session_id"`, `"session_id":0,"session_id"`, 1),
	} {
		conn := at.connect()
		_, _ = io.WriteString(conn, frame)
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(conn)
		said[name] = answer
	}
	for name, question := range map[string]string{
		"status": `{"query":"status"}`, "why": fmt.Sprintf(`{"query":"why","pid":%d}`, child.pid), "a wrong question": `{"query":"` + s.id + `"}`,
	} {
		conn := at.control()
		_, _ = io.WriteString(conn, question+"\n")
		_ = conn.CloseWrite()
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		said[name] = answer
	}
	state := filepath.Join(at.state, "broker-state.json")
	live := []string{state}
	canary.Absent(t, values, canary.Places{Dirs: []string{at.dir}, Allow: live, Outputs: said, Cmdlines: true})
	canary.Absent(t, values[2:], canary.Places{Files: []string{state}})
	b.signal(15)
	out, _ := io.ReadAll(b.out)
	if err := b.wait(); err != nil {
		t.Error(err)
	}
	said["stdout"], said["stderr"] = out, b.stderr.Bytes()
	canary.Absent(t, values, canary.Places{Dirs: []string{at.dir}, Allow: live, Outputs: said, Cmdlines: true})
}
