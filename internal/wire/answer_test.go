package wire_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
)

var actions = []wire.Action{wire.RegisterAnchor, wire.Authenticate, wire.MintToken, wire.ConsumeToken}

func equalAnswers(a, b wire.Answer) bool {
	return a.Code == b.Code && a.Generation == b.Generation && a.Binding == b.Binding &&
		a.SessionID.Equal(b.SessionID) && a.Token.Equal(b.Token)
}

const (
	okSession = `{"ok":true,"session_id":"` + someID + `","runtime_generation":4}`
	okToken   = `{"ok":true,"token":"` + otherID + `"}`
	okBinding = `{"ok":true,"binding":` + someBound + `}`
)

func TestAnAnswerHoldsWhatItsLineSays(t *testing.T) {
	session := wire.Answer{SessionID: secret.New(someID), Generation: 4}
	token := wire.Answer{Token: secret.New(otherID)}
	for _, c := range []struct {
		name   string
		action wire.Action
		line   string
		want   wire.Answer
	}{
		{"register", wire.RegisterAnchor, okSession, session},
		{"authenticate", wire.Authenticate, okSession, session},
		{"mint", wire.MintToken, okToken, token},
		{"consume", wire.ConsumeToken, okBinding, wire.Answer{Binding: bound}},
		{"refusal", wire.MintToken, `{"ok":false,"code":"BUSY"}`, wire.Answer{Code: wire.CodeBusy}},
		{"a refusal that nobody knows yet", wire.MintToken, `{"ok":false,"code":"A new one"}`, wire.Answer{Code: "A new one"}},
		{"another order", wire.MintToken, `{"token":"` + otherID + `","ok":true}`, token},
		{"space between tokens", wire.MintToken, `{ "ok" : true , "token" : "` + otherID + `" }`, token},
		{"an escaped value", wire.MintToken, strings.Replace(okToken, `"_`, `"\u005f`, 1), token},
		{"a member that nobody knows yet", wire.MintToken, strings.Replace(okToken, `{`, `{"expires":{"x":[1.5e3,null]},`, 1), token},
		{"a member in other case is another", wire.MintToken, strings.Replace(okToken, `{`, `{"OK":false,"Token":0,"Code":"x",`, 1), token},
		{"an escaped member is another", wire.MintToken, strings.Replace(okToken, `{`, `{"c\u006fde":"x",`, 1), token},
		{"a refusal with a member that nobody knows yet", wire.MintToken, `{"ok":false,"code":"BUSY","retry":1}`, wire.Answer{Code: wire.CodeBusy}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.ReadAnswer(strings.NewReader(c.line+"\n"), c.action)
			if err != nil || !equalAnswers(got, c.want) {
				t.Fatalf("%+v, %v", got, err)
			}
		})
	}
}

// Each holds the word canary, which no error may repeat.
func brokenAnswers() map[string]string {
	const canary = `"canary":0,`
	with := func(line, part, other string) string { return strings.Replace(line, part, other, 1) }
	all := map[string]string{
		"no JSON":                       "canary",
		"an array":                      `["canary"]`,
		"a string":                      `"canary"`,
		"two objects":                   `{"ok":false,"code":"canary"}{}`,
		"a space before":                ` {"ok":false,"code":"canary"}`,
		"a space behind":                `{"ok":false,"code":"canary"} `,
		"a CR behind":                   `{"ok":false,"code":"canary"}` + "\r",
		"a byte order mark":             "\ufeff" + `{"ok":false,"code":"canary"}`,
		"a brace too few":               `{"ok":false,"code":"canary"`,
		"invalid UTF-8":                 "{\"ok\":false,\"code\":\"canary\xff\"}",
		"half a pair":                   `{"ok":false,"code":"canary\ud800"}`,
		"a code twice":                  `{"ok":false,"code":"canary","code":"canary"}`,
		"ok twice":                      `{"ok":false,"ok":false,"code":"canary"}`,
		"a code twice after unescaping": `{"ok":false,"code":"canary","c\u006fde":"canary"}`,
		"an unknown member twice":       `{"ok":false,"code":"X","canary":0,"canary":0}`,
		"an unknown member that holds a name twice": `{"ok":false,"code":"X","canary":{"x":0,"x":0}}`,
		"no ok":                              `{"code":"canary"}`,
		"ok null":                            `{"ok":null,"code":"canary"}`,
		"ok a string":                        `{"ok":"false","code":"canary"}`,
		"ok a number":                        `{"ok":0,"code":"canary"}`,
		"ok escaped":                         `{"\u006fk":false,"code":"canary"}`,
		"ok in other case":                   `{"OK":false,"code":"canary"}`,
		"refused with no code":               `{"ok":false,"canary":0}`,
		"refused with an empty code":         `{"ok":false,"code":"","canary":0}`,
		"refused with a code that is null":   `{"ok":false,"code":null,"canary":0}`,
		"refused with a code that is a list": `{"ok":false,"code":["canary"]}`,
		"refused, and still a token":         with(okToken, `{"ok":true`, `{"ok":false,"code":"canary"`),
	}
	for name, line := range map[string]string{"session": okSession, "token": okToken, "binding": okBinding} {
		all["granted with a code, and a "+name] = with(line, `{`, `{"code":"canary",`)
		all["granted with a code that is null, and a "+name] = with(line, `{`, `{"code":null,`+canary)
	}
	for name, line := range map[string]string{
		"nothing":                       `{"ok":true}`,
		"a session and no generation":   `{"ok":true,"session_id":"` + someID + `"}`,
		"a generation and no session":   `{"ok":true,"runtime_generation":4}`,
		"a session that is null":        with(okSession, `"`+someID+`"`, `null`),
		"a session that is none":        with(okSession, someID, "short"),
		"a session that is empty":       with(okSession, someID, ""),
		"a generation that is null":     with(okSession, `:4`, `:null`),
		"a generation that is a string": with(okSession, `:4`, `:"4"`),
		"a generation of 2^53":          with(okSession, `:4`, `:9007199254740992`),
		"a generation with an exponent": with(okSession, `:4`, `:4e0`),
		"a generation below zero":       with(okSession, `:4`, `:-4`),
		"ok is the number 1":            with(okToken, `true`, `1`),
		"ok is in capitals":             with(okToken, `"ok":true`, `"OK":true`),
		"a token that is null":          with(okToken, `"`+otherID+`"`, `null`),
		"a token that is none":          with(okToken, "8\"", "9\""),
		"a token with a newline":        with(okToken, "8\"", "8\\n\""),
		"a token escaped in its name":   with(okToken, "token", `t\u006fken`),
		"a binding that is null":        with(okBinding, someBound, `null`),
		"a binding of too little":       with(okBinding, `"request_epoch":2,`, ``),
		"a binding of too much":         with(okBinding, `"request_epoch"`, `"x":0,"request_epoch"`),
		"a binding with a space":        with(okBinding, `src`, `s c`),
		"a binding of schema 0":         with(okBinding, `:3`, `:0`),
		"a token and a binding":         with(okBinding, `{`, `{"token":"`+otherID+`",`),
		"a session and a token":         with(okSession, `{`, `{"token":"`+otherID+`",`),
	} {
		all["granted: "+name] = with(line, `{`, `{`+canary)
	}
	return all
}

