package bearer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
)

// stream hides what a reader is, so that net/http cannot repeat it.
type stream struct{ io.Reader }

// refusing serves who has the token of the given exchange, or a later one.
func refusing(t *testing.T, src *source, exchanges int) *server {
	return serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if !src.good(r, exchanges) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, "who are you?")
			return
		}
		fmt.Fprint(w, len(body))
	})
}

func TestARefusedTokenIsExchangedOnceAndTheRequestSentAgain(t *testing.T) {
	large := strings.Repeat("x", 20<<20)
	for name, tt := range map[string]struct {
		body io.Reader
		size int
	}{
		"no body":                         {nil, 0},
		"an empty body":                   {http.NoBody, 0},
		"a body with GetBody":             {strings.NewReader(large), len(large)},
		"a body without":                  {stream{strings.NewReader("hello")}, 5},
		"a body without, as long as kept": {stream{strings.NewReader(large[:1<<20])}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			src := newSource()
			here := refusing(t, src, 1)
			status, body, err := do(t, clientOf(t, bearer.Config{Source: src}, here.URL), request(t, "POST", here.URL+"/x", tt.body))
			_, exchanges := src.counts()
			if err != nil || status != 200 || body != fmt.Sprint(tt.size) || exchanges != 1 || len(here.got()) != 2 {
				t.Errorf("%d %q %v after %d exchanges and %d requests", status, body, err, exchanges, len(here.got()))
			}
		})
	}
}

func TestABodyThatCannotBeSentAgainGetsThe401AndTheNextRequestTheNewToken(t *testing.T) {
	for name, tt := range map[string]struct{ replay, size int }{
		"longer than what is kept": {0, 1<<20 + 1},
		"longer than 10 bytes":     {10, 11},
		"nothing is kept":          {-1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			src := newSource()
			here := refusing(t, src, 1)
			client := clientOf(t, bearer.Config{Source: src, Replay: tt.replay}, here.URL)
			send := func() (int, string, error) {
				return do(t, client, request(t, "POST", here.URL, stream{strings.NewReader(strings.Repeat("x", tt.size))}))
			}
			if status, body, err := send(); err != nil || status != 401 || body != "who are you?" {
				t.Errorf("the first is answered %d %q, %v", status, body, err)
			}
			if status, body, err := send(); err != nil || status != 200 || body != fmt.Sprint(tt.size) {
				t.Errorf("the second is answered %d %q, %v", status, body, err)
			}
			if _, exchanges := src.counts(); exchanges != 1 {
				t.Errorf("%d exchanges", exchanges)
			}
		})
	}
}

func TestAResourceThatRefusesTheNewTokenTooIsSaidAndNotAskedAgain(t *testing.T) {
	for name, src := range map[string]*source{"another token": newSource(), "the same token": {tokens: newSource().tokens, stuck: true}} {
		t.Run(name, func(t *testing.T) {
			here := refusing(t, src, 1<<30)
			_, _, err := do(t, clientOf(t, bearer.Config{Source: src}, here.URL), request(t, "GET", here.URL, nil))
			var rejected *bearer.RejectedError
			if !errors.As(err, &rejected) || !errors.Is(err, credstore.ErrRejected) || rejected.Target != box || rejected.Origin != origin(t, here.URL) {
				t.Fatalf("the error is %v", err)
			}
			b, _ := io.ReadAll(rejected.Answer.Body)
			if rejected.Answer.StatusCode != 401 || string(b) != "who are you?" {
				t.Errorf("the answer is %d %q", rejected.Answer.StatusCode, b)
			}
			want := 2
			if src.stuck {
				want = 1
			}
			if _, exchanges := src.counts(); exchanges != 1 || len(here.got()) != want {
				t.Errorf("%d exchanges, %d requests", exchanges, len(here.got()))
			}
			src.silent(t, err)
		})
	}
}

func TestWhyThereIsNoOtherTokenIsTheError(t *testing.T) {
	src := newSource()
	src.err = credstore.ErrLoginRequired
	here := refusing(t, src, 1)
	_, _, err := do(t, clientOf(t, bearer.Config{Source: src}, here.URL), request(t, "POST", here.URL, stream{strings.NewReader("hello")}))
	var rejected *bearer.RejectedError
	if !errors.Is(err, credstore.ErrLoginRequired) || errors.Is(err, credstore.ErrRejected) || !errors.As(err, &rejected) || len(here.got()) != 1 {
		t.Fatalf("error %v after %d requests", err, len(here.got()))
	}
	if b, _ := io.ReadAll(rejected.Answer.Body); string(b) != "who are you?" {
		t.Errorf("the answer is %q", b)
	}
}

