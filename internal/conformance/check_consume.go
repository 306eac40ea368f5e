//go:build linux

package conformance

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

func consumeChecks() []check {
	return []check{
		{rule: "consume.once", name: "a token is consumed once and is a replay ever after", run: func(t *trial) {
			f := t.family()
			tok := t.mint(f.anchor, f.anchor.session)
			t.spend(f.anchor, f.anchor.session, tok)
			for _, p := range []process{f.anchor, f.child, f.anchor} {
				t.refused(t.ask(p, f.anchor.consume(tok)), "TOKEN_REPLAY")
			}
		}},
		{rule: "consume.once", name: "what one process of the tree mints another may consume", run: func(t *trial) {
			f := t.family()
			for _, pair := range [][2]process{{f.anchor, f.grandchild}, {f.grandchild, f.child}, {f.child, f.anchor}} {
				t.spend(pair[1], f.anchor.session, t.mint(pair[0], f.anchor.session))
			}
		}},
		{rule: "consume.once", name: "of 64 attempts at the same time exactly one is granted", run: func(t *trial) {
			f := t.family()
			tok := t.mint(f.anchor, f.anchor.session)
			t.onlyOne(t.volley(f.child, many(64, f.anchor.consume(tok))...))
			t.refused(t.ask(f.child, f.anchor.consume(tok)), "TOKEN_REPLAY")
		}},
		{rule: "consume.once", name: "of 64 attempts by four processes at the same time exactly one is granted", run: func(t *trial) {
			f := t.family()
			tok := t.mint(f.anchor, f.anchor.session)
			four := []*actor{f.anchor.actor, f.child, f.grandchild, t.child(f.anchor)}
			replies := make([]reply, len(four))
			frames := many(64/len(four), f.anchor.consume(tok))
			var all sync.WaitGroup
			for i, p := range four {
				all.Go(func() { replies[i] = p.do(t.salvo(frames...)) })
			}
			all.Wait()
			var answers []answer
			for i, r := range replies {
				answers = append(answers, t.settled(four[i], frames, r)...)
			}
			t.onlyOne(answers)
		}},
		{rule: "consume.binding", name: "the answer has the binding that was minted, to the last bit", run: func(t *trial) {
			a := t.anchor(0)
			for _, b := range []binding{
				{"1", "7", "sha256:0f1e", "sha256:9c2d", "1"},
				{"9007199254740991", "0", `!"#$%&'()*+,-./:;<=>?@[\]^_` + "`{|}~", "<script>&amp;\\u0041", "9007199254740991"},
				{"0", "9007199254740990", "A", "a", "9007199254740989"},
			} {
				minted := t.ask(a, a.mintFor(numbers(string(b.CompactionEpoch), string(b.RequestEpoch), quote(b.HSource), quote(b.HPayload), string(b.SchemaVersion))...))
				t.granted(minted, "token")
				same(t, t.spend(a, a.session, minted.token).binding, b, "binding")
			}
		}},
		{rule: "consume.replay", name: "a token that was never minted is a replay", run: func(t *trial) {
			f := t.family()
			t.refused(t.ask(f.child, f.anchor.consume(never())), "TOKEN_REPLAY")
			t.refused(t.ask(f.child, f.anchor.consume(f.anchor.id)), "TOKEN_REPLAY")
		}},
		{rule: "consume.replay", name: "a token of an earlier generation is a replay", run: func(t *trial) {
			a := t.anchor(0)
			tok := t.mint(a, a.session)
			old := a.session
			t.raise(a)
			t.refused(t.ask(a, a.consume(tok)), "TOKEN_REPLAY")
			t.refused(t.ask(a, old.consume(tok)), "GENERATION_STALE")
			t.raise(a)
			t.refused(t.ask(a, a.consume(tok)), "TOKEN_REPLAY")
		}},
		{rule: "consume.foreign", name: "a token of another session is a replay and stays pending", run: func(t *trial) {
			a, b := t.anchor(0), t.anchor(0)
			tok := t.mint(a, a.session)
			t.refused(t.ask(b, b.consume(tok)), "TOKEN_REPLAY")
			t.spend(a, a.session, tok)
		}},
		{rule: "consume.foreign", name: "a nested anchor's session does not open the outer one's token", run: func(t *trial) {
			outer := t.anchor(0)
			inner := t.anchorBelow(outer, 0)
			tok := t.mint(outer, outer.session)
			t.refused(t.ask(inner, inner.consume(tok)), "TOKEN_REPLAY")
			t.spend(inner, outer.session, tok)
		}},
		{rule: "consume.foreign", name: "a process outside the tree that knows session and token is refused, and the token stays pending", run: func(t *trial) {
			f := t.family()
			tok := t.mint(f.anchor, f.anchor.session)
			t.refused(t.ask(t.process(), f.anchor.consume(tok)), "NOT_DESCENDANT")
			t.spend(f.child, f.anchor.session, tok)
		}},
		{rule: "consume.malformed", name: "a token in another spelling is malformed, and the right one stays pending", run: func(t *trial) {
			f := t.family()
			tok := t.mint(f.anchor, f.anchor.session)
			t.canonical(tok)
			var all []variant
			for _, other := range []string{
				"", "x", tok[:42], tok + "A", tok + "=", tok[:42] + "=", " " + tok, tok + "\\n", respelt(tok), never() + never(),
				"+" + tok[1:], "/" + tok[1:], tok[:42] + "\\u0000", tok[:41] + "\\u00e9", "\\ud83d\\ude00",
			} {
				all = append(all, variant{fmt.Sprintf("%d characters", len(other)), f.anchor.consume(other)})
			}
			t.each(f.child, all, "TOKEN_MALFORMED")
			t.spend(f.child, f.anchor.session, tok)
		}},
		{rule: "consume.final", name: "consumption is final though nobody reads the answer", run: func(t *trial) {
			f := t.family()
			tok := t.mint(f.anchor, f.anchor.session)
			lost := t.talk(f.child, order{
				Conn: "lost", Socket: t.socket, Chunks: pieces(f.anchor.consume(tok)), Shut: true, Peek: patience, Close: true,
			})
			if lost.End != endUnread {
				t.broken(lost.End, "an answer")
			}
			t.refused(t.ask(f.child, f.anchor.consume(tok)), "TOKEN_REPLAY")
		}},
		{rule: "consume.final", name: "consumption is final though the client is gone before the answer", run: func(t *trial) {
			f := t.family()
			var second answer
			// The second attempt may overtake the first, but not always.
			for range 8 {
				tok := t.mint(f.anchor, f.anchor.session)
				t.talk(f.child, order{
					Conn: "gone", Socket: t.socket, Chunks: pieces(f.anchor.consume(tok)), Shut: true, Close: true,
				})
				t.proven(f.anchor, f.anchor.session)
				<-time.After(50 * time.Millisecond)
				if second = t.ask(f.child, f.anchor.consume(tok)); !second.ok {
					break
				}
			}
			t.refused(second, "TOKEN_REPLAY")
		}},
	}
}

// onlyOne ends the check unless one answer grants and all others are replays.
func (t *trial) onlyOne(answers []answer) {
	granted, others := 0, map[string]int{}
	for _, a := range answers {
		if a.ok {
			granted++
		} else {
			others[a.String()]++
		}
	}
	t.want = fmt.Sprintf("1 granted, TOKEN_REPLAY:%d", len(answers)-1)
	t.got = fmt.Sprintf("%d granted", granted)
	for what, n := range others {
		t.got += fmt.Sprintf(", %s:%d", what, n)
	}
	if granted != 1 || others["TOKEN_REPLAY"] != len(answers)-1 {
		t.broken(t.got, t.want)
	}
}

// quote writes text as a JSON string.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(b)
}
