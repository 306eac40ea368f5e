//go:build linux

package conformance

import (
	"fmt"
	"slices"
)

func registerChecks() []check {
	return []check{
		{rule: "register.new", name: "a new anchor gets a session id of 256 bits in base64url", run: func(t *trial) {
			a := t.anchor(0)
			t.canonical(a.id)
		}},
		{rule: "register.new", name: "two anchors get two sessions", run: func(t *trial) {
			a, b := t.anchor(0), t.anchor(0)
			same(t, a.id == b.id, false, "the same")
			t.proven(a, a.session)
			t.proven(b, b.session)
		}},
		{rule: "register.same", name: "the same generation again gets the same session", run: func(t *trial) {
			a := t.anchor(4)
			for range 3 {
				same(t, t.registered(a.actor, 4).id, a.id, "session")
			}
		}},
		{rule: "register.same", name: "the same generation again leaves the tokens pending", run: func(t *trial) {
			a := t.anchor(4)
			tok := t.mint(a, a.session)
			t.registered(a.actor, 4)
			t.spend(a, a.session, tok)
		}},
		{rule: "register.same", name: "32 first registrations of one process at the same time get one session", run: func(t *trial) {
			a := t.process()
			answers := t.volley(a, many(32, register(2))...)
			for _, ans := range answers {
				t.granted(ans, "session_id")
				same(t, ans.sessionID, answers[0].sessionID, "session")
			}
			t.proven(a, session{answers[0].sessionID, 2})
		}},
		{rule: "register.higher", name: "a higher generation keeps the session id", run: func(t *trial) {
			a := t.anchor(1)
			same(t, t.registered(a.actor, 9).id, a.id, "session")
			t.proven(a, a.at(9))
		}},
		{rule: "register.higher", name: "a higher generation deletes the session's tokens", run: func(t *trial) {
			a := t.anchor(1)
			d := t.child(a)
			one, two := t.mint(a, a.session), t.mint(d, a.session)
			t.raise(a)
			t.refused(t.ask(a, a.consume(one)), "TOKEN_REPLAY")
			t.refused(t.ask(d, a.consume(two)), "TOKEN_REPLAY")
		}},
		{rule: "register.higher", name: "a higher generation leaves the tokens of other sessions pending", run: func(t *trial) {
			a, b := t.anchor(1), t.anchor(1)
			tok := t.mint(b, b.session)
			t.raise(a)
			t.spend(b, b.session, tok)
		}},
		{rule: "register.higher", name: "generation and tokens change in one step: no attempt meanwhile finds one without the other", run: func(t *trial) {
			a := t.anchor(0)
			d := t.child(a)
			for range 8 {
				var consume []string
				for _, ans := range t.volley(d, many(24, a.mint())...) {
					t.granted(ans, "token")
					consume = append(consume, a.consume(ans.token))
				}
				r := meanwhile(d, t.salvo(consume...), func() { t.raise(a) })
				for _, ans := range t.settled(d, consume, r) {
					if !ans.ok {
						t.refused(ans, "GENERATION_STALE")
					}
				}
			}
			t.got, t.want = "ok or GENERATION_STALE", "ok or GENERATION_STALE"
		}},
		{rule: "register.lower", name: "a lower generation is refused and changes nothing", run: func(t *trial) {
			a := t.anchor(5)
			tok := t.mint(a, a.session)
			for _, gen := range []uint64{4, 0} {
				t.refused(t.ask(a, register(gen)), "GENERATION_STALE")
			}
			t.proven(a, a.session)
			t.spend(a, a.session, tok)
		}},
		{rule: "register.nested", name: "a descendant that registers gets a session of its own", run: func(t *trial) {
			outer := t.anchor(1)
			inner := t.anchorBelow(outer, 7)
			same(t, inner.id == outer.id, false, "the same session")
			t.proven(inner, inner.session)
		}},
		{rule: "register.nested", name: "a nested anchor neither ends nor raises nor empties the outer session", run: func(t *trial) {
			outer := t.anchor(1)
			tok := t.mint(outer, outer.session)
			inner := t.anchorBelow(outer, 7)
			t.raise(inner)
			t.proven(outer, outer.session)
			t.spend(outer, outer.session, tok)
		}},
		{rule: "register.nested", name: "a nested anchor and its children may still act for the outer session", run: func(t *trial) {
			outer := t.anchor(1)
			inner := t.anchorBelow(outer, 7)
			t.proven(inner, outer.session)
			t.proven(t.child(inner), outer.session)
		}},
		{rule: "register.nested", name: "the outer anchor may not act for the inner session", run: func(t *trial) {
			outer := t.anchor(1)
			inner := t.anchorBelow(outer, 7)
			t.refused(t.ask(outer, inner.authenticate()), "NOT_DESCENDANT")
		}},
		{rule: "register.nested", name: "the outer session survives the end of a nested anchor", run: func(t *trial) {
			outer := t.anchor(1)
			inner := t.anchorBelow(outer, 7)
			t.must(t.bury(inner.actor))
			t.proven(outer, outer.session)
			t.gone(outer, inner.session)
		}},
		{rule: "register.exec", name: "an anchor that executes another program stays the anchor", run: func(t *trial) {
			a := t.anchor(1)
			d := t.child(a)
			tok := t.mint(d, a.session)
			t.order(a, order{Do: doExec, Argv: t.argv})
			same(t, t.registered(a.actor, 1).id, a.id, "session")
			t.proven(d, a.session)
			t.spend(a, a.session, tok)
		}},
	}
}

