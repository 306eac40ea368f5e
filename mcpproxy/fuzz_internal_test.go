package mcpproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const fuzzLimit = 64

// The bytes of each line come out as they went in, however they arrive.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"", "a\n", "a", "\r\n\n a\r\nb", "{}\n{}\n", strings.Repeat("x", fuzzLimit) + "\n" + strings.Repeat("y", fuzzLimit+1) + "\nz", "a\x00\n\r"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		type one struct {
			line []byte
			long bool
		}
		var want []one
		for line := range bytes.Lines(in) {
			if len(line) > fuzzLimit+1 {
				want = append(want, one{nil, true})
				continue
			}
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			if len(bytes.TrimSpace(line)) > 0 {
				want = append(want, one{line, false})
			}
		}
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(in), "in bytes": iotest.OneByteReader(bytes.NewReader(in)), "with its end": iotest.DataErrReader(bytes.NewReader(in))} {
			lines := newLineReader(r, fuzzLimit)
			for i := 0; ; i++ {
				line, long, err := lines.next()
				if errors.Is(err, io.EOF) {
					if i != len(want) {
						t.Fatalf("%s: %d lines, want %d", name, i, len(want))
					}
					break
				}
				if err != nil || i >= len(want) || !bytes.Equal(line, want[i].line) || (long != nil) != want[i].long {
					t.Fatalf("%s: line %d is %q, too long %v, %v", name, i, line, long != nil, err)
				}
			}
		}
	})
}

// wantedEvent is one as the standard's own words make it.
type wantedEvent struct {
	name, data, id string
	retry          time.Duration
}

// byTheBook reads a stream as the standard describes it: split it into lines
// first, then interpret each. Limits it has none.
func byTheBook(in string) (all []wantedEvent, lastID string) {
	in = strings.TrimPrefix(in, "\ufeff")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(in, "\n")
	var now wantedEvent
	var data []string
	var id string
	var retry time.Duration
	for _, line := range lines[:len(lines)-1] { // the last one does not end
		if line == "" {
			lastID = id
			if text := strings.Join(data, "\n"); text != "" {
				now.data, now.id, now.retry = text, id, retry
				all = append(all, now)
			}
			now, data = wantedEvent{}, nil
			continue
		}
		field, v, _ := strings.Cut(line, ":")
		v = strings.TrimPrefix(v, " ")
		switch field {
		case "event":
			now.name = v
		case "data":
			data = append(data, v)
		case "id":
			if !strings.Contains(v, "\x00") {
				id = v
			}
		case "retry":
			if ms, err := strconv.ParseUint(v, 10, 62); err == nil {
				retry = min(time.Duration(min(ms, 1<<40))*time.Millisecond, longestRetry)
			}
		}
	}
	return all, lastID
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"", "data: {}\n\n", "data:a\rdata: b\r\r", "\ufeffid: 1\ndata\n\n", ":c\r\nevent: x\r\nid\r\nretry: 10\r\ndata:  a \r\n\r\n",
		"id: a\x00b\ndata: x\n\ndata: y", "data: a\n\rdata: b\n\n", "retry: 99999999999999999999\ndata: 1\n\nretry: -1\nretry: 5 \ndata: 2\n\n", "data\ndata\n\n", "\n\n\r\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		want, lastID := byTheBook(string(in))
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(in), "in bytes": iotest.OneByteReader(bytes.NewReader(in)), "in halves": iotest.HalfReader(bytes.NewReader(in))} {
			events := newEventReader(r, 1<<20, "")
			for i := 0; ; i++ {
				ev, err := events.next()
				if errors.Is(err, io.EOF) {
					if i != len(want) || events.lastID != lastID {
						t.Fatalf("%s: %d events to %q, want %d to %q", name, i, events.lastID, len(want), lastID)
					}
					break
				}
				if err != nil || i >= len(want) || ev.name != want[i].name || string(ev.data) != want[i].data || events.lastID != want[i].id || events.retry != want[i].retry || ev.long != nil {
					t.Fatalf("%s: event %d is %q %q, id %q, retry %v, %v; want %+v", name, i, ev.name, ev.data, events.lastID, events.retry, err, want[min(i, len(want)-1)])
				}
			}
		}
	})
}

