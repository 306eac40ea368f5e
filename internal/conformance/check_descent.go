//go:build linux

package conformance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func descentChecks() []check {
	return []check{
		{rule: "descent.walk", name: "the anchor, its child and its grandchild may act for the session", run: func(t *trial) {
			f := t.family()
			for _, p := range []process{f.anchor, f.child, f.grandchild} {
				t.proven(p, f.anchor.session)
				t.spend(p, f.anchor.session, t.mint(p, f.anchor.session))
			}
		}},
		{rule: "descent.walk", name: "a process eight steps below the anchor may too", run: func(t *trial) {
			a := t.anchor(0)
			last := a.actor
			for range 8 {
				last = t.child(last)
			}
			t.proven(last, a.session)
		}},
		{rule: "descent.walk", name: "a child that the anchor started after a generation may act for it", run: func(t *trial) {
			a := t.anchor(0)
			t.raise(a)
			t.proven(t.child(a), a.session)
		}},
		{rule: "descent.walk", name: "the anchor's parent is refused, whatever it asks", run: func(t *trial) {
			f := t.family()
			t.stranger(t.self, f.anchor.session)
		}},
		{rule: "descent.walk", name: "a process beside the anchor is refused, whatever it asks", run: func(t *trial) {
			f := t.family()
			t.stranger(t.process(), f.anchor.session)
		}},
		{rule: "descent.walk", name: "another anchor and its child are refused, whatever they ask", run: func(t *trial) {
			f, other := t.family(), t.anchor(1)
			t.stranger(other, f.anchor.session)
			t.stranger(t.child(other), f.anchor.session)
		}},
		{rule: "descent.walk", name: "a stranger's attempt leaves the token pending", run: func(t *trial) {
			a := t.anchor(0)
			tok := t.mint(a, a.session)
			t.refused(t.ask(t.self, a.consume(tok)), "NOT_DESCENDANT")
			t.refused(t.ask(t.process(), a.consume(tok)), "NOT_DESCENDANT")
			t.spend(a, a.session, tok)
		}},
		{rule: "descent.walk", name: "a command name that looks like other fields of /proc leads nobody astray", run: func(t *trial) {
			a := t.anchor(0)
			t.proven(t.childNamed(a, `a) R 1 1 (\n`), a.session)
			t.stranger(t.childNamed(t.self, fmt.Sprintf("a) R %d (", a.pid)), a.session)
			t.proven(a, a.session)
		}},
		{rule: "descent.orphan", name: "a process whose parent has exited no longer descends", run: func(t *trial) {
			a := t.anchor(0)
			d := t.child(a)
			g := t.child(d)
			t.proven(g, a.session)
			t.orphan(g, d)
			t.stranger(g, a.session)
			t.proven(a, a.session)
		}},
		{rule: "descent.orphan", name: "an orphan that a subreaper in the tree takes over still descends", run: func(t *trial) {
			a := t.anchor(0)
			t.order(a, order{Do: doSubreaper})
			d := t.child(a)
			g := t.child(d)
			t.orphan(g, d)
			t.proven(g, a.session)
		}},
		{rule: "session.end", name: "a session ends with its anchor", run: func(t *trial) {
			a := t.anchor(0)
			d := t.child(a)
			t.mint(d, a.session)
			t.must(t.bury(a.actor))
			t.gone(d, a.session)
			t.gone(t.self, a.session)
		}},
		{rule: "session.end", name: "an anchor that waits to be reaped has exited", run: func(t *trial) {
			parent := t.process()
			a := t.anchorBelow(parent, 0)
			d := t.child(a)
			t.unreaped(a.actor)
			t.gone(d, a.session)
		}},
		{rule: "session.end", name: "what was the child of an anchor that exited registers as any other", run: func(t *trial) {
			a := t.anchor(0)
			d := t.child(a)
			t.must(t.bury(a.actor))
			again := t.registered(d, 0)
			same(t, again.id == a.id, false, "the same session")
			t.proven(d, again.session)
		}},
		{rule: "session.unknown", name: "a session id that was never made, or is spelt otherwise, is unknown", run: func(t *trial) {
			f := t.family()
			id := f.anchor.id
			t.canonical(id)
			var all []variant
			for _, other := range []string{
				"", "x", never(), id[:42], id + "A", id + "=", " " + id, id + "\\n", strings.ToLower(id), strings.ToUpper(id),
				respelt(id), "\\u0000", "null", strings.Repeat("a", 60000),
			} {
				all = append(all, variant{fmt.Sprintf("%d characters", len(other)), session{other, 1}.authenticate()})
			}
			t.each(f.child, all, "SESSION_UNKNOWN")
		}},
		{rule: "peer.namespace", name: "a descendant in a pid namespace of its own is served", run: func(t *trial) {
			f := t.family()
			d, err := t.start(f.anchor, order{Namespace: true})
			if err != nil {
				t.skip("this machine lets nobody make a pid namespace: " + err.Error())
			}
			t.local = append(t.local, d)
			t.proven(d, f.anchor.session)
		}},
	}
}

// childNamed starts an actor whose parent, a shell, is a child of the one given
// and has a command name of up to 15 bytes.
func (t *trial) childNamed(parent process, name string) *actor {
	const script = `printf "$0" >/proc/$$/comm || exit 1; "$@"; exit $?`
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.skip("there is no shell")
	}
	a, err := t.start(parent, order{Argv: []string{shell, "sh", "-c", script, name}})
	t.must(err)
	t.local = append([]*actor{a}, t.local...)
	return a
}

// stranger ends the check unless p, a process outside the tree of s, is
// refused each request that needs descent.
func (t *trial) stranger(p process, s session) {
	for _, f := range requestsAt(s) {
		t.refused(t.ask(p, f), "NOT_DESCENDANT")
	}
}

// orphan ends parent and returns when child has another one.
func (t *trial) orphan(child, parent *actor) {
	before := t.order(child, order{Do: doLook}).Parent
	t.must(t.bury(parent))
	t.eventually("another parent", func() bool { return t.order(child, order{Do: doLook}).Parent != before })
}

// gone ends the check unless s is unknown to p, at once or soon, and granted
// nothing before.
func (t *trial) gone(p process, s session) {
	t.eventually("SESSION_UNKNOWN", func() bool {
		a := t.ask(p, s.authenticate())
		if a.ok || a.problem != "" {
			t.broken(a.String(), "SESSION_UNKNOWN")
		}
		t.got, t.want = a.String(), "SESSION_UNKNOWN"
		return a.code == "SESSION_UNKNOWN"
	})
	t.refused(t.ask(p, s.mint()), "SESSION_UNKNOWN")
}

// unreaped lets an actor exit and returns when it is a zombie. Its parent
// must be one that does not reap of its own accord, which actors do not.
func (t *trial) unreaped(a *actor) {
	t.must(a.exit())
	t.eventually("a zombie", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.pid))
		t.must(err)
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		// The first thread is a zombie before the others have gone, and only
		// when they have does the process count as exited.
		return fields[0] == "Z" && fields[17] == "1"
	})
}
