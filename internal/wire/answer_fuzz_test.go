package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/spendonce/spendonce/internal/wire"
)

// An answer with its texts in the open.
type reply struct {
	Code       string
	Session    string
	Generation uint64
	Token      string
	Binding    wire.Binding
}

// readReply is what ReadAnswer must make of a line.
func readReply(line []byte, action wire.Action) (reply, bool) {
	if !wellFormed(line) {
		return reply{}, false
	}
	values := map[string]json.RawMessage{}
	for _, m := range membersOf(line) {
		switch m.source {
		case `"ok"`, `"code"`, `"session_id"`, `"runtime_generation"`, `"token"`, `"binding"`:
			values[m.name] = m.value
		}
	}
	var a reply
	valid := true
	for name, value := range values {
		var ok bool
		switch name {
		case "ok":
			ok = string(value) == "true" || string(value) == "false"
		case "code":
			a.Code, ok = readString(value)
			ok = ok && a.Code != ""
		case "session_id":
			a.Session, ok = readString(value)
			ok = ok && wire.ValidID(a.Session)
		case "runtime_generation":
			a.Generation, ok = readInteger(value)
		case "token":
			a.Token, ok = readString(value)
			ok = ok && wire.ValidID(a.Token)
		case "binding":
			a.Binding, ok = readBinding(value)
		}
		valid = valid && ok
	}
	var want []string
	switch {
	case string(values["ok"]) == "false":
		want = []string{"ok", "code"}
	case action == wire.RegisterAnchor || action == wire.Authenticate:
		want = []string{"ok", "session_id", "runtime_generation"}
	case action == wire.MintToken:
		want = []string{"ok", "token"}
	case action == wire.ConsumeToken:
		want = []string{"ok", "binding"}
	}
	for _, name := range want {
		valid = valid && values[name] != nil
	}
	if !valid || len(values) != len(want) {
		return reply{}, false
	}
	return a, true
}

func FuzzAnswer(f *testing.F) {
	for i, line := range []string{okSession, okSession, okToken, okBinding, `{"ok":false,"code":"BUSY"}`} {
		f.Add([]byte(line+"\n"), byte(i))
	}
	for _, line := range brokenAnswers() {
		f.Add([]byte(line+"\n"), byte(0))
		f.Add([]byte(line+"\n"), byte(2))
	}
	f.Add([]byte(okToken), byte(2))
	f.Add([]byte(okToken+"\n\n"), byte(2))
	f.Fuzz(func(t *testing.T, content []byte, which byte) {
		if len(content) > 4096 {
			return // the reference takes the square of the depth
		}
		action := actions[which%4]
		a, err := wire.ReadAnswer(bytes.NewReader(content), action)
		if err != nil {
			if a != (wire.Answer{}) {
				t.Fatalf("%q: an error, and still an answer", content)
			}
			// The whole text, so that nothing of the content is in it.
			broken, ended := "reading the answer: "+wire.ErrAnswer.Error(), "reading the answer: "+io.ErrUnexpectedEOF.Error()
			if text := err.Error(); text != broken && text != ended {
				t.Fatalf("%q: the error is %q", content, text)
			}
		}
		i := bytes.IndexByte(content, '\n')
		if i != len(content)-1 || len(content) == 0 {
			if i < 0 != errors.Is(err, io.ErrUnexpectedEOF) || i >= 0 != errors.Is(err, wire.ErrAnswer) {
				t.Fatalf("%q: %v", content, err)
			}
			return
		}
		want, ok := readReply(content[:i], action)
		if ok != (err == nil) {
			t.Fatalf("%q: %v; the reference says %t", content, err, ok)
		}
		if err != nil {
			return
		}
		if got := (reply{string(a.Code), a.SessionID.Reveal(), a.Generation, a.Token.Reveal(), a.Binding}); got != want {
			t.Fatalf("%q: read as %+v, want %+v", content, got, want)
		}
		again, err := wire.ReadAnswer(bytes.NewReader(a.Append(nil, action)), action)
		if err != nil || !equalAnswers(a, again) {
			t.Fatalf("%q: written and read again it is %+v, %v", content, again, err)
		}
	})
}
