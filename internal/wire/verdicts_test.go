package wire_test

import (
	"fmt"
	"strings"

	"github.com/spendonce/spendonce/internal/wire"
)

// A verdict is a frame and the code it is refused with, none if it is a
// request.
type verdict struct {
	name  string
	frame string
	code  wire.Code
}

func register(members string) string { return `{"action":"register_anchor"` + members + `}` }
func auth(members string) string {
	return `{"action":"authenticate","session_id":"` + someID + `"` + members + `}`
}
func mint(binding string) string { return auth(`,"runtime_generation":0,"binding":` + binding) }
func consume(members string) string {
	return strings.Replace(auth(members), "authenticate", "consume_token", 1)
}
func mintWith(compaction, request, source, payload, schema string) string {
	return strings.Replace(mint(fmt.Sprintf(`{"compaction_epoch":%s,"request_epoch":%s,"h_source":%s,"h_payload":%s,"schema_version":%s}`,
		compaction, request, source, payload, schema)), "authenticate", "mint_token", 1)
}

var (
	goodRegister = register(`,"runtime_generation":0`)
	goodAuth     = auth(`,"runtime_generation":0`)
	goodConsume  = consume(`,"runtime_generation":0,"token":"` + otherID + `"`)
	goodMint     = mintWith("1", "2", `"src"`, `"pay"`, "3")
)

