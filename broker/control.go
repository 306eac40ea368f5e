//go:build linux

package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/procfs"
	"github.com/spendonce/spendonce/internal/wire"
	"github.com/spendonce/spendonce/lease"
	"github.com/spendonce/spendonce/peercred"
)

// The control socket answers questions about the broker and changes nothing.
// It takes the same frames as the other, from processes of the same user.

const (
	controlConnections = 16
	controlAnswerLimit = 4 << 20
)

const controlSuffix = "control.sock"

// controlPath is the path of the control socket beside a socket: another one
// for each, because who has the socket's lock may take it.
func controlPath(socket string) string {
	dir, name := filepath.Split(socket)
	if name == "broker.sock" {
		return dir + controlSuffix
	}
	return dir + name + "." + controlSuffix
}

// Status is what a broker tells of itself. Ids are the first eight hex digits
// of their SHA-256.
type Status struct {
	Version  int               `json:"version"` // of this shape: 1
	PID      int               `json:"pid"`
	Socket   string            `json:"socket"`
	StateDir string            `json:"state_dir"`
	Since    time.Time         `json:"since"`
	Sessions []SessionStatus   `json:"sessions"`
	Pending  int               `json:"tokens_pending"`
	Minted   uint64            `json:"tokens_minted"`  // since the start, like what follows
	Spent    uint64            `json:"tokens_spent"`   // consumed
	Revoked  uint64            `json:"tokens_revoked"` // by a generation or the anchor's exit
	Commits  uint64            `json:"commits"`
	InDoubt  bool              `json:"in_doubt"` // the last commit's outcome is not known to be durable; the next one says it again
	Answers  map[string]uint64 `json:"answers"`
	Latency  Latency           `json:"latency"`
	Refusals []Refused         `json:"last_refusals"` // the newest first
}

// SessionStatus is one session.
type SessionStatus struct {
	Session    string `json:"session"`
	AnchorPID  int    `json:"anchor_pid"`
	StartTime  uint64 `json:"anchor_starttime"`
	Command    string `json:"anchor_command"`
	UID        uint32 `json:"uid"`
	Generation uint64 `json:"runtime_generation"`
	Pending    int    `json:"tokens_pending"`
}

// Refused is one refusal, with the reason that the caller was not told.
type Refused struct {
	Time    time.Time `json:"time"`
	Action  string    `json:"action,omitempty"`
	Code    string    `json:"code"`
	Reason  string    `json:"reason,omitempty"`
	PID     int       `json:"pid"`
	UID     uint32    `json:"uid"`
	Session string    `json:"session,omitempty"`
	Chain   []Hop     `json:"chain,omitempty"`
}

// Hop is one process of a walked chain.
type Hop struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
	Command   string `json:"command"` // as the process calls itself: 15 bytes of its own choice
}

func hops(chain peercred.Chain) []Hop {
	out := make([]Hop, len(chain))
	for i, l := range chain {
		out[i] = Hop{l.PID, l.StartTime, l.Comm}
	}
	return out
}

// Why is a process's way up, held against a session's anchor, or against
// every session if none was named.
type Why struct {
	Version int         `json:"version"` // of this shape: 1
	PID     int         `json:"pid"`
	Chain   []Hop       `json:"chain"` // to the anchor or to the top
	Belongs string      `json:"belongs,omitempty"`
	Answers []WhyAnswer `json:"answers"`
}

// WhyAnswer is what one session says.
type WhyAnswer struct {
	Session   string `json:"session"`
	AnchorPID int    `json:"anchor_pid"`
	Code      string `json:"code"` // OK, or what the process would be answered
	Reason    string `json:"reason,omitempty"`
}

type controlRequest struct {
	Query         string `json:"query"` // status or why
	PID           int    `json:"pid,omitempty"`
	SessionSHA256 string `json:"session_sha256,omitempty"` // first 16 hex digits
}

type controlError struct {
	Error string `json:"error"`
}

func (s *Server) serveControl(c *peercred.Conn, accepted time.Time) {
	defer c.Close()
	if c.Refusal() != nil {
		return
	}
	_ = c.SetReadDeadline(accepted.Add(s.cfg.Deadline))
	frame, code, err := wire.ReadFrame(c, nil)
	if err != nil {
		return
	}
	var q controlRequest
	var answer any
	switch {
	case code != "":
		answer = controlError{"the question could not be read: " + string(code)}
	case c.Verify() != nil:
		return
	case json.Unmarshal(frame, &q) != nil:
		answer = controlError{"the question is no JSON object"}
	case q.Query == "status":
		answer = s.status()
	case q.Query == "why":
		answer = s.why(q.PID, q.SessionSHA256)
	default:
		answer = controlError{"there is no such question"} // and what it said is nobody's business
	}
	s.answerControl(c, answer)
}

