//go:build linux

package broker_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/lease"
)

// connect opens a connection from this process.
func (s *site) connect() (c *net.UnixConn) {
	s.t.Helper()
	eventually(s.t, func() bool {
		var err error
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: s.socket})
		if err != nil && !errors.Is(err, unix.EAGAIN) { // the queue is full
			s.t.Fatal(err)
		}
		return err == nil
	})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// answerOn reads to the end. A broker that did not read everything resets.
func answerOn(t testing.TB, c *net.UnixConn) string {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Fatal(err)
	}
	return refusalIn(t, string(b))
}

func within(d time.Duration) func(*broker.Config) {
	return func(c *broker.Config) { c.Deadline = d }
}

// K24.
func TestAClientThatDoesNotHalfCloseIsRefusedAtTheDeadline(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve(within(200 * time.Millisecond))
	s := c.actor().register(at.socket, 0)
	for name, text := range map[string]string{"a whole frame": s.frame("authenticate"), "half a frame": "{", "nothing": ""} {
		conn := at.connect()
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		want(t, name, answerOn(t, conn), "DEADLINE_EXCEEDED")
	}
}

func TestAMintThatIsNotHalfClosedHasNoEffect(t *testing.T) {
	at := newSite(t)
	at.serve(within(200 * time.Millisecond))
	s, err := at.client().RegisterAnchor(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := at.connect()
	if _, err := io.WriteString(conn, session{at.socket, s.ID.Reveal(), 0}.mintFrame()); err != nil {
		t.Fatal(err)
	}
	want(t, "a mint", answerOn(t, conn), "DEADLINE_EXCEEDED")
	if st := at.status(); st.Pending != 0 || st.Minted != 0 {
		t.Errorf("%d tokens are pending", st.Pending)
	}
}

func (s session) consumeFrame(token string) string {
	return fmt.Sprintf(`{"action":"consume_token","session_id":%q,"runtime_generation":%d,"token":%q}`+"\n", s.id, s.generation, token)
}

func (s session) mintFrame() string {
	return fmt.Sprintf(`{"action":"mint_token","session_id":%q,"runtime_generation":%d,"binding":{"compaction_epoch":1,"request_epoch":2,"h_source":"s","h_payload":"p","schema_version":3}}`+"\n",
		s.id, s.generation)
}

// K25: the deadline is absolute. Until it has sent everything, this client would need ten
// times as long.
func TestBytesThatDripDoNotExtendTheDeadline(t *testing.T) {
	at := newSite(t)
	const deadline = 200 * time.Millisecond
	at.serve(within(deadline))
	conn := at.connect()
	answered := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(conn)
		answered <- string(b)
	}()
	text := strings.Repeat("{", 100)
	drip := time.NewTicker(10 * deadline / time.Duration(len(text)))
	defer drip.Stop()
	for i := range text {
		select {
		case answer := <-answered:
			want(t, "a dripping client", refusalIn(t, answer), "DEADLINE_EXCEEDED")
			return
		case <-drip.C:
			_, _ = io.WriteString(conn, text[i:i+1])
		}
	}
	t.Error("a client that drips is heard out")
}

