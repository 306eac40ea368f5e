//go:build linux

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// Act is the main function of an actor: it obeys the orders that come on in
// and answers on out, and returns when in ends or it is told to. The process
// must then exit, whatever it was doing: its life is part of what is judged.
func Act(in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	if err := answers.Encode(reply{Pid: os.Getpid(), Parent: os.Getppid()}); err != nil {
		return fmt.Errorf("answering: %w", err)
	}
	orders := make(chan order)
	ended := make(chan error, 2)
	go func() {
		dec := json.NewDecoder(in)
		for {
			var o order
			if err := dec.Decode(&o); err != nil {
				ended <- err
				return
			}
			if o.Do == doExit {
				ended <- nil
				return
			}
			orders <- o
		}
	}()
	go func() {
		p := newPerformer()
		for o := range orders {
			if err := answers.Encode(p.do(o)); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := <-ended; err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("obeying: %w", err)
	}
	return nil
}

// performer carries orders out in its own process. The kit has one too: as
// the parent of all anchors it descends from none of them.
type performer struct {
	conns map[string]sock
}

func newPerformer() *performer { return &performer{conns: map[string]sock{}} }

// channelTime bounds what passes between kit and actors, which is never slow.
const channelTime = 10 * time.Second

func (p *performer) do(o order) reply {
	switch o.Do {
	case doTalk:
		return reply{Heard: []heard{p.talk(o)}}
	case doVolley:
		return reply{Heard: volley(o)}
	case doSpawn:
		pid, err := p.spawn(o)
		return failing(reply{Pid: pid}, err)
	case doExec:
		return failing(reply{}, syscall.Exec(o.Argv[0], o.Argv[1:], os.Environ()))
	case doGive:
		return failing(reply{}, p.give(o))
	case doTake:
		return failing(reply{}, p.take(o))
	case doAdopt:
		syscall.CloseOnExec(3)
		p.conns[o.Conn] = 3
		return reply{}
	case doWait:
		return failing(reply{}, wait(o.Pid))
	case doLook:
		return reply{Pid: os.Getpid(), Parent: os.Getppid()}
	case doSubreaper:
		const setChildSubreaper = 36
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
			return failing(reply{}, errno)
		}
		return reply{}
	}
	return reply{Failed: "there is no order " + o.Do}
}

func failing(r reply, err error) reply {
	if err != nil {
		r.Failed = err.Error()
	}
	return r
}

func (p *performer) talk(o order) (h heard) {
	began := time.Now()
	h.End = endUnread
	defer func() { h.Took = time.Since(began).Milliseconds() }()
	if o.Socket != "" {
		s, err := dialAs(o.AsUser, o.Socket)
		if err != nil {
			h.End = err.Error()
			return h
		}
		p.drop(o.Conn)
		p.conns[o.Conn] = s
	}
	s, ok := p.conns[o.Conn]
	if !ok {
		h.End = "there is no connection " + o.Conn
		return h
	}
	if err := s.sendAll(o.Chunks); err != nil {
		h.Sent = err.Error()
	}
	if o.Shut {
		if err := s.shut(); err != nil && h.Sent == "" {
			h.Sent = err.Error()
		}
	}
	if o.Peek > 0 && !s.answered(milliseconds(o.Peek)) {
		h.End = endSilent
	}
	if o.Read > 0 {
		h.Raw, h.End = s.read(milliseconds(o.Read))
	}
	if o.Close {
		p.drop(o.Conn)
	}
	return h
}

func (p *performer) drop(conn string) {
	if s, ok := p.conns[conn]; ok {
		s.close()
		delete(p.conns, conn)
	}
}

// sendAll writes the chunks, until one fails or an answer comes in a pause.
func (s sock) sendAll(chunks []chunk) error {
	for _, c := range chunks {
		if c.Pause > 0 && s.answered(milliseconds(c.Pause)) {
			return nil
		}
		var oob []byte
		if c.Descriptor {
			oob = syscall.UnixRights(int(s))
		}
		if err := s.send(c.Data, oob); err != nil {
			return err
		}
	}
	return nil
}

// volley makes all requests as nearly at the same time as one process can:
// each is complete but for its end, and then they end one after the other.
func volley(o order) []heard {
	began := time.Now()
	all := make([]heard, len(o.Frames))
	conns := make([]sock, len(o.Frames))
	for i, frame := range o.Frames {
		s, err := dial(o.Socket, channelTime)
		if err != nil {
			all[i].End, conns[i] = err.Error(), -1
			continue
		}
		conns[i] = s
		if err := s.send(frame, nil); err != nil {
			all[i].Sent = err.Error()
		}
	}
	for i, s := range conns {
		if s >= 0 && o.Shut {
			if err := s.shut(); err != nil && all[i].Sent == "" {
				all[i].Sent = err.Error()
			}
		}
	}
	for i, s := range conns {
		if s >= 0 {
			all[i].Raw, all[i].End = s.read(milliseconds(o.Read))
			s.close()
		}
		all[i].Took = time.Since(began).Milliseconds()
	}
	return all
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
