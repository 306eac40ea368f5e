package wire_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/wire"
)

// agree holds a frame against the reference, against encoding/json as it is
// mostly used, and against its own encoding.
func agree(t *testing.T, frame []byte) {
	t.Helper()
	q, code := wire.ParseRequest(frame)
	want, wantCode := readRequest(frame)
	if code != wantCode {
		t.Fatalf("%q: code %q, want %q", frame, code, wantCode)
	}
	if code != "" {
		if q != (wire.Request{}) {
			t.Fatalf("%q: refused, and still a request", frame)
		}
		return
	}
	if got := opened(q); got != want {
		t.Fatalf("%q: read as %+v, want %+v", frame, got, want)
	}
	if got, err := readLoosely(frame); err != nil || got != want {
		t.Fatalf("%q: encoding/json reads %+v, %v; want %+v", frame, got, err, want)
	}
	again := q.Append(nil)
	if len(again) == 0 || bytes.IndexByte(again, '\n') != len(again)-1 {
		t.Fatalf("%q: written as %q, which is not one line", frame, again)
	}
	if a, b := canonical(t, frame), canonical(t, again); !bytes.Equal(a, b) {
		t.Fatalf("%q: written as %q; in canonical form %q and %q", frame, again, a, b)
	}
}

func canonical(t *testing.T, frame []byte) []byte {
	v := jsontext.Value(bytes.Clone(frame))
	if err := v.Canonicalize(); err != nil {
		t.Fatalf("%q: %v", frame, err)
	}
	return v
}

func FuzzRequest(f *testing.F) {
	for _, v := range verdicts() {
		if len(v.frame) < 4096 {
			f.Add([]byte(v.frame))
		}
	}
	f.Add(frameOf(mintRequest()))
	f.Add(frameOf(consumeRequest()))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > 4096 {
			return // the reference takes the square of the depth
		}
		agree(t, frame)
	})
}

func TestTheReferenceAgreesWithTheVerdicts(t *testing.T) {
	for _, v := range verdicts() {
		if len(v.frame) > 4096 {
			continue
		}
		if _, code := readRequest([]byte(v.frame)); code != v.code {
			t.Errorf("%s: the reference says %q, want %q", v.name, code, v.code)
		}
		agree(t, []byte(v.frame))
	}
}

// Each byte of each request in turn is left out, doubled, and replaced and
// preceded by what means something in JSON.
func TestEveryNeighbourOfARequestHasTheReferencesVerdict(t *testing.T) {
	meaningful := []byte("\"\\{}[]:,0-1+.eEuUntf_/ \t\r\n\x00\x7f\x80\xbf\xc2\xc5\xe2\xed\xef\xff")
	step := 1
	if testing.Short() {
		step = 5
	}
	for _, frame := range []string{
		goodRegister, goodAuth, goodMint, goodConsume,
		register(`,"runtime\u005fgeneration":9007199254740991`),
		consume(`,"token":"\ud83d\ude00","runtime_generation":10`),
		register(`,"session_id":null,"x":[{"y":1,"z":"\u0079"}]`),
	} {
		for i := 0; i < len(frame); i += step {
			agree(t, []byte(frame[:i]+frame[i+1:]))
			agree(t, []byte(frame[:i]+frame[i:i+1]+frame[i:]))
			agree(t, []byte(frame[:i]))
			for _, c := range meaningful {
				agree(t, []byte(frame[:i]+string([]byte{c})+frame[i+1:]))
				agree(t, []byte(frame[:i]+string([]byte{c})+frame[i:]))
			}
		}
	}
}
