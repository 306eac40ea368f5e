//go:build linux

package conformance

import (
	"fmt"
	"strings"
)

func shapeChecks(refused refusedCheck) []check {
	const invalid = "REQUEST_INVALID"
	return []check{
		refused("decode.session-id", "register_anchor with a session_id is refused, whatever its value", func(_ *trial, s session) (all []variant) {
			for _, v := range []string{`null`, `""`, `"` + s.id + `"`, `"x"`, `0`, `true`, `[]`, `{}`, `{"a":{"b":[1]}}`} {
				all = append(all, variant{v, frame(action("register_anchor"), generation(s.generation), `"session_id":`+v)})
			}
			return append(all, variant{"first", frame(`"session_id":null`, action("register_anchor"), generation(s.generation))})
		}, "SESSION_ID_FORBIDDEN"),
		refused("decode.session-id", "register_anchor with a session_id is told so, whatever else is wrong", func(*trial, session) []variant {
			return []variant{
				{"no generation", frame(action("register_anchor"), `"session_id":null`)},
				{"wrong generation", frame(action("register_anchor"), `"session_id":null`, `"runtime_generation":-1`)},
				{"unknown member", frame(action("register_anchor"), `"session_id":null`, generation(1), `"pid":1`)},
			}
		}, "SESSION_ID_FORBIDDEN"),
		refused("decode.action", "an action that is none of the four is refused", func(_ *trial, s session) (all []variant) {
			for _, a := range []string{
				"", "status", "Authenticate", "AUTHENTICATE", "authenticate ", " authenticate", "authenticat", "authenticate\\u0000",
				"register-anchor", "mint", "\\ud83d\\ude00", "\u017ftatus", "ping",
			} {
				all = append(all, variant{a, frame(with(s.members("authenticate"), 0, action(a))...)})
			}
			return append(all, variant{"long", frame(action(strings.Repeat("a", 60000)))})
		}, "ACTION_UNKNOWN"),
		refused("decode.action", "an unknown action is told so, whatever else is wrong", func(*trial, session) []variant {
			return []variant{
				{"alone", frame(action("status"))},
				{"session_id null", frame(action("status"), `"session_id":null`)},
				{"unknown member", frame(action("status"), `"a":[1]`)},
			}
		}, "ACTION_UNKNOWN"),
		refused("decode.action", "an action that is missing or no string is an invalid request", func(_ *trial, s session) (all []variant) {
			all = []variant{{"{}", "{}\n"}, {"missing", frame(s.members("authenticate")[1:]...)}}
			for _, v := range []string{"null", "1", "true", `["authenticate"]`, `{}`} {
				all = append(all, variant{v, frame(with(s.members("authenticate"), 0, `"action":`+v)...)})
			}
			return all
		}, invalid),
		refused("decode.members", "a request that lacks a member is refused", func(t *trial, s session) (all []variant) {
			for _, name := range actions() {
				members := t.requests(s)[name]
				for i := range members {
					all = append(all, variant{name + " without " + members[i], frame(without(members, i)...)})
				}
			}
			for i := range plain() {
				all = append(all, variant{"binding without " + plain()[i], s.mintFor(without(plain(), i)...)})
			}
			return append(all, variant{"empty binding", s.mintFor()})
		}, invalid),
		refused("decode.members", "a request with another member is refused", func(t *trial, s session) (all []variant) {
			for _, name := range actions() {
				all = append(all, variant{name, frame(and(t.requests(s)[name], `"comment":"x"`)...)})
				all = append(all, variant{name + ", unnamed", frame(and(t.requests(s)[name], `"":null`)...)})
			}
			return append(all,
				variant{"binding", s.mintFor(and(plain(), `"comment":"x"`)...)},
				variant{"token in authenticate", frame(and(s.members("authenticate"), token(never()))...)},
				variant{"binding in consume_token", frame(and(s.members("consume_token"), token(never()), bound(plain()...))...)},
				variant{"token in mint_token", frame(and(s.members("mint_token"), token(never()), bound(plain()...))...)},
				variant{"binding's members outside", frame(append(s.members("mint_token"), plain()...)...)},
			)
		}, invalid),
		refused("register.new", "a caller that names its own identity is refused", func(_ *trial, s session) (all []variant) {
			for _, m := range []string{`"pid":1`, `"uid":0`, `"gid":0`, `"starttime":1`, `"anchor_pid":1`, `"token":"x"`} {
				all = append(all, variant{m, frame(action("register_anchor"), generation(s.generation), m)})
			}
			return all
		}, invalid),
		refused("decode.members", "a name in another case is another name", func(t *trial, s session) (all []variant) {
			change := func(text string) []string {
				name, value, _ := strings.Cut(text, ":")
				first := strings.ToUpper(name[:2]) + name[2:]
				return []string{strings.ToUpper(name) + ":" + value, first + ":" + value}
			}
			for _, name := range actions() {
				members := t.requests(s)[name]
				for i, m := range members {
					for _, changed := range change(m) {
						all = append(all, variant{changed, frame(with(members, i, changed)...)})
						all = append(all, variant{"both, " + changed, frame(and(members, changed)...)})
					}
				}
			}
			for i, m := range plain() {
				all = append(all, variant{change(m)[0], s.mintFor(with(plain(), i, change(m)[0])...)})
			}
			return all
		}, invalid),
		refused("decode.members", "a name that only folding makes equal is another name", func(_ *trial, s session) []variant {
			const longS, kelvin = "\u017f", "\u212a"
			return []variant{
				{"session_id", frame(action("authenticate"), `"`+longS+`ession_id":"`+s.id+`"`, generation(s.generation))},
				{"session_id, escaped", frame(action("authenticate"), `"\u017fession_id":"`+s.id+`"`, generation(s.generation))},
				{"beside the right one", frame(and(s.members("authenticate"), `"`+longS+`ession_id":"x"`)...)},
				{"in register_anchor", frame(action("register_anchor"), generation(s.generation), `"`+longS+`ession_id":null`)},
				{"token", frame(and(s.members("consume_token"), `"to`+kelvin+`en":"`+never()+`"`)...)},
				{"schema_version", s.mintFor(with(plain(), 4, `"`+longS+`chema_version":1`)...)},
			}
		}, invalid),
		refused("decode.members", "a name with an escape in it is another name", func(t *trial, s session) (all []variant) {
			change := func(text string) string { return `"` + escaped(text[1:2]) + text[2:] }
			for _, name := range actions() {
				members := t.requests(s)[name]
				for i, m := range members {
					all = append(all, variant{change(m), frame(with(members, i, change(m))...)})
				}
			}
			for i, m := range plain() {
				all = append(all, variant{change(m), s.mintFor(with(plain(), i, change(m))...)})
			}
			return append(all, variant{
				"session_id in register_anchor", frame(action("register_anchor"), generation(s.generation), `"session\u005fid":null`),
			})
		}, invalid),
		refused("decode.types", "a value of another type is refused, null always", func(t *trial, s session) (all []variant) {
			replace := func(members []string, i int, build func(...string) string) {
				name, value, _ := strings.Cut(members[i], ":")
				for _, v := range []string{"null", "true", "false", "[]", `["x"]`, "{}", "1", `"1"`} {
					sameType := value[0] == v[0] || value[0] >= '0' && value[0] <= '9' && v == "1"
					if name == `"action"` || sameType && v != "{}" {
						continue
					}
					all = append(all, variant{name + ":" + v, build(with(members, i, name+":"+v)...)})
				}
			}
			for _, name := range actions() {
				members := t.requests(s)[name]
				for i := range members {
					replace(members, i, frame)
				}
			}
			for i := range plain() {
				replace(plain(), i, s.mintFor)
			}
			return all
		}, invalid),
		refused("decode.numbers", "an integer that is written in any other way is refused", func(_ *trial, s session) (all []variant) {
			for _, n := range []string{
				"-1", "-0", "1.0", "0.0", "1.5", "1e0", "1E0", "10e-1", "0e0", "9007199254740992", "9007199254740993",
				"9223372036854775807", "18446744073709551615", "18446744073709551616", "1" + strings.Repeat("0", 400), "1e400",
			} {
				all = append(all,
					variant{"generation " + n, frame(action("authenticate"), sessionID(s.id), `"runtime_generation":`+n)},
					variant{"register_anchor " + n, frame(action("register_anchor"), `"runtime_generation":`+n)},
					variant{"compaction_epoch " + n, s.mintFor(with(plain(), 0, `"compaction_epoch":`+n)...)},
					variant{"request_epoch " + n, s.mintFor(with(plain(), 1, `"request_epoch":`+n)...)},
					variant{"schema_version " + n, s.mintFor(with(plain(), 4, `"schema_version":`+n)...)},
				)
			}
			return all
		}, invalid),
		refused("decode.depth", "nesting beyond binding is refused", func(_ *trial, s session) (all []variant) {
			for _, v := range []string{"[]", "[1]", "{}", `{"a":1}`, strings.Repeat("[", 100) + strings.Repeat("]", 100)} {
				all = append(all, variant{"beside the members", frame(and(s.members("authenticate"), `"a":`+v)...)})
			}
			for i, m := range plain() {
				name, value, _ := strings.Cut(m, ":")
				all = append(all,
					variant{name + " in a list", s.mintFor(with(plain(), i, fmt.Sprintf("%s:[%s]", name, value))...)},
					variant{name + " in an object", s.mintFor(with(plain(), i, fmt.Sprintf(`%s:{"a":%s}`, name, value))...)},
				)
			}
			return append(all, variant{"binding in binding", s.mintFor(bound(plain()...))})
		}, invalid),
		refused("decode.depth", "nesting of 30,000 levels is refused", func(_ *trial, s session) []variant {
			const n = 30000
			return []variant{
				{"lists", frame(and(s.members("authenticate"), `"a":`+strings.Repeat("[", n)+strings.Repeat("]", n))...)},
				{"lists that are not closed", frame(and(s.members("authenticate"), `"a":`+strings.Repeat("[", n))...)},
				{"objects", frame(and(s.members("authenticate"), `"a":`+strings.Repeat(`{"":`, n/4)+"1"+strings.Repeat("}", n/4))...)},
			}
		}, invalid, "FRAME_MALFORMED"),
	}
}
