//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long the kit waits for any answer, in ms. The broker's
// deadlines are meant to be below it.
const patience = 5000

// check is one thing that a broker must do.
type check struct {
	section string
	rule    string // its name in docs/protocol.md
	name    string
	slow    bool // waits for a deadline or needs a crowd
	run     func(*trial)
}

// kit is the state of one run.
type kit struct {
	socket  string
	argv    []string // how actors are started: path, then arguments
	hub     *hub
	self    *performer
	actors  []*actor
	named   int
	tree    *tree // shared by checks that do not harm it
	answers []answer
}

func newKit(socket string, argv []string) (*kit, error) {
	h, err := openHub()
	if err != nil {
		return nil, err
	}
	return &kit{socket: socket, argv: argv, hub: h, self: newPerformer()}, nil
}

// close ends all actors, children before their parents.
func (k *kit) close() error {
	var failed error
	for _, a := range slices.Backward(k.actors) {
		failed = errors.Join(failed, k.bury(a))
	}
	k.hub.close()
	k.hub.served.Wait()
	for conn := range k.self.conns {
		k.self.drop(conn)
	}
	return failed
}

// trial is one run of a check. Its methods end the check as soon as something
// is not as it should be.
type trial struct {
	*kit
	got, want string
	local     []*actor // end with the check
}

// How a check ends early, as the value of a panic that judge recovers.
type (
	broken  struct{ got, want string } // the broker does not keep the rule
	skipped struct{ why string }       // this machine does not allow the check
	unable  struct{ err error }        // the kit failed
)

// judge runs one check. The error says that the kit failed.
func (k *kit) judge(c check, res *Result) (err error) {
	t := &trial{kit: k}
	defer func() {
		switch end := recover().(type) {
		case nil:
			res.Held, res.Got, res.Want = true, t.got, t.want
		case broken:
			res.Got, res.Want = end.got, end.want
		case skipped:
			res.Skipped, res.Got = true, end.why
		case unable:
			err = end.err
		default:
			panic(end)
		}
		if end := t.end(!res.Held); err == nil {
			err = end
		}
	}()
	c.run(t)
	return nil
}

// end ends the check's actors. The shared tree goes with a check that did not
// hold: it may not be what the next one expects.
func (t *trial) end(harmed bool) error {
	if harmed && t.tree != nil {
		t.local = append(t.local, t.tree.grandchild, t.tree.child, t.tree.anchor.actor)
		t.tree = nil
	}
	for _, a := range t.local {
		if err := t.bury(a); err != nil {
			return err
		}
	}
	return nil
}

// bury ends an actor and lets its parent reap it, if that still can.
func (k *kit) bury(a *actor) error {
	if a.buried {
		return nil
	}
	a.buried = true
	err := a.exit()
	if a.parent == process(k.self) {
		if err != nil { // it hangs
			_ = syscall.Kill(a.pid, syscall.SIGKILL)
		}
		return errors.Join(err, wait(a.pid))
	}
	a.parent.do(order{Do: doWait, Pid: a.pid})
	return err
}

func (t *trial) broken(got, want string) { panic(broken{short(got, 300), want}) }

func (t *trial) skip(why string) { panic(skipped{why}) }

func (t *trial) must(err error) {
	if err != nil {
		panic(unable{err})
	}
}

// order gives an order that the broker has no part in.
func (t *trial) order(p process, o order) reply {
	r := p.do(o)
	if r.Failed != "" {
		panic(unable{fmt.Errorf("%s: %s", o.Do, r.Failed)})
	}
	return r
}

// talk lets p talk to the broker and notes what it heard.
func (t *trial) talk(p process, o order) answer {
	o.Do = doTalk
	r := t.order(p, o)
	return t.note(r.Heard[0])
}

func (t *trial) note(h heard) answer {
	a := newAnswer(h)
	if h.End != endUnread {
		t.answers = append(t.answers, a)
	}
	return a
}

// ask makes one whole request as a client should. It asks again when the
// broker was busy, the machine too slow for the deadline, or the process tree
// in motion: each of these is no statement about the request.
func (t *trial) ask(p process, frame string) answer {
	return t.insist(func() answer {
		return t.talk(p, order{Conn: "ask", Socket: t.socket, Chunks: pieces(frame), Shut: true, Read: patience, Close: true})
	})
}

func (t *trial) insist(try func() answer) answer {
	a := try()
	for range 3 {
		if !a.passing() {
			break
		}
		a = try()
	}
	return a
}

// passing reports whether the same request may be answered otherwise at once.
func (a answer) passing() bool {
	return a.code == "BUSY" || a.code == "DEADLINE_EXCEEDED" || a.code == "ANCESTRY_CHANGED"
}

// pieces are chunks without pauses.
func pieces(texts ...string) []chunk {
	var all []chunk
	for _, text := range texts {
		all = append(all, chunk{Data: []byte(text)})
	}
	return all
}

// meanwhile lets p carry out o while f runs, and returns when both are done,
// also if f ends the check.
func meanwhile(p process, o order, f func()) (r reply) {
	var other sync.WaitGroup
	defer other.Wait()
	other.Go(func() { r = p.do(o) })
	f()
	other.Wait()
	return r
}

// eventually polls until done holds, or ends the check.
func (t *trial) eventually(want string, done func() bool) {
	deadline := time.Now().Add(patience * time.Millisecond)
	for !done() {
		if time.Now().After(deadline) {
			t.broken("not within 5 s", want)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// refused ends the check unless a is a refusal with one of the codes.
func (t *trial) refused(a answer, codes ...string) {
	t.got, t.want = a.String(), strings.Join(codes, " or ")
	if a.problem != "" || a.ok || !slices.Contains(codes, a.code) {
		t.broken(t.got, t.want)
	}
}

// granted ends the check unless a is a success that holds what.
func (t *trial) granted(a answer, what string) {
	t.got, t.want = a.String(), "ok with "+what
	if a.problem != "" || !a.ok || !a.has[what] {
		t.broken(t.got, t.want)
	}
}

// same ends the check unless both are equal.
func same[T comparable](t *trial, got, want T, about string) {
	t.got, t.want = fmt.Sprintf("%s: %v", about, got), fmt.Sprint(want)
	if got != want {
		t.broken(redact(t.got), redact(t.want))
	}
}
