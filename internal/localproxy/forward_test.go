package localproxy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/localproxy"
)

func TestTheTargetGetsTheTokenAndNothingOfTheProxys(t *testing.T) {
	s := newSite(t, options{}, ok)
	req := s.request("PATCH", "/x?y=1", strings.NewReader("body"))
	secret := s.proxy.Secret().Reveal()
	for name, value := range map[string]string{
		"Accept": "a/b", "Cookie": "c=d", "X-Api-Key": "k", "User-Agent": "me", "Mcp-Session-Id": "7", "Te": "trailers",
		"Forwarded": "for=1.2.3.4", "X-Forwarded-For": "1.2.3.4", "X-Forwarded-Host": "h", "X-Forwarded-Proto": "p", "X-Forwarded-Port": "1", "X-Forwarded-Prefix": "p",
		"Proxy-Authorization": "Basic eA==", "Keep-Alive": "5", "Connection": "X-Hop", "X-Hop": "hop",
		"Origin": s.base, "Referer": s.base + "/page", "X-Note": "it is " + secret,
	} {
		req.Header.Set(name, value)
	}
	if resp, body := s.do(req); resp.StatusCode != http.StatusOK || body != "fine" {
		t.Fatalf("answered %s %q", resp.Status, body)
	}
	got := s.seen()[0]
	want := http.Header{
		"Accept": {"a/b"}, "Cookie": {"c=d"}, "X-Api-Key": {"k"}, "User-Agent": {"me"}, "Mcp-Session-Id": {"7"}, "Te": {"trailers"},
		"Content-Length": {"4"}, "Authorization": {"Bearer " + s.source.tokens[0].Secret.Reveal()},
	}
	if !maps.EqualFunc(got.Header, want, slices.Equal) {
		t.Errorf("the target saw fields %v, want %v", slices.Sorted(maps.Keys(got.Header)), slices.Sorted(maps.Keys(want)))
	}
	if got.Method != "PATCH" || got.RequestURI != "/x?y=1" || "http://"+got.Host != s.upstream.URL {
		t.Errorf("the target saw %s %s at %s", got.Method, got.RequestURI, got.Host)
	}
}

func TestNoUserAgentIsMadeUp(t *testing.T) {
	s := newSite(t, options{unix: true}, ok)
	s.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := s.seen()[0].Header; len(got["User-Agent"]) > 0 || len(got["Accept-Encoding"]) > 0 {
		t.Errorf("the target saw %v and %v", got["User-Agent"], got["Accept-Encoding"])
	}
}

// Whether net/http would guess depends on whether head and body are written
// together, so they are here.
func TestNoTypeIsMadeUp(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w = localproxy.Recorder(w)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "<html>")
	}))
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	must(t, err)
	defer resp.Body.Close()
	if len(resp.Header["Content-Type"]) > 0 {
		t.Errorf("the answer has the type %v", resp.Header["Content-Type"])
	}
}

func TestTrailersOfARequestAreDroppedAndNotAnnounced(t *testing.T) {
	s := newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, string(b), len(r.Trailer))
	})
	req := s.request("POST", "/", struct{ io.Reader }{strings.NewReader("hi")})
	req.Trailer = http.Header{"X-Sum": {"9"}}
	if resp, body := s.do(req); body != "hi0" {
		t.Errorf("answered %s %q", resp.Status, body)
	}
}

func TestTheAnswerIsTheTargetsButForWhatConcernsTheConnection(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte("packed"))
	must(t, z.Close())
	s := newSite(t, options{}, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = nil
		h["Set-Cookie"] = []string{"a=b; Domain=example.com", "c=d"}
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", fmt.Sprint(zipped.Len()))
		h.Set("Date", "yesterday")
		h.Set("Mcp-Session-Id", "7")
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "hop")
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Alt-Svc", `h3=":443"`)
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(zipped.Bytes())
	})
	resp, body := s.do(s.request("GET", "/", nil))
	want := http.Header{
		"Set-Cookie": {"a=b; Domain=example.com", "c=d"}, "Content-Encoding": {"gzip"}, "Content-Length": {fmt.Sprint(zipped.Len())},
		"Date": {"yesterday"}, "Mcp-Session-Id": {"7"},
	}
	if resp.StatusCode != http.StatusTeapot || body != zipped.String() || !maps.EqualFunc(resp.Header, want, slices.Equal) {
		t.Errorf("answered %s %v %q", resp.Status, resp.Header, body)
	}
}

