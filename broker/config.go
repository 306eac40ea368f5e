//go:build linux

package broker

import (
	"errors"
	"os"
	"time"
)

// Config says where a broker listens and what it bounds. Only Socket and
// StateDir must be set; a zero in the rest takes the default.
type Config struct {
	Socket   string // absolute path of the socket
	StateDir string // absolute path of the state directory

	// Activated is a listening socket that a service manager made. Its path
	// is Socket, and it is the manager's to remove.
	Activated *os.File

	MaxConnections int           // at once, over all processes [512]
	MaxPerProcess  int           // at once, of one process [256]
	Deadline       time.Duration // from accept until a request is whole and admitted [1 s]
	AnswerBound    time.Duration // for writing an answer [1 s]

	MaxSessions int // with living anchors [1024]
	MaxTokens   int // pending, in all sessions together [256]
	MaxState    int // bytes of the state file [4 MiB]

	// AuditLimit is the size at which the audit log becomes
	// broker-audit.log.1 [4 MiB].
	AuditLimit int64

	// Warn is told what an operator should know and no client can be told;
	// nil: nobody. It must not wait.
	Warn func(text string)
}

func (c Config) withDefaults() Config {
	set := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	set(&c.MaxConnections, 512)
	set(&c.MaxPerProcess, 256)
	if c.Deadline <= 0 {
		c.Deadline = time.Second
	}
	if c.AnswerBound <= 0 {
		c.AnswerBound = time.Second
	}
	if c.AuditLimit <= 0 {
		c.AuditLimit = 4 << 20
	}
	if c.Warn == nil {
		c.Warn = func(string) {}
	}
	return c
}

// What keeps a broker from starting.
var (
	// ErrUnsafe says that a directory or the state file cannot be trusted, or
	// that the state is damaged. What is not safe was not changed.
	ErrUnsafe = errors.New("the broker cannot start safely")
	// ErrRunning says that another broker has the socket or the state file.
	ErrRunning = errors.New("another broker is running")
	// ErrNotCommitted says that what had to be dropped at start could not be
	// written, or at the end, that the last change may not have been.
	ErrNotCommitted = errors.New("the state cannot be written")
)
