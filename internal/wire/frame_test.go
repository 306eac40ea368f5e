package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/spendonce/spendonce/internal/wire"
)

// deadline is how a connection reports that its time is over.
var deadline = &net.OpError{Op: "read", Net: "unix", Err: os.ErrDeadlineExceeded}

// after is a stream that gives its bytes and then fails with err for ever.
func after(content string, err error) io.Reader {
	return io.MultiReader(strings.NewReader(content), iotest.ErrReader(err))
}

func TestAFrameIsOneLineAndThenTheEnd(t *testing.T) {
	full := strings.Repeat("x", wire.MaxFrame-1)
	for _, c := range []struct {
		name    string
		content string
		end     error // of the stream
		frame   string
		code    wire.Code
	}{
		{"a line", "{}\n", io.EOF, "{}", ""},
		{"an empty line", "\n", io.EOF, "", ""},
		{"a CR stays for the parser to refuse", "{}\r\n", io.EOF, "{}\r", ""},
		{"the largest frame", full + "\n", io.EOF, full, ""},
		{"an end that net wraps", "{}\n", &net.OpError{Op: "read", Err: io.EOF}, "{}", ""},

		{"one byte more than the largest", full + "x\n", io.EOF, "", wire.CodeFrameTooLarge},
		{"too large, and no end in sight", full + "xx", deadline, "", wire.CodeFrameTooLarge},
		{"much too large", full + full + full, io.EOF, "", wire.CodeFrameTooLarge},
		{"a second line beyond the bound", full + "\n{}\n", io.EOF, "", wire.CodeFrameMultiple},

		{"two lines", "{}\n{}\n", io.EOF, "", wire.CodeFrameMultiple},
		{"a line and a half", "{}\n{", io.EOF, "", wire.CodeFrameMultiple},
		{"two newlines", "{}\n\n", io.EOF, "", wire.CodeFrameMultiple},
		{"a space after the newline", "{}\n ", io.EOF, "", wire.CodeFrameMultiple},
		{"a NUL after the newline", "{}\n\x00", io.EOF, "", wire.CodeFrameMultiple},
		{"two lines, and no end in sight", "{}\n{}\n", deadline, "", wire.CodeFrameMultiple},
		{"two lines, and the peer is gone", "{}\n{}\n", syscall.ECONNRESET, "", wire.CodeFrameMultiple},

		{"nothing", "", io.EOF, "", wire.CodeFrameUnterminated},
		{"nothing, and an end that net wraps", "", &net.OpError{Op: "read", Err: io.EOF}, "", wire.CodeFrameUnterminated},
		{"no newline", "{}", io.EOF, "", wire.CodeFrameUnterminated},
		{"a CR for a newline", "{}\r", io.EOF, "", wire.CodeFrameUnterminated},
		{"the largest frame with no newline", full + "x", io.EOF, "", wire.CodeFrameUnterminated},

		{"nothing in time", "", deadline, "", wire.CodeDeadlineExceeded},
		{"no newline in time", "{}", deadline, "", wire.CodeDeadlineExceeded},
		{"no end in time", "{}\n", deadline, "", wire.CodeDeadlineExceeded},
		{"full, and nothing more in time", full + "x", deadline, "", wire.CodeDeadlineExceeded},
		{"full with its newline, and no end in time", full + "\n", deadline, "", wire.CodeDeadlineExceeded},
	} {
		for how, cut := range map[string]func(io.Reader) io.Reader{
			"whole":       func(r io.Reader) io.Reader { return r },
			"in bytes":    iotest.OneByteReader,
			"in halves":   iotest.HalfReader,
			"error early": iotest.DataErrReader,
		} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				frame, code, err := wire.ReadFrame(cut(after(c.content, c.end)), nil)
				if string(frame) != c.frame || code != c.code || err != nil {
					t.Fatalf("got %d bytes, code %q, error %v", len(frame), code, err)
				}
			})
		}
	}
}

func TestAPeerThatIsGoneGetsNoCode(t *testing.T) {
	gone := fmt.Errorf("reading: %w", syscall.ECONNRESET)
	for _, content := range []string{"", "{}", "{}\n", strings.Repeat("x", wire.MaxFrame)} {
		frame, code, err := wire.ReadFrame(after(content, gone), nil)
		if frame != nil || code != "" || !errors.Is(err, gone) {
			t.Errorf("after %d bytes: frame of %d bytes, code %q, error %v", len(content), len(frame), code, err)
		}
	}
}

