package mcpproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"
)

// errEndless ends a stream of which a single event takes many times what a
// message may be long.
var errEndless = errors.New("one event of the stream does not end")

const (
	// patienceFor is how many limits of a message are read of one that is too
	// long, to come to its end.
	patienceFor = 16
	// longestField bounds the fields beside data.
	longestField = 64 << 10
	longestRetry = 5 * time.Minute
)

// event is one of an event stream (WHATWG HTML, section 9.2), with data.
type event struct {
	name string
	data []byte
	long *outline // of data longer than the limit, instead of it
}

// eventReader reads an event stream. lastID and retry are what the events
// that next returned, and those without data between them, have set.
type eventReader struct {
	r      *bufio.Reader
	max    int
	lastID string
	retry  time.Duration // 0: not said
	// onLong, if set, is called once for an event of more than longMessage,
	// before more of it is read.
	onLong func() error

	isLong  bool
	begun   bool
	skipLF  bool
	line    []byte
	dropped bool // the line is a long one of no interest
	skipped int

	now     event
	hasData bool
	id      string
}

// eventBuffers are readers for as many streams as there are at once: most have
// a single event, which is far shorter than a buffer that suits long ones.
var eventBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 16<<10) }}

func newEventReader(in io.Reader, limit int, lastID string) *eventReader {
	r, _ := eventBuffers.Get().(*bufio.Reader)
	r.Reset(in)
	return &eventReader{r: r, max: limit, lastID: lastID, id: lastID}
}

// release ends the reading; what was read stays.
func (e *eventReader) release() {
	e.r.Reset(nil)
	eventBuffers.Put(e.r)
	e.r = nil
}

// next returns the next event that has data. An event whose end did not come
// is none.
func (e *eventReader) next() (event, error) {
	for {
		if _, err := e.r.Peek(1); err != nil {
			return event{}, err
		}
		buf, _ := e.r.Peek(e.r.Buffered())
		if e.skipLF {
			e.skipLF = false
			if buf[0] == '\n' {
				_, _ = e.r.Discard(1)
				continue
			}
		}
		n := lineEnd(buf)
		if n < 0 {
			err := e.take(buf)
			_, _ = e.r.Discard(len(buf))
			if err != nil {
				return event{}, err
			}
			continue
		}
		err := e.take(buf[:n])
		e.skipLF = buf[n] == '\r'
		_, _ = e.r.Discard(n + 1)
		if err != nil {
			return event{}, err
		}
		if ev, ok := e.endLine(); ok {
			return ev, nil
		}
	}
}

// lineEnd is where the first line of p ends, -1 if it does not. Most of a long
// message is one line, and two looks, for a byte each, are many times as fast
// as one for any of two. They go a step at a time: else each of many lines that
// end in \r would have all that follows it looked through.
func lineEnd(p []byte) int {
	const step = 1 << 10
	for from := 0; from < len(p); from += step {
		part := p[from:min(from+step, len(p))]
		n := bytes.IndexByte(part, '\n')
		if n >= 0 {
			part = part[:n]
		}
		if r := bytes.IndexByte(part, '\r'); r >= 0 {
			n = r
		}
		if n >= 0 {
			return from + n
		}
	}
	return -1
}

var fieldData = []byte("data:")

// take adds to the line, or lets pass what is too long.
func (e *eventReader) take(p []byte) error {
	switch {
	case e.dropped:
		e.skipped += len(p)
	case e.now.long != nil && bytes.HasPrefix(e.line, fieldData):
		_, _ = e.now.long.Write(p)
		e.skipped += len(p)
	default:
		e.line = appendDoubling(e.line, p)
		isData := bytes.HasPrefix(e.line, fieldData)
		switch {
		case !isData && len(e.line) > longestField:
			e.dropped, e.line = true, nil
		case isData && len(e.now.data)+len(value(e.line)) > e.max:
			e.now.long = &outline{}
			_, _ = e.now.long.Write(e.now.data)
			_, _ = e.now.long.Write(value(e.line))
			e.now.data, e.line = nil, append([]byte(nil), fieldData...)
		case isData && e.now.long != nil:
			_, _ = e.now.long.Write(value(e.line))
			e.line = append([]byte(nil), fieldData...)
		}
	}
	if e.skipped/patienceFor > e.max {
		return errEndless
	}
	if !e.isLong && len(e.line)+len(e.now.data) > longMessage && e.onLong != nil {
		e.isLong = true
		return e.onLong()
	}
	return nil
}

// value is what stands behind the colon of a line.
func value(line []byte) []byte {
	_, v, _ := bytes.Cut(line, []byte(":"))
	return bytes.TrimPrefix(v, []byte(" "))
}

// endLine interprets a line that is complete; ok if it has ended an event.
func (e *eventReader) endLine() (ev event, ok bool) {
	line := e.line
	e.line = nil // what follows keeps it, if it is data
	if !e.begun {
		e.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if e.dropped {
		e.dropped = false
		return event{}, false
	}
	if len(line) == 0 {
		return e.dispatch()
	}
	field, _, _ := bytes.Cut(line, []byte(":"))
	v := value(line)
	if string(field) != "data" {
		e.line = line[:0]
	}
	switch string(field) {
	case "data":
		switch {
		case e.now.long != nil:
		case !e.hasData:
			e.now.data = v
		default:
			e.now.data = append(append(e.now.data, '\n'), v...)
		}
		e.hasData = true
	case "event":
		e.now.name = string(v)
	case "id":
		if bytes.IndexByte(v, 0) < 0 {
			e.id = string(v)
		}
	case "retry":
		// Digits only; what nobody can mean is not waited for.
		if ms, err := strconv.ParseUint(string(v), 10, 62); err == nil {
			e.retry = min(time.Duration(min(ms, uint64(longestRetry/time.Millisecond)))*time.Millisecond, longestRetry)
		}
	}
	return event{}, false
}

func (e *eventReader) dispatch() (ev event, ok bool) {
	ev, ok = e.now, e.hasData && (len(e.now.data) > 0 || e.now.long != nil)
	e.lastID = e.id
	e.now, e.hasData, e.skipped, e.isLong = event{}, false, 0, false
	return ev, ok
}

var _ io.Writer = (*outline)(nil)