func TestALineThatIsNoAnswerIsRefused(t *testing.T) {
	for name, line := range brokenAnswers() {
		for _, action := range actions {
			t.Run(name+"/"+string(action), func(t *testing.T) {
				a, err := wire.ReadAnswer(strings.NewReader(line+"\n"), action)
				if !errors.Is(err, wire.ErrAnswer) || a != (wire.Answer{}) {
					t.Fatalf("%+v, %v", a, err)
				}
				if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "canary") {
					t.Fatalf("the error repeats what was received: %s", text)
				}
			})
		}
	}
}

// An answer to another question is none.
func TestAnAnswerIsTheAnswerToItsAction(t *testing.T) {
	for line, to := range map[string][]wire.Action{
		okSession: {wire.RegisterAnchor, wire.Authenticate},
		okToken:   {wire.MintToken},
		okBinding: {wire.ConsumeToken},

		`{"ok":true}`: {},
	} {
		for _, action := range append(actions, "other", "") {
			_, err := wire.ReadAnswer(strings.NewReader(line+"\n"), action)
			want := false
			for _, a := range to {
				want = want || a == action
			}
			if (err == nil) != want || err != nil && !errors.Is(err, wire.ErrAnswer) {
				t.Errorf("%s as the answer to %q: %v", line, action, err)
			}
		}
	}
}

func TestAnAnswerIsOneLineAndThenTheEnd(t *testing.T) {
	long := func(size int) string { // an answer of that many bytes with its newline
		head, tail := `{"x":"`, `",`+okToken[1:]+"\n"
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	gone := syscall.ECONNRESET
	for _, c := range []struct {
		name    string
		content string
		end     error
		want    error
	}{
		{"a line", okToken + "\n", io.EOF, nil},
		{"the largest", long(wire.MaxFrame), io.EOF, nil},
		{"a byte more", long(wire.MaxFrame + 1), io.EOF, wire.ErrAnswer},
		{"much more", strings.Repeat(long(wire.MaxFrame), 3), io.EOF, wire.ErrAnswer},
		{"two lines", okToken + "\n" + okToken + "\n", io.EOF, wire.ErrAnswer},
		{"two newlines", okToken + "\n\n", io.EOF, wire.ErrAnswer},
		{"an empty line", "\n", io.EOF, wire.ErrAnswer},
		{"nothing", "", io.EOF, io.ErrUnexpectedEOF},
		{"half a line", okToken[:20], io.EOF, io.ErrUnexpectedEOF},
		{"no newline", okToken, io.EOF, io.ErrUnexpectedEOF},
		{"nothing in time", "", deadline, deadline},
		{"no newline in time", okToken, deadline, deadline},
		{"nothing, and the broker is gone", "", gone, gone},
		{"no newline, and the broker is gone", okToken, gone, gone},
		{"a line, and the request was left unread", okToken + "\n", gone, nil},
		{"a line, and no end in time", okToken + "\n", deadline, nil},
		{"a broken line, and the broker is gone", okToken[:20] + "\n", gone, wire.ErrAnswer},
	} {
		for how, cut := range map[string]func(io.Reader) io.Reader{
			"whole":       func(r io.Reader) io.Reader { return r },
			"in bytes":    iotest.OneByteReader,
			"error early": iotest.DataErrReader,
		} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				a, err := wire.ReadAnswer(cut(after(c.content, c.end)), wire.MintToken)
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Fatalf("error %v, want %v", err, c.want)
				}
				if want := (wire.Answer{Token: secret.New(otherID)}); err == nil && !equalAnswers(a, want) {
					t.Fatalf("%+v", a)
				}
				if err != nil && strings.Contains(err.Error(), "token") {
					t.Fatalf("the error repeats what was received: %v", err)
				}
			})
		}
	}
}

func TestAnAnswerIsReadNoFurtherThanItsBound(t *testing.T) {
	r := &pieces{content: strings.Repeat("x", 3*wire.MaxFrame), end: io.EOF}
	if _, err := wire.ReadAnswer(r, wire.MintToken); !errors.Is(err, wire.ErrAnswer) || r.given != wire.MaxFrame+1 {
		t.Fatalf("%v after %d bytes", err, r.given)
	}
}
