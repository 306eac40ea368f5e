//go:build linux

package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/wire"
	"github.com/spendonce/spendonce/peercred"
)

// buffers hold frames while they are read and judged.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// serve answers one connection. The order of its checks is the protocol's:
// the first that fails names the code.
func (s *Server) serve(c *peercred.Conn, accepted time.Time) {
	defer c.Close()
	peer := c.Peer()
	d := &decision{pid: peer.PID, uid: peer.UID}
	if err := c.Refusal(); err != nil {
		s.answer(c, d, accepted, codeOfPeer(err), err, wire.Answer{})
		return
	}
	deadline := accepted.Add(s.cfg.Deadline)
	_ = c.SetReadDeadline(deadline)
	buf, _ := buffers.Get().(*[]byte)
	frame, code, err := wire.ReadFrame(c, (*buf)[:0])
	defer func() {
		clear((*buf)[:cap(*buf)]) // it may hold a token, also of a frame that was refused
		buffers.Put(buf)
	}()
	if err != nil {
		return // the caller has gone: nobody to answer, and nothing was asked
	}
	if code != "" {
		s.answer(c, d, accepted, code, nil, wire.Answer{})
		return
	}
	q, code := wire.ParseRequest(frame)
	clear(frame) // it may hold a token
	d.action = q.Action
	if code != "" {
		s.answer(c, d, accepted, code, nil, wire.Answer{})
		return
	}
	d.session, d.token, d.generation = idPrefix(q.SessionID), idPrefix(q.Token), q.Generation
	a, code, reason := s.decide(c, q, d, deadline)
	s.answer(c, d, accepted, code, reason, a)
}

// refuse answers a connection there is no room for.
func (s *Server) refuse(c *peercred.Conn, accepted time.Time, reason error) {
	d := &decision{pid: c.Peer().PID, uid: c.Peer().UID}
	s.answer(c, d, accepted, wire.CodeBusy, reason, wire.Answer{})
}

// answer writes a decision down and sends it.
func (s *Server) answer(c *peercred.Conn, d *decision, accepted time.Time, code wire.Code, reason error, a wire.Answer) {
	a.Code = code
	now := time.Now()
	d.time, d.code, d.took = now, code, now.Sub(accepted)
	if reason != nil {
		d.reason = reason.Error()
	}
	if code == "" {
		d.code = codeOK
		if d.action == wire.MintToken {
			d.token = idPrefix(a.Token)
		}
		if d.action == wire.RegisterAnchor {
			d.session = idPrefix(a.SessionID)
		}
	}
	s.audit.add(d)
	s.history.note(d)
	_ = c.SetWriteDeadline(now.Add(s.cfg.AnswerBound))
	var space [512]byte
	_, _ = c.Write(a.Append(space[:0], d.action)) // who does not read has had its answer
	clear(space[:])
}

// decide judges a request that is well-formed, from the peer on.
func (s *Server) decide(c *peercred.Conn, q wire.Request, d *decision, deadline time.Time) (wire.Answer, wire.Code, error) {
	caller, err := s.prover.Identify(c)
	if err != nil {
		return wire.Answer{}, codeOfPeer(err), err
	}
	d.start = caller.StartTime
	if q.Action == wire.RegisterAnchor {
		return s.register(c, caller, q, d, deadline)
	}
	session, ok := s.ledger.Session(q.SessionID)
	if !ok {
		return wire.Answer{}, wire.CodeSessionUnknown, nil
	}
	anchor := s.anchors.find(session.Anchor)
	if anchor == nil {
		return wire.Answer{}, wire.CodeSessionUnknown, peercred.ErrAnchorExited
	}
	chain, err := s.prover.Descends(c, anchor)
	d.chain = chain
	if err != nil {
		return wire.Answer{}, codeOfDescent(err), err
	}
	if !time.Now().Before(deadline) {
		return wire.Answer{}, wire.CodeDeadlineExceeded, nil
	}
	var a wire.Answer
	switch q.Action {
	case wire.Authenticate:
		err = s.ledger.Authenticate(q.SessionID, q.Generation)
		a = wire.Answer{SessionID: q.SessionID, Generation: q.Generation}
	case wire.MintToken:
		a.Token, err = s.ledger.Mint(deadline, q.SessionID, q.Generation, ledger.Binding(q.Binding))
	case wire.ConsumeToken:
		var b ledger.Binding
		b, err = s.ledger.Consume(deadline, q.SessionID, q.Generation, q.Token)
		a.Binding = wire.Binding(b)
	default:
		return wire.Answer{}, wire.CodeActionUnknown, nil
	}
	if err != nil {
		return wire.Answer{}, codeOfLedger(err), reasonOf(err)
	}
	return a, "", nil
}

