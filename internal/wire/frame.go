package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
)

// MaxFrame bounds a frame, its newline included.
const MaxFrame = 65536

// firstRead is the room for a frame whose size nobody knows yet: all but the
// largest bindings fit.
const firstRead = 1024

// idleReads is how often a reader may say that it has read nothing and met no
// error before it counts as broken.
const idleReads = 100

// ReadFrame reads one frame to the end of its stream and returns it without
// its newline, as bytes of buf or of a larger buffer that took its place; the
// caller may hand them in again as buf once the frame is no longer needed. buf
// may be nil.
//
// A code is a refusal that the peer is to be told. It is returned as soon as
// it is certain, whatever else is still to come, and depends only on the
// bytes, not on how they were cut into pieces:
//
//   - FRAME_TOO_LARGE at byte 65,537 when none of those before is a newline;
//   - FRAME_MULTIPLE at any byte after the first newline;
//   - FRAME_UNTERMINATED at an end of the stream before a newline, also when
//     nothing was sent at all;
//   - DEADLINE_EXCEEDED when r fails with [os.ErrDeadlineExceeded].
//
// Any other error of r is returned as it is, without a code: nobody is there
// to be answered. No more than MaxFrame + 1 bytes are ever read.
func ReadFrame(r io.Reader, buf []byte) ([]byte, Code, error) {
	line, code, err := readLine(r, buf)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, CodeDeadlineExceeded, nil
	case err != nil || code != "":
		return nil, code, err
	}
	return line, "", nil
}

// readLine reads until the stream ends, fails, or is certain to hold no single
// line. If the stream fails after a whole line, it returns the line together
// with the error.
func readLine(r io.Reader, buf []byte) (line []byte, code Code, err error) {
	buf = buf[:0]
	end := -1 // of the line, once its newline is here
	for idle := 0; ; {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, min(max(len(buf)+1, firstRead), MaxFrame+1-len(buf)))
		}
		// Room for the byte too many, and no more. The newline is within
		// MaxFrame, so that there is room behind it too.
		n, err := r.Read(buf[len(buf):min(cap(buf), MaxFrame+1)])
		n = max(n, 0) // a socket that reports a deadline may say -1
		start := len(buf)
		buf = buf[:start+n]

		if end < 0 {
			if i := bytes.IndexByte(buf[start:min(len(buf), MaxFrame)], '\n'); i >= 0 {
				end = start + i
			}
		}
		switch {
		case end < 0 && len(buf) > MaxFrame:
			return nil, CodeFrameTooLarge, nil
		case end >= 0 && len(buf) > end+1:
			return nil, CodeFrameMultiple, nil
		case errors.Is(err, io.EOF) && end < 0:
			return nil, CodeFrameUnterminated, nil
		case errors.Is(err, io.EOF):
			return buf[:end], "", nil
		case err != nil && end < 0:
			return nil, "", err
		case err != nil:
			return buf[:end], "", err
		case n > 0:
			idle = 0
		default:
			if idle++; idle == idleReads {
				return nil, "", io.ErrNoProgress
			}
		}
	}
}