func (s *Server) refuseControl(c *peercred.Conn, _ time.Time, reason error) {
	s.answerControl(c, controlError{"too many ask: " + reason.Error()})
}

func (s *Server) answerControl(c *peercred.Conn, answer any) {
	b, err := json.Marshal(answer)
	if err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(s.cfg.AnswerBound))
	_, _ = c.Write(append(b, '\n'))
}

func (s *Server) status() Status {
	st := s.ledger.Stats()
	out := Status{
		Version: 1, PID: os.Getpid(), Socket: s.cfg.Socket, StateDir: s.cfg.StateDir, Since: s.since,
		Pending: st.Pending, Minted: st.Minted, Spent: st.Spent, Revoked: st.Revoked, Commits: st.Commits, InDoubt: st.InDoubt,
		Answers: s.history.codes(), Latency: s.history.latency(), Refusals: s.history.last(), Sessions: []SessionStatus{},
	}
	for _, session := range s.ledger.Sessions() {
		row := SessionStatus{
			Session: idPrefix(session.ID), AnchorPID: session.Anchor.PID, StartTime: session.Anchor.StartTime,
			UID: session.UID, Generation: session.Generation, Pending: s.ledger.PendingOf(session.ID),
		}
		if p, err := s.proc.Stat(session.Anchor.PID); err == nil && p.StartTime == session.Anchor.StartTime {
			row.Command = p.Comm
		}
		out.Sessions = append(out.Sessions, row)
	}
	return out
}

// why walks up from a process as a request of its own would be judged.
func (s *Server) why(pid int, session string) any {
	if _, err := s.proc.Stat(pid); err != nil {
		if errors.Is(err, procfs.ErrNoProcess) {
			return controlError{fmt.Sprintf("there is no process %d", pid)}
		}
		return controlError{err.Error()}
	}
	out := Why{Version: 1, PID: pid, Answers: []WhyAnswer{}}
	known := false
	for _, of := range s.ledger.Sessions() {
		if session != "" && of.ID.Fingerprint() != session {
			continue
		}
		known = true
		a := WhyAnswer{Session: idPrefix(of.ID), AnchorPID: of.Anchor.PID, Code: string(codeOK)}
		chain, err := s.prover.Explain(pid, processOf(of.Anchor))
		if err == nil && !s.anchors.alive(of.Anchor) {
			err = peercred.ErrAnchorExited
		}
		if err != nil {
			a.Code, a.Reason = string(codeOfDescent(err)), err.Error()
		}
		if err == nil && (out.Belongs == "" || len(chain) < len(out.Chain)) {
			out.Belongs, out.Chain = a.Session, hops(chain)
		} else if out.Belongs == "" && len(chain) > len(out.Chain) {
			out.Chain = hops(chain)
		}
		out.Answers = append(out.Answers, a)
	}
	if !known && session != "" {
		out.Answers = append(out.Answers, WhyAnswer{Session: session[:min(8, len(session))], Code: string(wire.CodeSessionUnknown)})
	}
	if out.Chain == nil {
		// Held against nobody, the walk goes to the top.
		chain, _ := s.prover.Explain(pid, peercred.Process{})
		out.Chain = hops(chain)
	}
	return out
}

// QueryStatus asks the broker at a socket what it knows of itself. Where none
// runs it is [lease.ErrNoBroker].
func QueryStatus(ctx context.Context, socket string) (Status, error) {
	var out Status
	return out, query(ctx, socket, controlRequest{Query: "status"}, &out)
}

// QueryWhy asks why a process does or does not belong to a session; the empty
// id asks for every session.
func QueryWhy(ctx context.Context, socket string, pid int, session lease.Secret) (Why, error) {
	var out Why
	return out, query(ctx, socket, controlRequest{Query: "why", PID: pid, SessionSHA256: session.Fingerprint()}, &out)
}

func query(ctx context.Context, socket string, q controlRequest, out any) error {
	conn, err := lease.Dial(controlPath(socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	// As with the other socket: who was refused cannot write, and can read.
	if _, err = conn.Write(append(b, '\n')); err == nil {
		err = conn.CloseWrite()
	}
	b, readErr := io.ReadAll(io.LimitReader(conn, controlAnswerLimit))
	if err = errors.Join(err, readErr); err != nil && !bytes.HasSuffix(b, []byte("\n")) {
		return fmt.Errorf("asking the broker: %w", err)
	}
	var wrong controlError
	if err := json.Unmarshal(b, &wrong); err != nil {
		return fmt.Errorf("reading the broker's answer: %w", err)
	}
	if wrong.Error != "" {
		return errors.New("the broker says: " + wrong.Error)
	}
	return json.Unmarshal(b, out)
}

func processOf(a ledger.Anchor) peercred.Process {
	return peercred.Process{PID: a.PID, StartTime: a.StartTime}
}
