//go:build linux

package broker

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
	"github.com/spendonce/spendonce/peercred"
)

// auditFile is in the state directory. It informs; nothing is decided by it.
const auditFile = "broker-audit.log"

// auditPending bounds the lines that wait for the disk, in bytes. Over it
// they are counted and not kept: a disk that hangs must not stop the broker.
const auditPending = 1 << 20

// auditDelay is how long a line waits for others: a system call for each
// would cost a tenth of what a request does.
const auditDelay = 50 * time.Millisecond

// decision is one line of the audit log, see append for its members. It holds
// no id: only the first eight hex digits of their hashes, which tell two apart
// and give neither away.
type decision struct {
	time       time.Time
	action     wire.Action // as understood; none if the frame was not
	code       wire.Code   // OK or the refusal
	reason     string      // what the caller is not told
	pid        int
	uid        uint32
	start      uint64         // clock ticks since boot; 0 if it was not looked up
	chain      peercred.Chain // from the caller towards the anchor
	session    string
	token      string
	generation uint64
	took       time.Duration // from accept to the decision
}

// append adds the decision as a JSON object. It is written out by hand because
// every request ends here.
func (d *decision) append(b []byte) []byte {
	text := func(name, value string) {
		if value != "" {
			b = appendString(append(append(append(b, ",\""...), name...), "\":"...), value)
		}
	}
	number := func(name string, value uint64) {
		b = strconv.AppendUint(append(append(append(b, ",\""...), name...), "\":"...), value, 10)
	}
	b = append(b, `{"time":"`...)
	b = append(d.time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00"), '"')
	text("action", string(d.action))
	text("code", string(d.code))
	text("reason", d.reason)
	number("pid", uint64(d.pid))
	number("uid", uint64(d.uid))
	if d.start != 0 {
		number("starttime", d.start)
	}
	text("session", d.session)
	text("token", d.token)
	if d.action != "" {
		number("generation", d.generation)
	}
	number("us", uint64(d.took.Microseconds()))
	if len(d.chain) > 0 {
		b = append(b, `,"chain":[`...)
		for i, l := range d.chain {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(append(b, `{"pid":`...), int64(l.PID), 10)
			b = strconv.AppendUint(append(b, `,"starttime":`...), l.StartTime, 10)
			b = append(appendString(append(b, `,"command":`...), l.Comm), '}')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendString adds a JSON string.
func appendString(b []byte, s string) []byte {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil { // of a string: never
				quoted = []byte(`""`)
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

const codeOK wire.Code = "OK"

// idPrefix names an id in logs and in status.
func idPrefix(id secret.Secret) string {
	if f := id.Fingerprint(); f != "" {
		return f[:8]
	}
	return ""
}

// auditLog collects lines and writes them in the background, many with one
// system call.
type auditLog struct {
	dir   *durable.Dir
	limit int64
	warn  func(string)

	mu      sync.Mutex
	pending []byte
	dropped int
	closed  bool

	wake chan struct{} // there is a first line
	full chan struct{} // there are many, or no more will come
	done chan struct{}
}

func newAuditLog(dir *durable.Dir, limit int64, warn func(string)) *auditLog {
	l := &auditLog{dir: dir, limit: limit, warn: warn, wake: make(chan struct{}, 1), full: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *auditLog) add(d *decision) {
	l.mu.Lock()
	first := len(l.pending) == 0
	if len(l.pending) < auditPending {
		l.pending = append(d.append(l.pending), '\n')
	} else {
		l.dropped++
	}
	many := len(l.pending) >= auditPending/4
	l.mu.Unlock()
	if first {
		signal(l.wake)
	}
	if many {
		signal(l.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *auditLog) run() {
	defer close(l.done)
	failing := false
	var spare []byte
	delay := time.NewTimer(0)
	for {
		<-l.wake
		delay.Reset(auditDelay)
		select {
		case <-delay.C:
		case <-l.full:
		}
		l.mu.Lock()
		lines, dropped, closed := l.pending, l.dropped, l.closed
		l.pending, l.dropped = spare[:0], 0
		l.mu.Unlock()
		if dropped > 0 {
			lines = fmt.Appendf(lines, `{"dropped":%d}`+"\n", dropped)
		}
		if len(lines) > 0 {
			err := l.write(lines)
			if err != nil && !failing {
				l.warn(fmt.Sprintf("the audit log is not written any more: %v", err))
			}
			failing = err != nil
		}
		spare = lines
		if closed {
			return
		}
	}
}

func (l *auditLog) write(lines []byte) error {
	if err := l.dir.Append(auditFile, lines); err != nil {
		return err
	}
	return l.dir.Rotate(auditFile, l.limit)
}

// close writes what was added before it.
func (l *auditLog) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	signal(l.wake)
	signal(l.full)
	<-l.done
}
