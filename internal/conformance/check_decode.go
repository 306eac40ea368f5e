//go:build linux

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// requests returns one request of each action that would be granted, as the
// list of its members.
func (t *trial) requests(s session) map[string][]string {
	return map[string][]string{
		"register_anchor": {action("register_anchor"), generation(s.generation)},
		"authenticate":    s.members("authenticate"),
		"mint_token":      and(s.members("mint_token"), bound(plain()...)),
		"consume_token":   and(s.members("consume_token"), token(never())),
	}
}

func actions() []string {
	return []string{"register_anchor", "authenticate", "mint_token", "consume_token"}
}

func decodeChecks() []check {
	// Each list of variants is refused with the codes; the caller could have
	// had ok for the request without the fault.
	refused := func(rule, name string, variants func(*trial, session) []variant, codes ...string) check {
		return check{rule: rule, name: name, run: func(t *trial) {
			f := t.family()
			t.each(f.anchor, variants(t, f.anchor.session), codes...)
			t.proven(f.anchor, f.anchor.session)
		}}
	}
	return slices.Concat(malformedChecks(refused), shapeChecks(refused), []check{
		{rule: "decode.values", name: "escapes in values are resolved", run: func(t *trial) {
			a := t.anchor(3)
			same(t, t.ask(a, frame(`"action":"register\u005fanchor"`, generation(3))).sessionID, a.id, "session")
			t.granted(t.ask(a, frame(action("\\u0061uthenticate"), sessionID(escaped(a.id)), generation(3))), "session_id")
			b := with(plain(), 2, `"h_source":"`+escaped("sha256:0f1e")+`"`)
			minted := t.ask(a, a.mintFor(b...))
			t.granted(minted, "token")
			spent := t.spend(a, a.session, escaped(minted.token))
			same(t, spent.binding.HSource, "sha256:0f1e", "h_source")
		}},
		{rule: "decode.numbers", name: "2^53 - 1 is a number", run: func(t *trial) {
			a := t.anchor(1<<53 - 1)
			t.proven(a, a.session)
		}},
	})
}

type refusedCheck func(rule, name string, variants func(*trial, session) []variant, codes ...string) check

func malformedChecks(refused refusedCheck) []check {
	around := func(what, before, after string) func(session) variant {
		return func(s session) variant {
			return variant{what, before + strings.TrimSuffix(s.authenticate(), "\n") + after + "\n"}
		}
	}
	list := func(makers ...func(session) variant) func(*trial, session) []variant {
		return func(_ *trial, s session) (all []variant) {
			for _, m := range makers {
				all = append(all, m(s))
			}
			return all
		}
	}
	// A member more, which does not parse.
	extra := func(texts ...string) func(*trial, session) []variant {
		return func(_ *trial, s session) (all []variant) {
			for _, text := range texts {
				all = append(all, variant{fmt.Sprintf("%q", text), frame(and(s.members("authenticate"), text)...)})
			}
			return all
		}
	}
	whole := func(texts ...string) func(*trial, session) []variant {
		return func(*trial, session) (all []variant) {
			for _, text := range texts {
				all = append(all, variant{fmt.Sprintf("%q", text), text + "\n"})
			}
			return all
		}
	}
	const malformed = "FRAME_MALFORMED"
	return []check{
		refused("decode.utf8", "nothing stands before the object", list(
			around("byte order mark", "\xef\xbb\xbf", ""), around("space", " ", ""), around("tab", "\t", ""),
			around("CR", "\r", ""), around("NUL", "\x00", ""), around("text", "POST ", ""),
		), malformed),
		refused("decode.utf8", "nothing stands between the object and the newline", list(
			around("CR", "", "\r"), around("space", "", " "), around("tab", "", "\t"), around("NUL", "", "\x00"),
			around("second object", "", "{}"), around("brace", "", "}"), around("text", "", "x"),
		), malformed),
		refused("decode.utf8", "bytes that are not UTF-8 are refused, in values and in names", extra(
			"\"a\":\"\xff\"", "\"a\":\"\xc0\xaf\"", "\"a\":\"\xe2\x82\"", "\"a\":\"\xed\xa0\x80\"", "\"a\":\"\xf4\x90\x80\x80\"",
			"\"\xff\":1", "\"a\":{\"\x80\":1}",
		), malformed),
		refused("decode.json", "a value that is no object is refused", whole(
			"", "[]", `"authenticate"`, "1", "true", "null", "[{}]", "authenticate",
		), malformed),
		refused("decode.json", "what RFC 8259 does not allow is refused", func(t *trial, s session) []variant {
			all := extra(
				``, `"a"`, `"a":`, `:1`, `a:1`, `'a':1`, `"a":'b'`, `"a":1 "b":2`, `"a":1,`, `"a":/**/1`, `"a":1//`, `#`,
				`"a":[1,]`, `"a":{"b":1,}`, `"a":[`, `"a":}`, `"a":NaN`, `"a":Infinity`, `"a":True`, `"a":nul`, `"a":undefined`,
				"\"a\":\"\t\"", "\"a\":\"\x01\"", `"a":"\x41"`, `"a":"\u00g0"`, `"a":"\u12"`, `"a":"\'"`, `"a":"b`,
				"\u00a0\"a\":1", "\v\"a\":1",
			)(t, s)
			return append(all, variant{"no closing brace", strings.Replace(s.authenticate(), "}", "", 1)})
		}, malformed),
		refused("decode.json", "numbers that RFC 8259 does not allow are refused", extra(
			`"a":01`, `"a":+1`, `"a":1.`, `"a":.5`, `"a":-`, `"a":0x10`, `"a":1e`, `"a":1_000`, `"a":--1`,
		), malformed),
		refused("decode.surrogates", "half a surrogate pair is refused, in values and in names", extra(
			`"a":"\ud800"`, `"a":"\udc00"`, `"a":"\udc00\ud800"`, `"a":"\ud800x"`, `"a":"\ud800\n"`, `"a":"\ud800\ud800\udc00"`,
			`"\ud800":1`, `"a":{"\udfff":1}`, `"a":["\uDBFF"]`,
		), malformed),
		refused("decode.duplicates", "a member that comes twice is refused, with the same value too", func(t *trial, s session) (all []variant) {
			for _, name := range actions() {
				members := t.requests(s)[name]
				for _, m := range members {
					all = append(all, variant{name + ", twice " + m, frame(and(members, m)...)})
				}
			}
			return append(all,
				variant{"another value", frame(action("authenticate"), sessionID(s.id), generation(s.generation+1), generation(s.generation))},
				variant{"another type", frame(and(s.members("authenticate"), `"session_id":null`)...)},
				variant{"in binding", s.mintFor(and(plain(), plain()[0])...)},
			)
		}, malformed),
		refused("decode.duplicates", "two names that are the same once unescaped are refused", func(_ *trial, s session) []variant {
			return []variant{
				{"action", frame(and(s.members("authenticate"), `"acti\u006fn":"authenticate"`)...)},
				{"generation", frame(and(s.members("authenticate"), `"\u0072untime_generation":1`)...)},
				{"both escaped", frame(and(s.members("authenticate"), `"\u0061":1`, `"\u0061":1`)...)},
				{"in binding", s.mintFor(and(plain(), `"h\u005fsource":"x"`)...)},
			}
		}, malformed),
		refused("decode.duplicates", "unknown members that come twice are refused, on any level", extra(
			`"a":1,"a":1`, `"a":{"b":1,"b":2}`, `"a":[{"b":1,"b":1}]`, `"a":{"b":{"":0,"":0}}`,
		), malformed),
	}
}

// escaped writes every character as an escape.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range text {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}
