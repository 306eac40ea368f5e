//go:build linux

package broker

import (
	"encoding/json"
	"fmt"
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

// decision is one line of the audit log. It holds no id: only the first eight
// hex digits of their hashes, which tell two apart and give neither away.
type decision struct {
	Time       time.Time   `json:"time"`
	Action     wire.Action `json:"action,omitempty"` // as understood; none if the frame was not
	Code       wire.Code   `json:"code"`             // OK or the refusal
	Reason     string      `json:"reason,omitempty"` // what the caller is not told
	PID        int         `json:"pid"`
	UID        uint32      `json:"uid"`
	StartTime  uint64      `json:"starttime,omitempty"` // clock ticks since boot
	Chain      []hop       `json:"chain,omitempty"`     // from the caller towards the anchor
	Session    string      `json:"session,omitempty"`
	Token      string      `json:"token,omitempty"`
	Generation *uint64     `json:"generation,omitempty"`
	Micros     int64       `json:"us"` // from accept to the decision
}

// hop is one process of a walked chain.
type hop struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
	Command   string `json:"command"` // as the process calls itself: 15 bytes of its own choice
}

const codeOK wire.Code = "OK"

// idPrefix names an id in logs and in status.
func idPrefix(id secret.Secret) string {
	if f := id.Fingerprint(); f != "" {
		return f[:8]
	}
	return ""
}

func hops(chain peercred.Chain) []hop {
	out := make([]hop, len(chain))
	for i, l := range chain {
		out[i] = hop{l.PID, l.StartTime, l.Comm}
	}
	return out
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
	line, err := json.Marshal(d)
	if err != nil { // no such value is in it
		line = []byte(`{"error":"a decision could not be written down"}`)
	}
	l.mu.Lock()
	first := len(l.pending) == 0
	if len(l.pending)+len(line) < auditPending {
		l.pending = append(append(l.pending, line...), '\n')
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
