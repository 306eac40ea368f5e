package wire_test

import (
	"sync"
	"testing"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
)

func TestAFrameIsARequestOrHasOneCode(t *testing.T) {
	for _, v := range verdicts() {
		t.Run(v.name, func(t *testing.T) {
			q, code := wire.ParseRequest([]byte(v.frame))
			if code != v.code {
				t.Fatalf("code %q, want %q", code, v.code)
			}
			if code != "" && q != (wire.Request{}) {
				t.Fatalf("refused, and still a request: %+v", q)
			}
		})
	}
}

func TestARequestHoldsWhatTheFrameSays(t *testing.T) {
	id, other := secret.New(someID), secret.New(otherID)
	for frame, want := range map[string]wire.Request{
		goodRegister: {Action: wire.RegisterAnchor},
		goodAuth:     {Action: wire.Authenticate, SessionID: id},
		goodMint:     {Action: wire.MintToken, SessionID: id, Binding: bound},
		goodConsume:  {Action: wire.ConsumeToken, SessionID: id, Token: other},

		register(`,"runtime_generation":9007199254740991`): {Action: wire.RegisterAnchor, Generation: wire.MaxInteger},
		mintWith("0", "9007199254740991", `"\u0022\\\/"`, `"\u007e"`, "10"): {
			Action: wire.MintToken, SessionID: id,
			Binding: wire.Binding{RequestEpoch: wire.MaxInteger, HSource: `"\/`, HPayload: "~", SchemaVersion: 10},
		},
		`{"token":"\ud83d\ude00","runtime_generation":12,"session_id":"\n","action":"consume\u005ftoken"}`: {
			Action: wire.ConsumeToken, SessionID: secret.New("\n"), Generation: 12, Token: secret.New("\U0001F600"),
		},
	} {
		q, code := wire.ParseRequest([]byte(frame))
		if code != "" || !equal(q, want) {
			t.Errorf("%s is read with code %q as %+v", frame, code, q)
		}
	}
}

func equal(a, b wire.Request) bool {
	return a.Action == b.Action && a.Generation == b.Generation && a.Binding == b.Binding &&
		a.SessionID.Equal(b.SessionID) && a.Token.Equal(b.Token)
}

// The buffer of a frame is used for the next one.
func TestARequestOutlivesItsFrame(t *testing.T) {
	frame := []byte(goodMint)
	q, _ := wire.ParseRequest(frame)
	for i := range frame {
		frame[i] = '#'
	}
	if want := (wire.Request{Action: wire.MintToken, SessionID: secret.New(someID), Binding: bound}); !equal(q, want) {
		t.Fatalf("the request became %+v", q)
	}
}

func TestAFrameIsOnlyRead(t *testing.T) {
	for _, v := range verdicts() {
		frame := []byte(v.frame)
		wire.ParseRequest(frame)
		if string(frame) != v.frame {
			t.Errorf("%s: the frame was changed", v.name)
		}
	}
}

// What reads a frame has read others before.
func TestARefusedFrameLeavesNothingBehind(t *testing.T) {
	for _, v := range verdicts() {
		wire.ParseRequest([]byte(v.frame))
		for _, good := range []string{goodRegister, goodMint} {
			if q, code := wire.ParseRequest([]byte(good)); code != "" {
				t.Fatalf("after %q, %s is refused with %s: %+v", v.name, good, code, q)
			}
		}
	}
}

func TestFramesAreReadSideBySide(t *testing.T) {
	all := verdicts()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, v := range all {
				if _, code := wire.ParseRequest([]byte(v.frame)); code != v.code {
					t.Errorf("%s: code %q, want %q", v.name, code, v.code)
				}
			}
		})
	}
	wg.Wait()
}

func TestReadingARequestTakesFewAllocations(t *testing.T) {
	if raceEnabled {
		return // sync.Pool forgets at random then
	}
	for name, c := range map[string]struct {
		request wire.Request
		most    float64
	}{
		"mint":    {mintRequest(), 5},    // two digests, and the secrets
		"consume": {consumeRequest(), 4}, // two for each secret
	} {
		frame := frameOf(c.request)
		if n := testing.AllocsPerRun(200, func() { wire.ParseRequest(frame) }); n > c.most {
			t.Errorf("reading a %s takes %v allocations", name, n)
		}
	}
}
