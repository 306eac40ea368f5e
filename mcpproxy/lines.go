package mcpproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader reads messages of a line each (the stdio transport), up to a
// limit, and of longer ones what they were.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(in io.Reader, limit int) *lineReader {
	return &lineReader{bufio.NewReaderSize(in, 64<<10), limit}
}

// next returns the next line that is not blank, without its end. Of a line
// longer than the limit only long is returned. A last line need not end.
func (l *lineReader) next() (line []byte, long *outline, err error) {
	for {
		line, long, err = l.read()
		if long == nil {
			line = bytes.TrimSuffix(line, []byte("\r"))
			if len(bytes.TrimSpace(line)) == 0 && err == nil {
				continue
			}
		}
		if errors.Is(err, io.EOF) && (long != nil || len(bytes.TrimSpace(line)) > 0) {
			err = nil
		}
		return line, long, err
	}
}

func (l *lineReader) read() (line []byte, long *outline, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		if long == nil && len(line)+len(part) > l.max+1 {
			long = &outline{}
			_, _ = long.Write(line)
			line = nil
		}
		if long != nil {
			_, _ = long.Write(part)
		} else {
			line = appendDoubling(line, part)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), long, err
		}
	}
}

// appendDoubling appends to what may become long: append itself grows by a
// quarter each time, and copies the whole more often.
func appendDoubling(b, p []byte) []byte {
	if len(b)+len(p) > cap(b) && len(b) > 0 {
		b = append(make([]byte, 0, 2*cap(b)+len(p)), b...)
	}
	return append(b, p...)
}