func authenticateChecks() []check {
	return []check{
		{rule: "authenticate.proof", name: "a descendant is told its session and generation", run: func(t *trial) {
			f := t.family()
			t.proven(f.grandchild, f.anchor.session)
		}},
		{rule: "authenticate.nothing", name: "authenticating changes nothing", run: func(t *trial) {
			a := t.anchor(2)
			tok := t.mint(a, a.session)
			for range 5 {
				t.proven(a, a.session)
			}
			t.refused(t.ask(a, a.at(3).authenticate()), "GENERATION_UNKNOWN")
			t.proven(a, a.session)
			t.spend(a, a.session, tok)
		}},
		{rule: "generation.stale", name: "each request with an older generation is refused", run: func(t *trial) {
			a := t.anchor(5)
			for _, f := range requestsAt(a.at(4)) {
				t.refused(t.ask(a, f), "GENERATION_STALE")
			}
			for _, f := range requestsAt(a.at(0)) {
				t.refused(t.ask(a, f), "GENERATION_STALE")
			}
		}},
		{rule: "generation.unknown", name: "each request with a generation that was not registered is refused", run: func(t *trial) {
			a := t.anchor(5)
			for _, f := range requestsAt(a.at(6)) {
				t.refused(t.ask(a, f), "GENERATION_UNKNOWN")
			}
			for _, f := range requestsAt(a.at(1<<53 - 1)) {
				t.refused(t.ask(a, f), "GENERATION_UNKNOWN")
			}
			t.proven(a, a.session)
		}},
		{rule: "generation.stale", name: "after a new generation the old one is refused to descendants too", run: func(t *trial) {
			a := t.anchor(0)
			d := t.child(a)
			old := a.session
			t.raise(a)
			t.refused(t.ask(d, old.authenticate()), "GENERATION_STALE")
			t.proven(d, a.session)
		}},
	}
}

// requestsAt are the requests that name a generation, but for registration.
func requestsAt(s session) []string {
	return []string{s.authenticate(), s.mint(), s.consume(never())}
}

// volley lets p make all requests at the same time.
func (t *trial) volley(p process, frames ...string) []answer {
	return t.settled(p, frames, t.order(p, t.salvo(frames...)))
}

// settled notes what was heard after a salvo. What was refused only because
// too much went on at the same time is asked for again.
func (t *trial) settled(p process, frames []string, r reply) []answer {
	if r.Failed != "" {
		t.must(fmt.Errorf("volley: %s", r.Failed))
	}
	var all []answer
	for i, h := range r.Heard {
		a := t.note(h)
		if a.passing() {
			a = t.ask(p, frames[i])
		}
		all = append(all, a)
	}
	return all
}

func (t *trial) salvo(frames ...string) order {
	o := order{Do: doVolley, Socket: t.socket, Shut: true, Read: patience}
	for _, f := range frames {
		o.Frames = append(o.Frames, []byte(f))
	}
	return o
}

// many is the same request n times.
func many(n int, frame string) []string { return slices.Repeat([]string{frame}, n) }