// register makes the caller an anchor.
func (s *Server) register(c *peercred.Conn, caller peercred.Process, q wire.Request, d *decision, deadline time.Time) (wire.Answer, wire.Code, error) {
	if st, err := s.proc.Stat(caller.PID); err == nil && st.StartTime == caller.StartTime {
		d.chain = peercred.Chain{{Process: caller, PPID: st.PPID, Comm: st.Comm}}
	}
	key := keyOf(caller)
	if old := s.anchors.find(key); old != nil && old.Exited() {
		// A process that had this pid in this very clock tick has exited, and
		// we have not come to its end yet.
		if err := s.prune(key, old); err != nil {
			return wire.Answer{}, wire.CodeStateUnavailable, err
		}
	}
	anchor, err := c.Anchor(caller)
	if err != nil {
		return wire.Answer{}, codeOfPeer(err), err
	}
	if !s.anchors.keep(anchor, true) {
		return wire.Answer{}, wire.CodeStateUnavailable, errors.New("a process that had this pid and start is being dealt with")
	}
	peer := c.Peer()
	session, err := s.ledger.Register(deadline, key, peer.UID, peer.GID, q.Generation)
	s.anchors.done(key, func() bool { return s.hasSession(key) })
	if err == nil {
		if a := s.anchors.find(key); a != nil && a.Exited() {
			s.exited(key, a) // it exited while it was registered
		}
		return wire.Answer{SessionID: session.ID, Generation: session.Generation}, "", nil
	}
	return wire.Answer{}, codeOfLedger(err), reasonOf(err)
}

func (s *Server) hasSession(key ledger.Anchor) bool {
	_, ok := s.ledger.SessionOf(key)
	return ok
}

// codeOfPeer is the code for a peer that could not be identified. It is not the
// peer's fault if we have no descriptor left to do so, and will pass.
func codeOfPeer(err error) wire.Code {
	if noDescriptor(err) {
		return wire.CodeBusy
	}
	return wire.CodePeerRefused
}

func codeOfDescent(err error) wire.Code {
	switch {
	case errors.Is(err, peercred.ErrAnchorExited):
		return wire.CodeSessionUnknown
	case errors.Is(err, peercred.ErrAncestryChanged):
		return wire.CodeAncestryChanged
	case errors.Is(err, peercred.ErrNotDescendant):
		return wire.CodeNotDescendant
	default: // a lookup that failed gives nobody an identity
		return codeOfPeer(err)
	}
}

var ledgerCodes = []struct {
	kind error
	code wire.Code
}{
	{ledger.ErrSessionUnknown, wire.CodeSessionUnknown},
	{ledger.ErrGenerationStale, wire.CodeGenerationStale},
	{ledger.ErrGenerationUnknown, wire.CodeGenerationUnknown},
	{ledger.ErrTokenMalformed, wire.CodeTokenMalformed},
	{ledger.ErrTokenReplay, wire.CodeTokenReplay},
	{ledger.ErrTokenCapacity, wire.CodeTokenCapacity},
	{ledger.ErrSessionCapacity, wire.CodeSessionCapacity},
	{ledger.ErrTooLarge, wire.CodeStateTooLarge},
	{ledger.ErrDeadline, wire.CodeDeadlineExceeded},
}

// codeOfLedger: what is not listed is a commit that failed, or a broker that
// is ending.
func codeOfLedger(err error) wire.Code {
	for _, c := range ledgerCodes {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	return wire.CodeStateUnavailable
}

// reasonOf keeps the reason where the code does not say it all.
func reasonOf(err error) error {
	if codeOfLedger(err) == wire.CodeStateUnavailable {
		return err
	}
	return nil
}