func TestATokenThatWasNotSavedIsUsedAndSaid(t *testing.T) {
	src := newSource()
	src.err = credstore.ErrNotSaved
	here := refusing(t, src, 1)
	var said error
	status, _, err := do(t, clientOf(t, bearer.Config{Source: src, Warn: func(err error) { said = err }}, here.URL), request(t, "GET", here.URL, nil))
	if err != nil || status != 200 || !errors.Is(said, credstore.ErrNotSaved) {
		t.Errorf("%d %v, said %v", status, err, said)
	}
}

// The answer to a body may come before its end, and its sender may be slow.
func TestABodyThatIsStillBeingWrittenIsSentAgainWhole(t *testing.T) {
	src := newSource()
	r, w := io.Pipe()
	attempts := 0
	base := doer(func(req *http.Request) (*http.Response, error) {
		attempts++
		if attempts == 1 {
			b := make([]byte, 3)
			if _, err := io.ReadFull(req.Body, b); err != nil || string(b) != "one" {
				t.Errorf("the first attempt reads %q, %v", b, err)
			}
			// As net/http does, go on reading while the answer is here.
			started := make(chan struct{})
			go func() {
				close(started)
				_, _ = req.Body.Read(make([]byte, 100))
				_ = req.Body.Close()
			}()
			<-started
			return answer(401, ""), nil
		}
		go func() {
			_, _ = io.WriteString(w, " two")
			_, _ = io.WriteString(w, " three")
			_ = w.Close()
		}()
		b, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		return answer(200, string(b)), err
	})
	client := clientOf(t, bearer.Config{Source: src, Base: base}, "https://api.example.com")
	go func() { _, _ = io.WriteString(w, "one") }()
	status, body, err := do(t, client, request(t, "POST", "https://api.example.com", r))
	if err != nil || status != 200 || body != "one two three" {
		t.Errorf("%d %q, %v", status, body, err)
	}
	if _, err := io.WriteString(w, "x"); !errors.Is(err, io.ErrClosedPipe) {
		t.Error("the body was not closed")
	}
}

// Whatever part of a body was read when the 401 came, in whatever pieces: the
// second attempt has all of it, or there is none.
func TestASecondAttemptHasTheWholeBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "body")
		limit := rapid.IntRange(1, 250).Draw(t, "limit")
		pieces := rapid.SliceOfN(rapid.IntRange(1, 50), 0, 20).Draw(t, "pieces")
		read, attempts := 0, 0
		base := doer(func(req *http.Request) (*http.Response, error) {
			attempts++
			defer req.Body.Close()
			if attempts > 1 {
				b, err := io.ReadAll(req.Body)
				return answer(200, string(b)), err
			}
			var got []byte
			for _, n := range pieces {
				b := make([]byte, n)
				n, err := req.Body.Read(b)
				got = append(got, b[:n]...)
				if err != nil {
					break
				}
			}
			if read = len(got); !bytes.HasPrefix(want, got) {
				t.Errorf("the first attempt reads %q of %q", got, want)
			}
			return answer(401, ""), nil
		})
		o, err := bearer.ParseOrigin("https://api.example.com")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := bearer.New(bearer.Config{Source: newSource(), Origins: []bearer.Origin{o}, Base: base, Replay: limit})
		if err != nil {
			t.Fatal(err)
		}
		body := &closer{Reader: bytes.NewReader(want)}
		req, err := http.NewRequestWithContext(context.Background(), "POST", "https://api.example.com", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		switch {
		case !body.closed:
			t.Error("the body was not closed")
		case read > limit && (resp.StatusCode != 401 || attempts != 1):
			t.Errorf("%d bytes read, %d kept: %d after %d attempts", read, limit, resp.StatusCode, attempts)
		case read <= limit && (resp.StatusCode != 200 || !slices.Equal(got, want)):
			t.Errorf("%d bytes read, %d kept: %d %q, want %q", read, limit, resp.StatusCode, got, want)
		}
	})
}
