//go:build linux

package broker_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/broker"
)

func TestCloseWaitsForWhatIsBeingAsked(t *testing.T) {
	at := newSite(t)
	cfg := at.config()
	cfg.Deadline = time.Minute
	server, err := broker.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background()) }()
	session, err := at.client().RegisterAnchor(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: at.socket})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, `{"action":"authenticate","session_id":%q,"runtime_generation":0}`+"\n", session.ID.Reveal())
	// Who came later is served: so this one was taken.
	if err := at.client().Authenticate(t.Context(), session); err != nil {
		t.Fatal(err)
	}

	closed := make(chan error, 2)
	for range cap(closed) {
		go func() { closed <- server.Close() }()
	}
	for { // until nobody listens any more
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: at.socket})
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case err := <-closed:
		t.Errorf("Close is done before the request: %v", err)
	default:
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), `{"ok":true`) {
		t.Errorf("answered %s, %v", answer, err)
	}
	for range cap(closed) {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	again, err := broker.Open(at.config())
	if err != nil {
		t.Fatal("its state is not given back: ", err)
	}
	again.Close()
}

func TestTwoBrokersInOneDirectoryHaveControlSocketsOfTheirOwn(t *testing.T) {
	first := newSite(t)
	first.serve()
	second := &site{t: t, dir: first.dir, socket: filepath.Join(filepath.Dir(first.socket), "broker"), state: filepath.Join(first.dir, "other")}
	second.serve()
	for _, at := range []*site{first, second} {
		if st := at.status(); st.StateDir != at.state || st.Socket != at.socket {
			t.Errorf("%s is told of %s", at.socket, st.Socket)
		}
	}
}
