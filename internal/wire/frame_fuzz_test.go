package wire_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/wire"
)

var aLongTimeAgo = time.Unix(1, 0)

// pieces is a stream that is cut as sizes says and then ends with end.
type pieces struct {
	content string
	sizes   []byte
	end     error
	early   bool // end comes with the last bytes

	given  int // bytes that were read
	before int // bytes that had been read before the last call
}

func (p *pieces) Read(b []byte) (int, error) {
	p.before = p.given
	if p.given == len(p.content) {
		return 0, p.end
	}
	if len(p.sizes) > 0 {
		// 255 stands for a large piece; 0 for a call that reads nothing.
		size := int(p.sizes[0])
		if size == 255 {
			size = 40000
		}
		b, p.sizes = b[:min(len(b), size)], p.sizes[1:]
	}
	n := copy(b, p.content[p.given:])
	p.given += n
	if p.early && p.given == len(p.content) {
		return n, p.end
	}
	return n, nil
}

// readWhole is what ReadFrame must say about a stream, told from all of it at
// once, and after how many bytes that is certain.
func readWhole(content string, end error) (frame string, code wire.Code, certain int, err error) {
	i := strings.IndexByte(content, '\n')
	switch {
	case (i < 0 || i >= 65536) && len(content) > 65536:
		return "", "FRAME_TOO_LARGE", 65537, nil
	case i >= 0 && i+1 < len(content):
		return "", "FRAME_MULTIPLE", i + 2, nil
	case errors.Is(end, deadline):
		return "", "DEADLINE_EXCEEDED", len(content) + 1, nil
	case !errors.Is(end, io.EOF):
		return "", "", len(content) + 1, end
	case i < 0:
		return "", "FRAME_UNTERMINATED", len(content) + 1, nil
	}
	return content[:i], "", len(content) + 1, nil
}

// The stream is pad bytes without a newline and then tail.
func FuzzFrame(f *testing.F) {
	f.Add(uint(0), "{}\n", []byte{1}, byte(0))
	f.Add(uint(0), "{}\n{}\n", []byte{3, 1}, byte(0))
	f.Add(uint(0), "{}\n\n", []byte{2, 2}, byte(1))
	f.Add(uint(0), "", []byte{}, byte(0))
	f.Add(uint(0), "", []byte{0, 0, 0}, byte(2))
	f.Add(uint(0), "{}\r\n", []byte{3, 1}, byte(3))
	f.Add(uint(65535), "\n", []byte{255, 255}, byte(0))
	f.Add(uint(65535), "x\n", []byte{255, 255}, byte(0))
	f.Add(uint(65535), "\nx", []byte{255, 255}, byte(1))
	f.Add(uint(65536), "", []byte{255, 200, 255}, byte(0))
	f.Add(uint(65536), "\n", []byte{255, 0, 255}, byte(4))
	f.Add(uint(65536), "x", []byte{255, 0, 255}, byte(5))
	f.Add(uint(70000), "\n", []byte{}, byte(0))
	f.Add(uint(1023), "\n", []byte{}, byte(0))
	f.Add(uint(1024), "\n{", []byte{255}, byte(0))
	padding := strings.Repeat("x", 70001)
	var buf []byte
	f.Fuzz(func(t *testing.T, pad uint, tail string, sizes []byte, how byte) {
		// As many empty reads in a row as end the reading are another test.
		if len(sizes) > 90 {
			sizes = sizes[:90]
		}
		r := &pieces{
			content: padding[:pad%uint(len(padding))] + tail,
			sizes:   sizes,
			end:     []error{io.EOF, deadline, syscall.ECONNRESET}[how/2%3],
			early:   how%2 == 1,
		}
		wantFrame, wantCode, certain, wantErr := readWhole(r.content, r.end)
		frame, code, err := wire.ReadFrame(r, buf)
		if string(frame) != wantFrame || code != wantCode || !errors.Is(err, wantErr) {
			t.Fatalf("%d bytes, code %q, error %v; want %d bytes, code %q, error %v", len(frame), code, err, len(wantFrame), wantCode, wantErr)
		}
		if r.given > wire.MaxFrame+1 {
			t.Fatalf("%d bytes were read", r.given)
		}
		if r.before >= certain {
			t.Fatalf("the verdict was certain after %d bytes, and it went on reading after %d", certain, r.before)
		}
		if frame != nil {
			buf = frame
		}
	})
}
