package doctorcmd

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
)

type statusBroker struct {
	Running     bool            `json:"running"`
	Socket      string          `json:"socket,omitempty"`
	PID         int             `json:"pid,omitempty"`
	Stopped     bool            `json:"stopped,omitempty"` // by a signal
	Since       *time.Time      `json:"since,omitempty"`
	StateDir    string          `json:"state_dir,omitempty"`
	Error       string          `json:"error,omitempty"` // why it does not answer, if one is there
	Sessions    []statusSession `json:"sessions"`
	Pending     int             `json:"tokens_pending"`
	Spent       uint64          `json:"tokens_spent"` // since its start
	LastRefusal *statusRefusal  `json:"last_refusal,omitempty"`
}

type statusSession struct {
	Session    string `json:"session"` // the first hex digits of its hash
	AnchorPID  int    `json:"anchor_pid"`
	Command    string `json:"anchor_command"`
	Generation uint64 `json:"runtime_generation"`
	Pending    int    `json:"tokens_pending"`
}

type statusRefusal struct {
	Time   time.Time `json:"time"`
	Code   string    `json:"code"`
	Action string    `json:"action,omitempty"`
	Reason string    `json:"reason,omitempty"`
	PID    int       `json:"pid"`
}

// status is what is shown of the broker; nil where there is none.
func (b *brokerSight) status() *statusBroker {
	if !b.here {
		return nil
	}
	st := &statusBroker{Socket: b.socket, Sessions: []statusSession{}}
	if by, ok := b.stopped(); ok {
		st.PID, st.Stopped, st.Error = by.PID, true, "stopped by a signal"
	}
	switch r := b.running; {
	case r != nil:
		st.Running, st.PID, st.Since, st.StateDir = true, r.pid, moment(r.since), r.stateDir
		st.Sessions, st.Pending, st.Spent, st.LastRefusal = r.sessions, r.pending, r.spent, r.refusal
	case b.socketErr != nil:
		st.Error = b.socketErr.Error()
	case b.runErr != nil && !b.absent:
		st.Error = b.runErr.Error()
	}
	return st
}

// String is the broker in one line.
func (st statusBroker) String() string {
	switch {
	case st.Running:
		return fmt.Sprintf("process %d since %s: %s, %s pending, %d spent", st.PID, st.Since.Format(time.RFC3339), many(len(st.Sessions), "session"), many(st.Pending, "token"), st.Spent)
	case st.Stopped:
		return fmt.Sprintf("process %d, which is stopped: nobody is answered", st.PID)
	case st.Error != "":
		return st.Error
	default:
		return "not running"
	}
}

func (r statusRefusal) String() string {
	text := fmt.Sprintf("%s %s to process %d", r.Time.Format(time.RFC3339), r.Code, r.PID)
	if r.Action != "" {
		text += ", " + r.Action
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// sessionsShown fit on a screen with all the rest.
const sessionsShown = 12

// printSessions prints a table of the broker's sessions, if it has any.
func (st statusBroker) printSessions(out io.Writer) error {
	if len(st.Sessions) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSESSION\tANCHOR\tCOMMAND\tGENERATION\tPENDING")
	for _, s := range st.Sessions[:min(len(st.Sessions), sessionsShown)] {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\n", s.Session, s.AnchorPID, orDash(credcmd.Printable(s.Command)), s.Generation, s.Pending)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n := len(st.Sessions) - sessionsShown; n > 0 {
		_, err := fmt.Fprintf(out, "and %d more: 'spendonce lease status'\n", n)
		return err
	}
	return nil
}
