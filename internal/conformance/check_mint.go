//go:build linux

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

func mintChecks() []check {
	printable := func() string {
		var b strings.Builder
		for c := byte('!'); c <= '~'; c++ {
			if c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	return []check{
		{rule: "mint.token", name: "a token is 256 bits in base64url", run: func(t *trial) {
			a := t.anchor(0)
			t.canonical(t.mint(a, a.session))
		}},
		{rule: "mint.token", name: "32 tokens for the same binding are 32 tokens, each good once", run: func(t *trial) {
			a := t.anchor(0)
			seen := map[string]bool{}
			for _, ans := range t.volley(a, many(32, a.mint())...) {
				t.granted(ans, "token")
				same(t, seen[ans.token], false, "handed out before")
				seen[ans.token] = true
			}
			for tok := range seen {
				t.spend(a, a.session, tok)
			}
		}},
		{rule: "mint.binding", name: "the bounds of a binding are within it", run: func(t *trial) {
			a := t.anchor(0)
			for _, b := range [][]string{
				numbers("0", "0", `"!"`, `"~"`, "1"),
				numbers("9007199254740991", "9007199254740991", long(256), long(256), "9007199254740991"),
				numbers("1", "1", `"`+printable()+`"`, `"<&>\u0021\/"`, "2"),
			} {
				minted := t.ask(a, a.mintFor(b...))
				t.granted(minted, "token")
				t.spend(a, a.session, minted.token)
			}
		}},
		{rule: "mint.binding", name: "digests outside their bounds are refused", run: func(t *trial) {
			f := t.family()
			var all []variant
			for _, text := range []string{
				`""`, long(257), `" "`, `"a b"`, `"a "`, `" a"`, `"\u0000"`, `"a\n"`, `"\t"`, `"\u007f"`, "\"\x7f\"", `"é"`, `"\u00e9"`, `"\ud83d\ude00"`,
			} {
				all = append(all,
					variant{"h_source " + short(text, 20), f.anchor.mintFor(with(plain(), 2, `"h_source":`+text)...)},
					variant{"h_payload " + short(text, 20), f.anchor.mintFor(with(plain(), 3, `"h_payload":`+text)...)},
				)
			}
			t.each(f.child, all, "REQUEST_INVALID")
		}},
		{rule: "mint.binding", name: "schema_version 0 is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.ask(f.child, f.anchor.mintFor(with(plain(), 4, `"schema_version":0`)...)), "REQUEST_INVALID")
		}},
	}
}

// numbers are the members of a binding with these values.
func numbers(compaction, request, source, payload, version string) []string {
	return []string{
		`"compaction_epoch":` + compaction, `"request_epoch":` + request, `"h_source":` + source,
		`"h_payload":` + payload, `"schema_version":` + version,
	}
}

// long is a string of n characters.
func long(n int) string { return `"` + strings.Repeat("a", n) + `"` }

// capacity is how many tokens may be pending.
const capacity = 256

func capacityChecks() []check {
	return []check{
		{rule: "mint.capacity", name: "256 tokens may be pending, one more is refused, and all 256 are still good", run: func(t *trial) {
			a, b := t.full()
			t.refused(t.ask(a, a.mint()), "TOKEN_CAPACITY")
			t.refused(t.ask(b, b.mint()), "TOKEN_CAPACITY")
			var consume []string
			for _, tok := range a.tokens {
				consume = append(consume, a.consume(tok))
			}
			for some := range slices.Chunk(consume, 64) {
				for _, ans := range t.volley(a, some...) {
					t.granted(ans, "binding")
				}
			}
			t.spend(b, b.session, t.mint(b, b.session))
		}},
		{rule: "mint.capacity", name: "consuming one makes room for one, for whatever session", run: func(t *trial) {
			a, b := t.full()
			t.spend(a, a.session, a.tokens[100])
			t.mint(b, b.session)
			t.refused(t.ask(a, a.mint()), "TOKEN_CAPACITY")
			t.refused(t.ask(a, a.consume(a.tokens[100])), "TOKEN_REPLAY")
		}},
		{rule: "mint.capacity", name: "no refusal but that for want of room hides it: generation and descent come first", run: func(t *trial) {
			a, b := t.full()
			t.refused(t.ask(b, b.at(7).mint()), "GENERATION_UNKNOWN")
			t.refused(t.ask(b, a.mint()), "NOT_DESCENDANT")
			t.refused(t.ask(b, session{never(), 0}.mint()), "SESSION_UNKNOWN")
			t.proven(b, b.session)
		}},
		{rule: "mint.capacity", name: "a higher generation makes room", run: func(t *trial) {
			a, b := t.full()
			t.raise(a.anchor)
			t.spend(b, b.session, t.mint(b, b.session))
		}},
		{rule: "mint.capacity", name: "the tokens of an anchor that exited make room", run: func(t *trial) {
			a, b := t.full()
			t.must(t.bury(a.actor))
			t.spend(b, b.session, t.mint(b, b.session))
		}},
	}
}

// hoarder is an anchor with all the tokens there may be.
type hoarder struct {
	*anchor
	tokens []string
}

// full returns it, and another anchor that has none.
func (t *trial) full() (hoarder, *anchor) {
	if t.tree != nil {
		t.raise(t.tree.anchor) // earlier checks may have left tokens there
	}
	b := t.anchor(0)
	a := hoarder{t.anchor(0), nil}
	for len(a.tokens) < capacity {
		for _, ans := range t.volley(a, many(min(64, capacity-len(a.tokens)), a.mint())...) {
			if !ans.ok {
				t.broken(fmt.Sprintf("%s after %d tokens", ans, len(a.tokens)), "256 tokens that are pending")
			}
			a.tokens = append(a.tokens, ans.token)
		}
	}
	return a, b
}