// A verdict must not wait for a peer that is silent.
func TestAVerdictThatIsCertainIsGivenAtOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		content string
		code    wire.Code
	}{
		{"a byte after the newline", "{}\n{", wire.CodeFrameMultiple},
		{"one byte too many", strings.Repeat("x", wire.MaxFrame+1), wire.CodeFrameTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := 0
			r := io.MultiReader(iotest.OneByteReader(strings.NewReader(c.content)), readerFunc(func([]byte) (int, error) {
				read++
				return 0, io.EOF
			}))
			if _, code, _ := wire.ReadFrame(r, nil); code != c.code {
				t.Fatalf("code %q", code)
			}
			if read > 0 {
				t.Fatal("it went on reading")
			}
		})
	}
}

func TestAStreamThatDripsIsReadToItsDeadline(t *testing.T) {
	server, client := net.Pipe()
	defer server.Close()
	defer client.Close()
	dripped := make(chan struct{})
	go func() {
		for _, c := range []byte("{}\n") {
			client.Write([]byte{c})
		}
		_ = server.SetReadDeadline(aLongTimeAgo)
		close(dripped)
	}()
	_, code, err := wire.ReadFrame(server, nil)
	<-dripped
	if code != wire.CodeDeadlineExceeded || err != nil {
		t.Fatalf("code %q, error %v", code, err)
	}
}

func TestAReaderThatNeverReadsIsGivenUp(t *testing.T) {
	idle := readerFunc(func([]byte) (int, error) { return 0, nil })
	if _, code, err := wire.ReadFrame(idle, nil); code != "" || !errors.Is(err, io.ErrNoProgress) {
		t.Fatalf("code %q, error %v", code, err)
	}
}

func TestAReaderMayPause(t *testing.T) {
	content, calls := strings.NewReader(strings.Repeat("x", 200)+"\n"), 0
	pausing := readerFunc(func(p []byte) (int, error) {
		if calls++; calls%10 != 0 {
			return 0, nil
		}
		return content.Read(p[:1])
	})
	if frame, code, err := wire.ReadFrame(pausing, nil); len(frame) != 200 || code != "" || err != nil {
		t.Fatalf("%d bytes, code %q, error %v", len(frame), code, err)
	}
}

// A socket that is read with control messages reports a deadline with -1.
func TestAReaderMaySayMinusOne(t *testing.T) {
	for _, content := range []string{"", "{}", "{}\n"} {
		r := io.MultiReader(strings.NewReader(content), readerFunc(func([]byte) (int, error) { return -1, deadline }))
		if _, code, err := wire.ReadFrame(r, nil); code != wire.CodeDeadlineExceeded || err != nil {
			t.Errorf("after %q: code %q, error %v", content, code, err)
		}
	}
}

func TestAFrameOfUsualSizeTakesLittleRoom(t *testing.T) {
	frame, _, _ := wire.ReadFrame(bytes.NewReader(mintRequest().Append(nil)), nil)
	if cap(frame) > 2048 {
		t.Fatalf("a frame of %d bytes took %d", len(frame), cap(frame))
	}
}

func TestABufferIsUsedAgain(t *testing.T) {
	line := mintRequest().Append(nil)
	var r bytes.Reader
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		r.Reset(line)
		buf, _, _ = wire.ReadFrame(&r, buf)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	if want := frameOf(mintRequest()); !bytes.Equal(buf, want) {
		t.Fatalf("the frame is %q", buf)
	}
}

func TestWhatABufferHeldIsNotPartOfTheFrame(t *testing.T) {
	buf := []byte("left over\n")
	frame, code, err := wire.ReadFrame(strings.NewReader("{}\n"), buf)
	if string(frame) != "{}" || code != "" || err != nil {
		t.Fatalf("%q, code %q, error %v", frame, code, err)
	}
}

func TestALargeBufferDoesNotLiftTheBound(t *testing.T) {
	r := &pieces{content: strings.Repeat("x", 3*wire.MaxFrame), end: io.EOF}
	_, code, _ := wire.ReadFrame(r, make([]byte, 0, 4*wire.MaxFrame))
	if code != wire.CodeFrameTooLarge || r.given != wire.MaxFrame+1 {
		t.Fatalf("code %q after %d bytes", code, r.given)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
