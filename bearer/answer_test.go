package bearer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/bearer"
)

func TestEventsArriveAsTheyAreSent(t *testing.T) {
	src := newSource()
	next := make(chan struct{})
	here := serve(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		if !src.good(r, 1) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next // the second event waits until the first was read
		}
	})
	resp, err := clientOf(t, bearer.Config{Source: src}, here.URL).Do(request(t, "GET", here.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := events.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d is %q, %v", i, line, err)
		}
		_, _ = events.ReadString('\n')
		next <- struct{}{}
	}
}

func TestAnUpgradedConnectionCanBeWrittenTo(t *testing.T) {
	here := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = conn.Write([]byte(strings.ToUpper(line)))
	})
	req := request(t, "GET", here.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := clientOf(t, bearer.Config{Source: newSource()}, here.URL).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriter)
	if !ok {
		t.Fatal("it cannot")
	}
	fmt.Fprintln(conn, "hello")
	if got, err := bufio.NewReader(conn).ReadString('\n'); got != "HELLO\n" {
		t.Errorf("the answer is %q, %v", got, err)
	}
}

func TestARefusalThatNeverEndsHoldsNobodyUp(t *testing.T) {
	src := newSource()
	gone := make(chan struct{})
	here := serve(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		if src.good(r, 1) {
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	if status, _, err := do(t, clientOf(t, bearer.Config{Source: src}, here.URL), request(t, "GET", here.URL, nil)); err != nil || status != 200 {
		t.Errorf("%d, %v", status, err)
	}
	<-gone
}

func TestTheEndOfTheContextEndsARequest(t *testing.T) {
	arrived := make(chan struct{})
	here := serve(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, _, err := do(t, clientOf(t, bearer.Config{Source: newSource()}, here.URL), request(t, "GET", here.URL, nil).WithContext(ctx))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

// net/http quotes what it cannot read.
func TestAnAnswerThatEchoesTheTokenInItsHeaderIsNotQuoted(t *testing.T) {
	for _, answer := range []string{"%s\r\n\r\n", "HTTP/1.1 200 OK\r\n%s\r\n\r\n", "HTTP/1.1 %s OK\r\n\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil {
				fmt.Fprintf(conn, answer, req.Header.Get("Authorization"))
			}
		}()
		src := newSource()
		url := "http://" + l.Addr().String()
		_, _, err = do(t, clientOf(t, bearer.Config{Source: src}, url), request(t, "GET", url, nil))
		if !errors.Is(err, bearer.ErrUnanswered) {
			t.Errorf("%q gives %v", answer, err)
		}
		src.silent(t, err)
		l.Close()
		<-served
	}
}
