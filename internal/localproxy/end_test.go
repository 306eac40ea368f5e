package localproxy_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/internal/localproxy"
)

func originOf(url string) (bearer.Origin, error) { return bearer.ParseOrigin(url) }

func TestAtTheEndWhatIsUnderWayMayEnd(t *testing.T) {
	came, goOn := make(chan struct{}), make(chan struct{})
	s := newSite(t, options{cfg: localproxy.Config{Grace: patience}}, func(w http.ResponseWriter, _ *http.Request) {
		close(came)
		<-goOn
		ok(w, nil)
	})
	ended := make(chan error, 1)
	go func() {
		<-came
		go func() { ended <- s.end() }()
		// No new connection is taken from now on.
		for {
			c, err := net.Dial("tcp", s.proxy.Host())
			if err != nil {
				break
			}
			c.Close()
		}
		close(goOn)
	}()
	if resp, body := s.do(s.request("GET", "/", nil)); resp.StatusCode != http.StatusOK || body != "fine" {
		t.Errorf("answered %s %q", resp.Status, body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Streams, connections that say nothing, and heads that never end do not keep
// the proxy, nor any goroutine of it (TestMain looks for those).
func TestAtTheEndNobodyKeepsTheProxy(t *testing.T) {
	for _, o := range []options{{}, {unix: true}} {
		o.cfg.Grace = time.Millisecond
		streaming := make(chan struct{}, 2)
		s := newSite(t, o, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			_ = rc.Flush()
			streaming <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		resp, err := s.client.Do(s.request("GET", "/stream", nil))
		must(t, err)
		defer resp.Body.Close()
		silent, half, body := s.dial(), s.dial(), s.dial()
		fmt.Fprint(half, "GET / HTT")
		fmt.Fprintf(body, "POST / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: 10\r\n\r\nhalf", cmp.Or(s.proxy.Host(), "x"), s.proxy.Secret().Reveal())
		<-streaming
		<-streaming
		must(t, s.end())
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the stream ended as if it were whole")
		}
		for i, c := range []net.Conn{silent, half, body} {
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("connection %d is still open", i)
			}
		}
	}
}

func TestAHeadThatDripsIsGivenUpAndAStreamIsNot(t *testing.T) {
	s := newSite(t, options{cfg: localproxy.Config{HeaderTime: 50 * time.Millisecond}}, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(w, len(b), err)
	})
	out, in := io.Pipe()
	resp := make(chan *http.Response, 1)
	go func() {
		r, err := s.client.Do(s.request("POST", "/", out))
		if err != nil {
			t.Error(err)
		}
		resp <- r
	}()
	fmt.Fprint(in, "a")
	c := s.dial()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHo")
	if b, err := io.ReadAll(c); err != nil {
		t.Errorf("the half of a head: %q, %v", b, err)
	}
	fmt.Fprint(in, "b") // long after the time for the head
	in.Close()
	r := <-resp
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); string(b) != "2 <nil>" {
		t.Errorf("the stream: %q", b)
	}
}

// Who was not let in cannot keep a connection by a body that never ends.
func TestABodyOfWhoWasNotLetInIsNotAwaited(t *testing.T) {
	s := newSite(t, options{}, ok)
	c := s.dial()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\nhalf", s.proxy.Host())
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 401") {
		t.Errorf("%q, %v", b, err)
	}
}

func TestAHeadThatIsTooLongIsRefused(t *testing.T) {
	s := newSite(t, options{}, ok)
	head := "GET /" + s.proxy.Secret().Reveal() + "/ HTTP/1.1\r\nHost: " + s.proxy.Host() + "\r\nX-Long: "
	if resp := s.raw(head + strings.Repeat("x", 60<<10) + "\r\n\r\n"); resp.StatusCode != http.StatusOK {
		t.Errorf("60 KiB: answered %s", resp.Status)
	}
	c := s.dial()
	_, _ = io.WriteString(c, head+strings.Repeat("x", 100<<10)+"\r\n\r\n")
	// What was not read may reset the connection before its answer is.
	if b, _ := io.ReadAll(c); len(b) > 0 && !strings.HasPrefix(string(b), "HTTP/1.1 431") {
		t.Errorf("100 KiB: answered %q", b)
	}
	if n := len(s.seen()); n != 1 {
		t.Errorf("%d requests reached the target", n)
	}
}

func TestMoreConnectionsThanThereIsRoomForWait(t *testing.T) {
	s := newSite(t, options{cfg: localproxy.Config{MaxConnections: 2}}, ok)
	head := fmt.Sprintf("GET /%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", s.proxy.Secret().Reveal(), s.proxy.Host())
	ask := func(c net.Conn) error {
		_, err := io.WriteString(c, head)
		if err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	first, second := s.dial(), s.dial()
	must(t, ask(first))
	must(t, ask(second))
	third := s.dial()
	_, err := io.WriteString(third, head)
	must(t, err)
	must(t, third.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("the third was served beside two")
	}
	must(t, first.Close())
	must(t, third.SetReadDeadline(time.Now().Add(patience)))
	if _, err := http.ReadResponse(bufio.NewReader(third), nil); err != nil {
		t.Errorf("when there was room: %v", err)
	}
}

func TestAnAddressIsAPathOrALoopbackLiteral(t *testing.T) {
	for text, want := range map[string]string{
		"unix:/a/b": "/a/b", "127.0.0.1:0": "127.0.0.1:0", "127.9.9.9:80": "127.9.9.9:80", "[::1]:8080": "[::1]:8080",
	} {
		got, err := localproxy.ParseAddress(text)
		if err != nil || got.Socket != want && (got.Socket != "" || got.TCP.String() != want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "unix:", "unix:/a/", "unix:@abstract", "unix:a\x00b", "8080", ":8080", "localhost:8080", "0.0.0.0:80", "[::]:80", "192.168.0.1:80",
		"127.0.0.1", "127.1:80", "[::ffff:127.0.0.1]:80", "[::1%lo]:80", "::1:80", "127.0.0.1:65536", "tcp:127.0.0.1:80", "http://127.0.0.1:80",
	} {
		if got, err := localproxy.ParseAddress(text); !errors.Is(err, localproxy.ErrAddress) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	at, err := localproxy.ParseAddress(l.Addr().String())
	must(t, err)
	to, err := originOf("https://example.com")
	must(t, err)
	if _, err := localproxy.Listen(t.Context(), localproxy.Config{Listen: at, To: to, Transport: http.DefaultTransport}); err == nil {
		t.Error("two listen at one port")
	}
}