func TestTrailersAndInformationalAnswersPass(t *testing.T) {
	s := newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.Write(b)
		w.Header().Set("X-Sum", "9")
	})
	c := s.dial()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", s.proxy.Host(), s.proxy.Secret().Reveal())
	r := bufio.NewReader(c)
	var got []int
	for {
		resp, err := http.ReadResponse(r, nil)
		must(t, err)
		got = append(got, resp.StatusCode)
		switch resp.StatusCode {
		case http.StatusContinue:
			_, err = io.WriteString(c, "hi")
			must(t, err)
			continue
		case http.StatusEarlyHints:
			if resp.Header.Get("Link") == "" {
				t.Error("the hint is empty")
			}
			continue
		}
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		if string(b) != "hi" || resp.Trailer.Get("X-Sum") != "9" {
			t.Errorf("answered %q, trailer %v", b, resp.Trailer)
		}
		break
	}
	if !slices.Contains(got, 103) || !slices.Contains(got, 100) || got[len(got)-1] != 200 {
		t.Errorf("answered %v", got)
	}
}

func TestEventsAreSeenWhenTheyHappen(t *testing.T) {
	for _, o := range []options{{}, {unix: true}} {
		next := make(chan struct{})
		s := newSite(t, o, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush() // the head alone
			for i := range 3 {
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
				fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
		})
		resp, err := s.client.Do(s.request("GET", "/events", nil))
		must(t, err)
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		for i := range 3 {
			next <- struct{}{}
			line, err := r.ReadString('\n')
			must(t, err)
			if line != fmt.Sprintf("data: %d\n", i) {
				t.Errorf("event %d is %q", i, line)
			}
			_, err = r.ReadString('\n')
			must(t, err)
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("the stream ended with %v", err)
		}
	}
}

// A body without a length is sent while it is written, and its answer may
// begin before it ends.
func TestBothWaysStreamAtOnce(t *testing.T) {
	s := newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = rc.Flush()
		}
	})
	out, in := io.Pipe()
	answered := make(chan *http.Response)
	go func() {
		resp, err := s.client.Do(s.request("POST", "/", out))
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	fmt.Fprintln(in, 0)
	resp := <-answered
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := r.ReadString('\n')
		must(t, err)
		if line != fmt.Sprintf("echo %d\n", i) {
			t.Errorf("got %q", line)
		}
		fmt.Fprintln(in, i+1)
	}
	must(t, in.Close())
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
}

// pattern is a long body that no part of can be swapped unnoticed.
func pattern(size int) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{}), int64(size))
}

func sum(r io.Reader) string {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return fmt.Sprintf("%d %x %v", n, h.Sum(nil), err)
}

func TestBodiesOfAnyLengthPassBothWays(t *testing.T) {
	for _, o := range []options{{}, {unix: true}} {
		s := newSite(t, o, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.Copy(w, r.Body)
		})
		for _, size := range []int{0, 1, 40_000, 20 << 20} {
			for _, chunked := range []bool{false, true} {
				body := pattern(size)
				if chunked {
					body = struct{ io.Reader }{body}
				}
				resp, err := s.client.Do(s.request("POST", "/", body))
				must(t, err)
				if got, want := sum(resp.Body), sum(pattern(size)); got != want {
					t.Errorf("%d bytes came back as %s", size, got)
				}
				resp.Body.Close()
			}
		}
	}
}

func TestAnAnswerThatBreaksOffBreaksOffHereToo(t *testing.T) {
	for _, length := range []string{"", "10"} {
		s := newSite(t, options{}, func(w http.ResponseWriter, _ *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		resp, err := s.client.Do(s.request("GET", "/", nil))
		must(t, err)
		if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "half" {
			t.Errorf("read %q and %v", b, err)
		}
		resp.Body.Close()
	}
}

func TestAClientThatLeavesEndsItsRequestAtTheTarget(t *testing.T) {
	came, gone := make(chan struct{}), make(chan struct{})
	s := newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		close(came)
		<-r.Context().Done()
		close(gone)
	})
	c := s.dial()
	fmt.Fprintf(c, "GET /%s/x HTTP/1.1\r\nHost: %s\r\n\r\n", s.proxy.Secret().Reveal(), s.proxy.Host())
	<-came
	c.Close()
	<-gone
}

func TestWhatIsToldOfAnAnswerIsHowItWentAndNotWhatItWasAbout(t *testing.T) {
	s := newSite(t, options{}, ok)
	s.do(s.request("PUT", "/secret-path", strings.NewReader("body")))
	got := <-s.served
	got.Took = 0
	if got != (localproxy.Served{Method: "PUT", Status: 200, Sent: 4}) {
		t.Errorf("told %+v", got)
	}
}