// A stream with a small limit gives the same, but for the events that are over
// it: those are reported as too long, and nothing else is lost.
func FuzzEventsOverTheLimit(f *testing.F) {
	f.Add([]byte("data: " + strings.Repeat("x", fuzzLimit+1) + "\n\ndata: y\n\n"))
	f.Add([]byte("data: " + strings.Repeat("x", fuzzLimit-1) + "\ndata: y\n\ndata: z\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		want, _ := byTheBook(string(in))
		events := newEventReader(iotest.HalfReader(bytes.NewReader(in)), fuzzLimit, "")
		for i := 0; ; i++ {
			ev, err := events.next()
			if errors.Is(err, errEndless) {
				return
			}
			if err != nil {
				if i != len(want) {
					t.Fatalf("%d events, want %d", i, len(want))
				}
				return
			}
			if i >= len(want) || ev.name != want[i].name {
				t.Fatalf("event %d is %q", i, ev.name)
			}
			if ev.long == nil && string(ev.data) != want[i].data || ev.long != nil && len(want[i].data) < fuzzLimit {
				t.Fatalf("event %d is %q, too long %v; want %q", i, ev.data, ev.long != nil, want[i].data)
			}
		}
	})
}

var fuzzMessages = []string{
	`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
	`{"id":"a\"b","result":{"id":2,"x":"}{,:"}}`, `{"method":"n","params":{"requestId":"\u0061"}}`, `[{"id":1,"method":"m"},{"id":1.0,"error":{}}]`,
	`{"id":null,"error":{"code":1}}`, `{"id":{},"method":"m"}`, ` { "id" : -0.5e1 , "method" : "m" } `, `{"\u0069d":1,"method":"m"}`, `{"id":1,"id":2,"method":"m"}`, `{`, `1`, `"\ud800"`,
}

// What is taken for a message is JSON by another program's reading, and of the
// same meaning; an outline of it says the same, however it arrives.
func FuzzMessages(f *testing.F) {
	for _, s := range fuzzMessages {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := parse(in)
		if err != nil {
			return
		}
		if !json.Valid(in) || !bytes.Equal(m.raw, in) {
			t.Fatalf("%q is taken for a message", in)
		}
		if m.kind == kindBatch {
			var parts []json.RawMessage
			if err := json.Unmarshal(in, &parts); err != nil || len(parts) != len(m.parts) {
				t.Fatalf("%q is a batch of %d", in, len(m.parts))
			}
			for i, part := range parts {
				if !bytes.Equal(part, m.parts[i].raw) {
					t.Fatalf("part %d of %q is %q", i, in, m.parts[i].raw)
				}
			}
			return
		}
		var byOthers map[string]json.RawMessage
		if err := json.Unmarshal(in, &byOthers); err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if m.id != nil && !bytes.Equal(m.id, byOthers["id"]) {
			t.Fatalf("the id of %q is %q", in, m.id)
		}
		var method string
		_ = json.Unmarshal(byOthers["method"], &method)
		if m.method != method && !strings.Contains(string(in), `\ud`) && !strings.Contains(string(in), `\uD`) {
			t.Fatalf("the method of %q is %q", in, m.method)
		}
		if got := oneLine(bytes.Clone(in)); bytes.ContainsAny(got, "\n\r") || !sameJSON(got, in) {
			t.Fatalf("%q on one line is %q", in, got)
		}
		if v := headerValue(m.name); strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 && r != '\t' || r > 0x7e }) {
			t.Fatalf("%q is sent in a header as %q", m.name, v)
		}
		if bytes.IndexByte(in, '\\') >= 0 || m.kind != kindRequest && m.kind != kindResponse && m.kind != kindNotification || m.id.Kind() == 'n' || len(m.id) > longestID {
			return // an outline knows names in their plain spelling only
		}
		if dec := json.NewDecoder(bytes.NewReader(in)); duplicate(dec) {
			return
		}
		for _, size := range []int{1, 3, len(in)} {
			o := &outline{}
			for rest := in; len(rest) > 0; {
				n := min(size, len(rest))
				_, _ = o.Write(rest[:n])
				rest = rest[n:]
			}
			if o.kind() != m.kind || !bytes.Equal(o.id, m.id) {
				t.Fatalf("%q in pieces of %d is of kind %d, id %q; want %d, %q", in, size, o.kind(), o.id, m.kind, m.id)
			}
		}
	})
}

// sameJSON reports whether two texts are the same without white space.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// duplicate reports whether an object has a name twice at its top.
func duplicate(dec *json.Decoder) bool {
	seen, depth, key := map[string]bool{}, 0, true
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		switch tok := tok.(type) {
		case json.Delim:
			if tok == '{' || tok == '[' {
				depth++
			} else {
				depth--
			}
			key = depth == 1
			continue
		case string:
			if depth == 1 && key {
				if seen[tok] {
					return true
				}
				seen[tok], key = true, false
				continue
			}
		}
		if depth == 1 {
			key = true
		}
	}
}