// K25.
func TestASecondFrameThatComesLateSpoilsTheFirst(t *testing.T) {
	at := newSite(t)
	at.serve(within(20 * time.Second)) // the answer must not wait for it
	s, err := at.client().RegisterAnchor(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	frame := session{at.socket, s.ID.Reveal(), 0}.mintFrame()
	conn := at.connect()
	if _, err := io.WriteString(conn, frame); err != nil {
		t.Fatal(err)
	}
	// Long enough for the first to be carried out, if it were.
	<-time.After(100 * time.Millisecond)
	if _, err := io.WriteString(conn, frame); err != nil {
		t.Fatal(err)
	}
	want(t, "two frames", answerOn(t, conn), "FRAME_MULTIPLE")
	if st := at.status(); st.Minted != 0 {
		t.Errorf("%d tokens were minted", st.Minted)
	}
}

// K25.
func TestAClientThatNeverReadsIsLetGo(t *testing.T) {
	at := newSite(t)
	at.serve()
	s, err := at.client().RegisterAnchor(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	const clients = 20
	before := descriptors(t)
	for range clients {
		conn := at.connect()
		if _, err := io.WriteString(conn, session{at.socket, s.ID.Reveal(), 0}.mintFrame()); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	// Our own ends stay open.
	eventually(t, func() bool { return at.status().Minted == clients && descriptors(t) <= before+clients })
}

func TestOthersAreServedWhileAHundredClientsAreSlow(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve(within(time.Minute)) // so that all of them are there to the end
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	for i := range 100 {
		conn := at.connect()
		if _, err := io.WriteString(conn, s.frame("authenticate")[:i%50]); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		want(t, "an honest client", anchor.consume(s, anchor.mint(s)), ok)
	}
	if n := at.status().Answers["DEADLINE_EXCEEDED"]; n != 0 {
		t.Errorf("%d slow clients were answered meanwhile", n)
	}
}

func TestConnectionsOverTheBoundsAreAnsweredBusyAndTheOthersGoOn(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve(within(time.Minute), func(c *broker.Config) { c.MaxConnections, c.MaxPerProcess = 6, 4 })
	first, second := c.actor(), c.actor()
	s := second.register(at.socket, 0)

	// Of this process.
	var mine []*net.UnixConn
	for range 4 {
		mine = append(mine, at.connect())
	}
	want(t, "the fifth of one process", answerOn(t, at.connect()), "BUSY")
	if r := at.lastRefusal(); r.Code != "BUSY" || !strings.Contains(r.Reason, "4 connections of this process") {
		t.Errorf("the reason is %+v", r)
	}
	want(t, "another process", second.authenticate(s), ok)

	// Of all: that of first makes five, and one more six.
	first.tell(order{Do: "dial", Path: at.socket})
	third := c.actor()
	third.tell(order{Do: "dial", Path: at.socket})
	want(t, "the seventh of all", second.authenticate(s), "BUSY") // after three more tries
	if r := at.lastRefusal(); r.Code != "BUSY" || !strings.Contains(r.Reason, "6 connections are open") {
		t.Errorf("the reason is %+v", r)
	}

	// One that was within the bounds is served, and makes room.
	third.tell(order{Do: "send", Text: s.frame("authenticate")})
	third.tell(order{Do: "half-close"})
	want(t, "one that was let in", refusalIn(t, third.tell(order{Do: "receive"}).Text), "NOT_DESCENDANT")
	want(t, "the next", second.authenticate(s), ok)
	for _, conn := range mine {
		conn.Close()
	}
	eventually(t, func() bool { return codeOf(at.client().Authenticate(t.Context(), lease.Session{})) != "BUSY" })
}

// A refusal that comes before the request was read reaches a client that is
// still about to write.
func TestARefusalIsReadEvenWhenTheRequestCannotBeWrittenAnyMore(t *testing.T) {
	at := newSite(t)
	at.serve(within(time.Minute), func(c *broker.Config) { c.MaxConnections = 1 })
	at.connect()
	eventually(t, func() bool { return codeOf(at.client().Authenticate(t.Context(), lease.Session{})) == "BUSY" })
	conn := at.connect()
	answer := make([]byte, 1)
	if _, err := conn.Read(answer); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		_, err := io.WriteString(conn, "{")
		return errors.Is(err, unix.EPIPE)
	})
	rest, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Fatal(err)
	}
	want(t, "a client that was turned away", refusalIn(t, string(answer)+string(rest)), "BUSY")
}

// As many clients as there are in a storm are turned away while they write.
func TestEveryClientThatIsTurnedAwayIsTold(t *testing.T) {
	at := newSite(t)
	at.serve(within(time.Minute), func(c *broker.Config) { c.MaxConnections = 1 })
	at.connect()
	eventually(t, func() bool { return codeOf(at.client().Authenticate(t.Context(), lease.Session{})) == "BUSY" })
	client := lease.Client{Socket: at.socket, Retries: -1}
	codes := make(chan string)
	const clients, each = 16, 20
	for range clients {
		go func() {
			for range each {
				_, err := client.Mint(t.Context(), lease.Session{ID: lease.NewSecret(strings.Repeat("A", 43))}, aBinding)
				codes <- codeOf(err)
			}
		}()
	}
	for range clients * each {
		want(t, "a client", <-codes, "BUSY")
	}
}