// verdicts has at least one frame for every sentence about frames, and seeds
// the fuzzer.
func verdicts() []verdict {
	const (
		malformed = wire.CodeFrameMalformed
		forbidden = wire.CodeSessionIDForbidden
		unknown   = wire.CodeActionUnknown
		invalid   = wire.CodeRequestInvalid
	)
	nested := func(levels int) string {
		return register(`,"x":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1))
	}
	return []verdict{
		{"register", goodRegister, ""},
		{"authenticate", goodAuth, ""},
		{"mint", goodMint, ""},
		{"consume", goodConsume, ""},
		{"members in another order", `{"runtime_generation":0,"action":"register_anchor"}`, ""},
		{"space between tokens", "{ \"action\"\t:\r\"register_anchor\" , \"runtime_generation\" : 0 }", ""},
		{"escaped values", `{"action":"\u0072egister_anchor","runtime_generation":0}`, ""},
		{"an escaped id", strings.Replace(goodAuth, `:"A`, `:"\u0041`, 1), ""},
		{"an escaped digest", mintWith("1", "2", `"\u0073\/rc"`, `"pay"`, "3"), ""},
		{"an id that is none is the session's matter", `{"action":"authenticate","session_id":"","runtime_generation":0}`, ""},
		{"a token that is none is the token's matter", consume(`,"runtime_generation":0,"token":""`), ""},
		{"an id of any letters", `{"action":"authenticate","session_id":"ſ\ud83d\ude00\u0000","runtime_generation":0}`, ""},

		// The ends.
		{"nothing", "", malformed},
		{"a byte order mark", "\ufeff" + goodRegister, malformed},
		{"a NUL before", "\x00" + goodRegister, malformed},
		{"a NUL behind", goodRegister + "\x00", malformed},
		{"a CR before", "\r" + goodRegister, malformed},
		{"a CR behind", goodRegister + "\r", malformed},
		{"a space before", " " + goodRegister, malformed},
		{"a space behind", goodRegister + " ", malformed},
		{"a tab behind", goodRegister + "\t", malformed},
		{"a newline behind", goodRegister + "\n", malformed},
		{"an array", "[" + goodRegister + "]", malformed},
		{"null", "null", malformed},
		{"a string", `"{}"`, malformed},
		{"one brace", "{", malformed},
		{"the other brace", "}", malformed},
		{"two objects", goodRegister + goodRegister, malformed},
		{"two objects and a comma", goodRegister + "," + goodRegister, malformed},
		{"a brace too many", goodRegister + "}", malformed},
		{"a brace too few", `{"a":{}`, malformed},

		// JSON, anywhere in the frame.
		{"no JSON", "{action}", malformed},
		{"no value", `{"action"}`, malformed},
		{"no colon", `{"action" "register_anchor"}`, malformed},
		{"a comma at the end", register(`,"runtime_generation":0,`), malformed},
		{"a comma at the start", `{,"action":"register_anchor"}`, malformed},
		{"two commas", register(`,,"runtime_generation":0`), malformed},
		{"no comma", register(`"runtime_generation":0`), malformed},
		{"single quotes", `{'action':'register_anchor'}`, malformed},
		{"a name that is a number", `{1:2}`, malformed},
		{"a name that is null", `{null:2}`, malformed},
		{"a name that is an object", `{{}:2}`, malformed},
		{"a comment", register(`,"runtime_generation":0/**/`), malformed},
		{"a string that does not end", `{"action":"register_anchor}`, malformed},
		{"an escape that does not exist", `{"action":"\x72egister_anchor","runtime_generation":0}`, malformed},
		{"an escape that is cut off", `{"action":"\u007"}`, malformed},
		{"a control character in a string", "{\"action\":\"register_anchor\x01\"}", malformed},
		{"a newline in a string", "{\"action\":\"register_anchor\n\"}", malformed},
		{"a NUL in a string", "{\"action\":\"register_anchor\x00\"}", malformed},
		{"a NUL between tokens", "{\x00\"action\":\"register_anchor\"}", malformed},
		{"a wide space between tokens", "{\u00a0\"action\":\"register_anchor\"}", malformed},
		{"a leading zero", register(`,"runtime_generation":01`), malformed},
		{"a leading plus", register(`,"runtime_generation":+1`), malformed},
		{"a hexadecimal number", register(`,"runtime_generation":0x1`), malformed},
		{"a leading point", register(`,"runtime_generation":.5`), malformed},
		{"NaN", register(`,"runtime_generation":NaN`), malformed},
		{"a misspelt literal", register(`,"runtime_generation":nul`), malformed},
		{"invalid UTF-8 in a value", "{\"action\":\"register_anchor\xff\"}", malformed},
		{"invalid UTF-8 in a name", "{\"action\xff\":\"register_anchor\"}", malformed},
		{"invalid UTF-8 between tokens", "{\"action\":\xff\"register_anchor\"}", malformed},
		{"an overlong letter", "{\"action\":\"\xc1\xa1\"}", malformed},
		{"an encoded surrogate", "{\"action\":\"\xed\xa0\x80\"}", malformed},
		{"half a pair", `{"action":"\ud83d","runtime_generation":0}`, malformed},
		{"the other half", `{"action":"\ude00","runtime_generation":0}`, malformed},
		{"a pair the wrong way round", `{"action":"\ude00\ud83d","runtime_generation":0}`, malformed},
		{"half a pair and a letter", `{"action":"\ud83d\u0041","runtime_generation":0}`, malformed},
		{"half a pair in a name", register(`,"\ud83d":0`), malformed},
		{"half a pair deep down", register(`,"x":[[{"y":["\ud83d"]}]]`), malformed},
		{"a name twice", register(`,"runtime_generation":0,"runtime_generation":0`), malformed},
		{"a name twice after unescaping", register(`,"runtime_generation":0,"runtime\u005fgeneration":0`), malformed},
		{"a name twice, escaped first", `{"\u0061ction":"register_anchor","action":"register_anchor","runtime_generation":0}`, malformed},
		{"a name twice, escaped both times", register(`,"runtime_generation":0,"\u0078":0,"\u0078":0`), malformed},
		{"an unknown name twice", register(`,"runtime_generation":0,"x":1,"x":2`), malformed},
		{"an empty name twice", register(`,"":1,"":2`), malformed},
		{"a name of the binding twice", strings.Replace(goodMint, `"h_source":"src"`, `"h_source":"src","h_source":"src"`, 1), malformed},
		{"a name of the binding twice after unescaping", strings.Replace(goodMint, `"h_source":"src"`, `"h_source":"src","h\u005fsource":"src"`, 1), malformed},
		{"a name twice in what is not known", register(`,"x":{"y":1,"y":1}`), malformed},
		{"a name twice deep down", register(`,"x":[[[{"y":[{"z":0,"\u007a":0}]}]]]`), malformed},

		// All of it is read before it is judged.
		{"broken behind a forbidden id", register(`,"session_id":null,"runtime_generation":0`) + "}", malformed},
		{"broken behind an unknown action", `{"action":"x","y":}`, malformed},
		{"broken behind a bad member", register(`,"runtime_generation":-1,"x":[}`), malformed},
		{"broken within the binding", strings.Replace(goodMint, `"src"`, `src`, 1), malformed},
		{"broken within what is not known", register(`,"x":{"y":[1,]}`), malformed},
		{"a name twice behind an unknown action", `{"action":"x","y":1,"y":2}`, malformed},
		{"more levels than are followed", nested(10001), malformed},

		// A registration names no session.
		{"session_id", register(`,"runtime_generation":0,"session_id":"` + someID + `"`), forbidden},
		{"session_id first", `{"session_id":"` + someID + `","action":"register_anchor","runtime_generation":0}`, forbidden},
		{"session_id null", register(`,"runtime_generation":0,"session_id":null`), forbidden},
		{"session_id empty", register(`,"runtime_generation":0,"session_id":""`), forbidden},
		{"session_id a number", register(`,"runtime_generation":0,"session_id":0`), forbidden},
		{"session_id false", register(`,"runtime_generation":0,"session_id":false`), forbidden},
		{"session_id an object", register(`,"runtime_generation":0,"session_id":{"session_id":{}}`), forbidden},
		{"session_id an array", register(`,"runtime_generation":0,"session_id":[]`), forbidden},
		{"session_id and no generation", register(`,"session_id":""`), forbidden},
		{"session_id and bad members", register(`,"x":1,"runtime_generation":-1,"session_id":null`), forbidden},
		{"session_id and an escaped action", `{"action":"register\u005fanchor","session_id":null}`, forbidden},
		{"an escaped session_id is another name", register(`,"runtime_generation":0,"session\u005fid":"` + someID + `"`), invalid},
		{"session_id in other case is another name", register(`,"runtime_generation":0,"Session_ID":null`), invalid},
		{"a folded session_id is another name", register(`,"runtime_generation":0,"ſession_id":null`), invalid},
		{"session_id within another member", register(`,"runtime_generation":0,"binding":{"session_id":null}`), invalid},

		// An action that does not exist.
		{"another action", `{"action":"revoke","runtime_generation":0}`, unknown},
		{"an empty action", `{"action":"","runtime_generation":0}`, unknown},
		{"an action in capitals", `{"action":"REGISTER_ANCHOR","runtime_generation":0}`, unknown},
		{"an action with a space", `{"action":"register_anchor ","runtime_generation":0}`, unknown},
		{"an action with a NUL", `{"action":"register_anchor\u0000","runtime_generation":0}`, unknown},
		{"a folded action", `{"action":"regiſter_anchor","runtime_generation":0}`, unknown},
		{"an unknown action with a session", `{"action":"revoke","session_id":null}`, unknown},
		{"an unknown action with bad members", `{"action":"revoke","x":[1],"runtime_generation":-1}`, unknown},
		{"an unknown action alone", `{"action":"revoke"}`, unknown},
		{"an unknown action last", `{"runtime_generation":"0","action":"revoke"}`, unknown},

		// The action itself.
		{"no members", `{}`, invalid},
		{"no action", `{"runtime_generation":0}`, invalid},
		{"no action and a session", `{"session_id":null,"runtime_generation":0}`, invalid},
		{"action null", `{"action":null,"runtime_generation":0}`, invalid},
		{"action a number", `{"action":1,"runtime_generation":0}`, invalid},
		{"action an array", `{"action":["register_anchor"],"runtime_generation":0}`, invalid},
		{"action an object", `{"action":{"action":"register_anchor"},"runtime_generation":0}`, invalid},
		{"action null and a session", `{"action":null,"session_id":null,"runtime_generation":0}`, invalid},
		{"action in other case", `{"Action":"register_anchor","runtime_generation":0}`, invalid},
		{"action escaped", `{"\u0061ction":"register_anchor","runtime_generation":0}`, invalid},
		{"action escaped, and unknown", `{"\u0061ction":"revoke","runtime_generation":0}`, invalid},
		{"action with an escaped invisible letter", `{"action\u200b":"register_anchor","runtime_generation":0}`, invalid},

		// The members.
		{"a known name beside itself in capitals", register(`,"runtime_generation":0,"RUNTIME_GENERATION":0`), invalid},
		{"the generation escaped", register(`,"runtime\u005fgeneration":0`), invalid},
		{"the generation in other case", register(`,"Runtime_generation":0`), invalid},
		{"a session folded, U+017F", `{"action":"authenticate","ſession_id":"` + someID + `","runtime_generation":0}`, invalid},
		{"a token folded, U+212A", consume(`,"runtime_generation":0,"to` + "\u212a" + `en":"` + otherID + `"`), invalid},
		{"a token folded and a token", consume(`,"runtime_generation":0,"to` + "\u212a" + `en":"","token":"` + otherID + `"`), invalid},
		{"an empty name", register(`,"runtime_generation":0,"":0`), invalid},
		{"a name with a NUL", register(`,"runtime_generation":0,"action\u0000":"x"`), invalid},
		{"an unknown member", register(`,"runtime_generation":0,"x":0`), invalid},
		{"no generation", register(``), invalid},
		{"a generation that is null", register(`,"runtime_generation":null`), invalid},
		{"a generation that is a string", register(`,"runtime_generation":"0"`), invalid},
		{"a generation that is true", register(`,"runtime_generation":true`), invalid},
		{"a generation that is an array", register(`,"runtime_generation":[0]`), invalid},
		{"register with a token", register(`,"runtime_generation":0,"token":"` + otherID + `"`), invalid},
		{"register with a binding", register(`,"runtime_generation":0,"binding":` + someBound), invalid},
		{"authenticate without a session", `{"action":"authenticate","runtime_generation":0}`, invalid},
		{"authenticate without a generation", auth(``), invalid},
		{"authenticate with a binding", auth(`,"runtime_generation":0,"binding":` + someBound), invalid},
		{"authenticate with a token", auth(`,"runtime_generation":0,"token":""`), invalid},
		{"a session that is null", `{"action":"authenticate","session_id":null,"runtime_generation":0}`, invalid},
		{"a session that is a number", `{"action":"authenticate","session_id":0,"runtime_generation":0}`, invalid},
		{"a session that is an array", `{"action":"authenticate","session_id":["` + someID + `"],"runtime_generation":0}`, invalid},
		{"mint without a binding", strings.Replace(goodAuth, "authenticate", "mint_token", 1), invalid},
		{"mint without a session", strings.Replace(goodMint, `"session_id":"`+someID+`",`, "", 1), invalid},
		{"mint with a token", strings.Replace(goodMint, `"binding"`, `"token":"","binding"`, 1), invalid},
		{"consume without a token", consume(`,"runtime_generation":0`), invalid},
		{"consume with a binding", consume(`,"runtime_generation":0,"token":"","binding":` + someBound), invalid},
		{"a token that is null", consume(`,"runtime_generation":0,"token":null`), invalid},
		{"a token that is an object", consume(`,"runtime_generation":0,"token":{}`), invalid},

		// The numbers.
		{"the largest number", register(`,"runtime_generation":9007199254740991`), ""},
		{"2^53", register(`,"runtime_generation":9007199254740992`), invalid},
		{"2^53 + 1", register(`,"runtime_generation":9007199254740993`), invalid},
		{"2^63", register(`,"runtime_generation":9223372036854775808`), invalid},
		{"2^64", register(`,"runtime_generation":18446744073709551616`), invalid},
		{"2^64 + 1, which wraps to 1", register(`,"runtime_generation":18446744073709551617`), invalid},
		{"a number of many digits", register(`,"runtime_generation":1` + strings.Repeat("0", 400)), invalid},
		{"minus zero", register(`,"runtime_generation":-0`), invalid},
		{"minus one", register(`,"runtime_generation":-1`), invalid},
		{"a fraction", register(`,"runtime_generation":1.0`), invalid},
		{"an exponent", register(`,"runtime_generation":1e0`), invalid},
		{"an exponent in capitals", register(`,"runtime_generation":1E2`), invalid},
		{"a negative exponent", register(`,"runtime_generation":10e-1`), invalid},
		{"zero with an exponent", register(`,"runtime_generation":0e0`), invalid},

		// The binding.
		{"epochs of zero", mintWith("0", "0", `"s"`, `"p"`, "1"), ""},
		{"the largest of everything", mintWith("9007199254740991", "9007199254740991", `"`+strings.Repeat("~", 256)+`"`, `"`+strings.Repeat("!", 256)+`"`, "9007199254740991"), ""},
		{"256 bytes when unescaped", mintWith("0", "0", `"`+strings.Repeat(`\u0021`, 256)+`"`, `"p"`, "1"), ""},
		{"a quote and a backslash in a digest", mintWith("0", "0", `"\"\\"`, `"p"`, "1"), ""},
		{"the binding in another order", strings.Replace(goodMint, someBound, `{"schema_version":3,"h_payload":"pay","h_source":"src","request_epoch":2,"compaction_epoch":1}`, 1), ""},
		{"schema_version zero", mintWith("0", "0", `"s"`, `"p"`, "0"), invalid},
		{"schema_version minus one", mintWith("0", "0", `"s"`, `"p"`, "-1"), invalid},
		{"schema_version 2^53", mintWith("0", "0", `"s"`, `"p"`, "9007199254740992"), invalid},
		{"schema_version null", mintWith("0", "0", `"s"`, `"p"`, "null"), invalid},
		{"schema_version a string", mintWith("0", "0", `"s"`, `"p"`, `"1"`), invalid},
		{"compaction_epoch minus zero", mintWith("-0", "0", `"s"`, `"p"`, "1"), invalid},
		{"compaction_epoch 2^53", mintWith("9007199254740992", "0", `"s"`, `"p"`, "1"), invalid},
		{"request_epoch an exponent", mintWith("0", "1e0", `"s"`, `"p"`, "1"), invalid},
		{"request_epoch a string", mintWith("0", `"0"`, `"s"`, `"p"`, "1"), invalid},
		{"h_source empty", mintWith("0", "0", `""`, `"p"`, "1"), invalid},
		{"h_source of 257 bytes", mintWith("0", "0", `"`+strings.Repeat("s", 257)+`"`, `"p"`, "1"), invalid},
		{"h_source with a space", mintWith("0", "0", `"a b"`, `"p"`, "1"), invalid},
		{"h_source with an escaped space", mintWith("0", "0", `"a\u0020b"`, `"p"`, "1"), invalid},
		{"h_source with a DEL", mintWith("0", "0", `"`+"\x7f"+`"`, `"p"`, "1"), invalid},
		{"h_source with an escaped newline", mintWith("0", "0", `"a\n"`, `"p"`, "1"), invalid},
		{"h_source with an escaped NUL", mintWith("0", "0", `"\u0000"`, `"p"`, "1"), invalid},
		{"h_source with a letter of another script", mintWith("0", "0", `"é"`, `"p"`, "1"), invalid},
		{"h_source null", mintWith("0", "0", `null`, `"p"`, "1"), invalid},
		{"h_source a number", mintWith("0", "0", `1`, `"p"`, "1"), invalid},
		{"h_payload empty", mintWith("0", "0", `"s"`, `""`, "1"), invalid},
		{"h_payload of 257 bytes", mintWith("0", "0", `"s"`, `"`+strings.Repeat("s", 257)+`"`, "1"), invalid},
		{"h_payload with an escaped wide letter", mintWith("0", "0", `"s"`, `"\u017f"`, "1"), invalid},
		{"h_payload an array", mintWith("0", "0", `"s"`, `["p"]`, "1"), invalid},
		{"h_payload an object", mintWith("0", "0", `"s"`, `{}`, "1"), invalid},
		{"no compaction_epoch", strings.Replace(goodMint, `"compaction_epoch":1,`, ``, 1), invalid},
		{"no schema_version", strings.Replace(goodMint, `,"schema_version":3`, ``, 1), invalid},
		{"a member of the binding in other case", strings.Replace(goodMint, `h_source`, `H_source`, 1), invalid},
		{"a member of the binding beside itself in capitals", strings.Replace(goodMint, `"h_source"`, `"H_SOURCE":"x","h_source"`, 1), invalid},
		{"a member of the binding escaped", strings.Replace(goodMint, `h_source`, `h\u005fsource`, 1), invalid},
		{"a member of the binding folded", strings.Replace(goodMint, `h_source`, `h_ſource`, 1), invalid},
		{"an unknown member of the binding", strings.Replace(goodMint, `"h_source"`, `"x":0,"h_source"`, 1), invalid},
		{"an unknown member for a known one", strings.Replace(goodMint, `"compaction_epoch"`, `"x"`, 1), invalid},
		{"an empty binding", strings.Replace(goodMint, someBound, `{}`, 1), invalid},
		{"the binding null", strings.Replace(goodMint, someBound, `null`, 1), invalid},
		{"the binding a string", strings.Replace(goodMint, someBound, `"x"`, 1), invalid},
		{"the binding an array", strings.Replace(goodMint, someBound, `[`+someBound+`]`, 1), invalid},
		{"the binding within a binding", strings.Replace(goodMint, someBound, `{"binding":`+someBound+`}`, 1), invalid},
		{"the members of the binding outside it", auth(`,"runtime_generation":0,` + strings.Trim(someBound, "{}")), invalid},

		// The depth.
		{"a third level in the binding", strings.Replace(goodMint, `"src"`, `{"x":"src"}`, 1), invalid},
		{"five levels", nested(5), invalid},
		{"as many levels as are followed", nested(10000), invalid},
	}
}
