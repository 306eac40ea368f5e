//go:build linux

package peercred_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/peercred"
)

// taken receives the connection that m gives away.
func (m *member) taken() *os.File {
	m.t.Helper()
	if _, err := io.WriteString(m.line, "give\n"); err != nil {
		m.t.Fatal(err)
	}
	b, control := make([]byte, len("taken\n")), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := m.line.ReadMsgUnix(b, control)
	if err != nil {
		m.t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		m.t.Fatal(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		m.t.Fatal(fds, err)
	}
	if answer, err := m.said.ReadString('\n'); err != nil || answer != "ok\n" {
		m.t.Fatal(answer, err)
	}
	f := os.NewFile(uintptr(fds[0]), "given away")
	m.t.Cleanup(func() { f.Close() })
	return f
}

// openDescriptors counts those of this process.
func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func readAll(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
}

func TestAPeerThatSpeaksForItselfIsVerified(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	m := f.child(nil)
	c := m.callsWell(l)
	m.tell("send %q", "one ")
	m.tell("send %q", "two\n")
	m.tell("half-close")
	readAll(t, c, "one two\n")
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
	p, err := pr.Identify(c)
	if err != nil || p.PID != m.pid || p.StartTime == 0 {
		t.Error(p, err)
	}
	want := peercred.Peer{PID: m.pid, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if got := c.Peer(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := c.Write([]byte("bye")); err != nil {
		t.Error(err)
	}
	c.Close()
	if got := m.tell("receive"); got != `"bye"` {
		t.Error(got)
	}
}

func TestEachPieceOfAChunkNamesItsSender(t *testing.T) {
	l, f := listen(t), newFamily(t)
	m := f.child(nil)
	c := m.callsWell(l)
	text := strings.Repeat("0123456789", 20)
	m.tell("send %q", text)
	m.tell("half-close")
	readAll(t, iotest.OneByteReader(c), text)
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
}

// K15, and the parts of a request in either order: what came before and after
// is read all the same, since its frame is judged first.
func TestWhatAnotherProcessWritesIsNotThePeers(t *testing.T) {
	for name, own := range map[string]struct{ first, last string }{
		"all of it": {"", ""}, "the end": {"first ", ""}, "the start": {"", " last"}, "the middle": {"first ", " last"},
	} {
		t.Run(name, func(t *testing.T) {
			l, pr, f := listen(t), newProver(t), newFamily(t)
			m := f.child(nil)
			c := m.callsWell(l)
			given := m.taken()
			if own.first != "" {
				m.tell("send %q", own.first)
			}
			if _, err := given.WriteString("foreign"); err != nil {
				t.Fatal(err)
			}
			if own.last != "" {
				m.tell("send %q", own.last)
			}
			m.tell("half-close")
			readAll(t, c, own.first+"foreign"+own.last)
			wantError(t, c.Verify(), peercred.ErrOtherSender)
			_, err := pr.Identify(c)
			wantError(t, err, peercred.ErrOtherSender)
			_, err = c.Anchor(peercred.Process{PID: m.pid})
			wantError(t, err, peercred.ErrOtherSender)
		})
	}
}

// Also a violation after the identification counts.
func TestAForeignByteAfterTheIdentificationIsRefused(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	m := f.child(nil)
	c := m.callsWell(l)
	a := anchored(t, pr, c)
	if _, err := m.taken().WriteString("x"); err != nil {
		t.Fatal(err)
	}
	m.tell("half-close")
	readAll(t, c, "x")
	_, err := pr.Descends(c, a)
	wantError(t, err, peercred.ErrOtherSender)
}

func TestTheFirstViolationIsReported(t *testing.T) {
	l, f := listen(t), newFamily(t)
	m := f.child(nil)
	c := m.callsWell(l)
	if _, err := m.taken().WriteString("foreign "); err != nil {
		t.Fatal(err)
	}
	m.tell("send-descriptors 1")
	m.tell("half-close")
	readAll(t, c, "foreign x")
	wantError(t, c.Verify(), peercred.ErrOtherSender)
}

func TestPassedDescriptorsAreRefusedAndDropped(t *testing.T) {
	for _, n := range []string{"1", "2", "250"} {
		l, f := listen(t), newFamily(t)
		m := f.child(nil)
		c := m.callsWell(l)
		m.tell("send %q", "before ")
		m.tell("send-descriptors %s", n)
		m.tell("send %q", " after")
		m.tell("half-close")
		before := openDescriptors(t)
		readAll(t, c, "before x after")
		if after := openDescriptors(t); after != before {
			t.Errorf("%s passed: %d descriptors before, %d after", n, before, after)
		}
		wantError(t, c.Verify(), peercred.ErrUnexpectedControl)
	}
}

// Without credentials there is room for descriptors, so that they arrive.
func TestDescriptorsThatArriveAreClosed(t *testing.T) {
	l, f := listen(t), newFamily(t)
	l.WithoutCredentials(t)
	m := f.child(nil)
	c := m.callsWell(l)
	m.tell("send-descriptors 2")
	m.tell("half-close")
	before := openDescriptors(t)
	readAll(t, c, "x")
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	wantError(t, c.Verify(), peercred.ErrUnexpectedControl)
}

func TestAChunkWithoutASenderIsRefused(t *testing.T) {
	l, f := listen(t), newFamily(t)
	l.WithoutCredentials(t)
	m := f.child(nil)
	c := m.callsWell(l)
	m.tell("send %q", "x")
	m.tell("half-close")
	readAll(t, c, "x")
	wantError(t, c.Verify(), peercred.ErrOtherSender)
}

func TestTheEndOfTheStreamIsNoChunk(t *testing.T) {
	l, f := listen(t), newFamily(t)
	m := f.child(nil)
	c := m.callsWell(l)
	m.tell("half-close")
	for range 2 {
		if n, err := c.Read(make([]byte, 10)); n != 0 || err != io.EOF { //nolint:errorlint // io.Reader promises the bare value
			t.Errorf("%d, %v", n, err)
		}
	}
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
}

func TestReadSaysWhatEndedIt(t *testing.T) {
	l, f := listen(t), newFamily(t)
	m := f.child(nil)
	c := m.callsWell(l)
	if n, err := c.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing wanted: %d, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %d, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %d, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	// Hanging up on what was not read is a reset.
	if _, err := c.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	m.tell("hang-up")
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the reset: %d, %v", n, err)
	}
	if err := c.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing after the deadline: %v", err)
	}
	c.Close()
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %d, %v", n, err)
	}
}

func TestAClosedConnProvesNothing(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	m := f.child(nil)
	m.tell("dial %s", l.Addr())
	before := openDescriptors(t)
	c := accept(t, l)
	a := anchored(t, pr, c)
	p := a.Process()
	for range 2 {
		c.Close()
	}
	wantError(t, c.Verify(), net.ErrClosed)
	_, err := pr.Identify(c)
	wantError(t, err, net.ErrClosed)
	_, err = pr.Descends(c, a)
	wantError(t, err, net.ErrClosed)
	_, err = c.Anchor(p)
	wantError(t, err, net.ErrClosed)
	a.Close()
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
