package wire_test

import (
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
)

const (
	someID    = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	otherID   = "__________________________________________8"
	someBound = `{"compaction_epoch":1,"request_epoch":2,"h_source":"src","h_payload":"pay","schema_version":3}`
)

var bound = wire.Binding{CompactionEpoch: 1, RequestEpoch: 2, HSource: "src", HPayload: "pay", SchemaVersion: 3}

// everything has a value in every member, so that what is not taken shows.
var everything = wire.Request{SessionID: secret.New("s"), Generation: 4, Binding: bound, Token: secret.New("t")}

func TestARequestIsWrittenWithTheMembersOfItsAction(t *testing.T) {
	for action, want := range map[wire.Action]string{
		wire.RegisterAnchor: `{"action":"register_anchor","runtime_generation":4}`,
		wire.Authenticate:   `{"action":"authenticate","session_id":"s","runtime_generation":4}`,
		wire.MintToken:      `{"action":"mint_token","session_id":"s","runtime_generation":4,"binding":` + someBound + `}`,
		wire.ConsumeToken:   `{"action":"consume_token","session_id":"s","runtime_generation":4,"token":"t"}`,
	} {
		q := everything
		q.Action = action
		if got := string(q.Append([]byte("x"))); got != "x"+want+"\n" {
			t.Errorf("%s is written as %s", action, got)
		}
	}
}

func TestAnAnswerIsWrittenWithWhatItsActionGives(t *testing.T) {
	a := wire.Answer{SessionID: secret.New("s"), Generation: 4, Binding: bound, Token: secret.New("t")}
	for action, want := range map[wire.Action]string{
		wire.RegisterAnchor: `{"ok":true,"session_id":"s","runtime_generation":4}`,
		wire.Authenticate:   `{"ok":true,"session_id":"s","runtime_generation":4}`,
		wire.MintToken:      `{"ok":true,"token":"t"}`,
		wire.ConsumeToken:   `{"ok":true,"binding":` + someBound + `}`,
	} {
		if got := string(a.Append([]byte("x"), action)); got != "x"+want+"\n" {
			t.Errorf("the answer to %s is written as %s", action, got)
		}
	}
}

func TestARefusalIsItsCodeAndNothingElse(t *testing.T) {
	a := wire.Answer{Code: wire.CodeTokenReplay, SessionID: secret.New("s"), Generation: 4, Binding: bound, Token: secret.New("t")}
	for _, action := range []wire.Action{wire.RegisterAnchor, wire.Authenticate, wire.MintToken, wire.ConsumeToken, "", "other"} {
		if got := string(a.Append(nil, action)); got != `{"ok":false,"code":"TOKEN_REPLAY"}`+"\n" {
			t.Errorf("the refusal of %q is written as %s", action, got)
		}
	}
}

func TestNothingIsGrantedToAnActionThatDoesNotExist(t *testing.T) {
	for _, action := range []wire.Action{"", "other"} {
		if got := string(wire.Answer{}.Append(nil, action)); got != `{"ok":false,"code":"ACTION_UNKNOWN"}`+"\n" {
			t.Errorf("the answer to %q is %s", action, got)
		}
	}
}

func TestTextIsEscapedOnTheWay(t *testing.T) {
	q := wire.Request{Action: wire.ConsumeToken, SessionID: secret.New("\"\\\n\x00\u2028"), Token: secret.New("\",\"token\":\"")}
	line := string(q.Append(nil))
	if strings.Count(line, "\n") != 1 {
		t.Fatalf("%q is not one line", line)
	}
	got, code := wire.ParseRequest(frameOf(q))
	if code != "" || !got.SessionID.Equal(q.SessionID) || !got.Token.Equal(q.Token) {
		t.Fatalf("%q is read with code %q as %q, %q", line, code, got.SessionID.Reveal(), got.Token.Reveal())
	}
}

// Whoever tampers with a string's bytes does not get another valid one.
func TestTextThatIsNotUTF8IsStillOneFrame(t *testing.T) {
	q := consumeRequest()
	q.Token = secret.New("\xff" + someID[1:])
	got, code := wire.ParseRequest(frameOf(q))
	if code != "" || wire.ValidID(got.Token.Reveal()) {
		t.Fatalf("code %q, token %q", code, got.Token.Reveal())
	}
}

func TestTheCodesAreThoseOfTheProtocol(t *testing.T) {
	for code, want := range map[wire.Code]string{
		wire.CodeBusy: "BUSY", wire.CodePeerRefused: "PEER_REFUSED",
		wire.CodeFrameTooLarge: "FRAME_TOO_LARGE", wire.CodeFrameMultiple: "FRAME_MULTIPLE", wire.CodeFrameUnterminated: "FRAME_UNTERMINATED",
		wire.CodeDeadlineExceeded: "DEADLINE_EXCEEDED", wire.CodeFrameMalformed: "FRAME_MALFORMED",
		wire.CodeSessionIDForbidden: "SESSION_ID_FORBIDDEN", wire.CodeActionUnknown: "ACTION_UNKNOWN", wire.CodeRequestInvalid: "REQUEST_INVALID",
		wire.CodeSessionUnknown: "SESSION_UNKNOWN", wire.CodeNotDescendant: "NOT_DESCENDANT", wire.CodeAncestryChanged: "ANCESTRY_CHANGED",
		wire.CodeGenerationStale: "GENERATION_STALE", wire.CodeGenerationUnknown: "GENERATION_UNKNOWN",
		wire.CodeTokenMalformed: "TOKEN_MALFORMED", wire.CodeTokenReplay: "TOKEN_REPLAY", wire.CodeTokenCapacity: "TOKEN_CAPACITY",
		wire.CodeSessionCapacity: "SESSION_CAPACITY", wire.CodeStateTooLarge: "STATE_TOO_LARGE", wire.CodeStateUnavailable: "STATE_UNAVAILABLE",
	} {
		if string(code) != want {
			t.Errorf("%s is spelled %s", want, code)
		}
	}
}
