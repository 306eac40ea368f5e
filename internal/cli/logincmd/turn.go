package logincmd

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/lockfile"
)

// turn waits while another process asks the person to sign in to the same
// target, so that three that start at once open one browser. What that one
// gets is adopted if it is what was asked for here. A person who does not want
// to wait presses Enter; without one at a terminal the wait has a bound.
//
// It returns the turn, if there is one to be had, or that of what another
// process did: signed in to what is wanted here, or to something else.
func (l *login) turn(ctx context.Context) (*credstore.Turn, others, error) {
	if l.flow == byPaste || l.flow == byClient {
		return nil, nothing, nil // what is pasted is pasted here, and a machine opens nothing
	}
	in, ok := l.app.Streams.In.(*os.File)
	person := ok && foreground(in)
	stop := func() {}
	waiting := func() {
		switch {
		case person:
			if !l.waited {
				l.app.Say("Another process is signing in to %s: waiting for it. Press Enter to sign in here instead.", l.target)
			}
			stop = onEnter(in, l.goOn)
		case l.unasked: // beside the other one, there would be two browsers
			l.app.Say("Another process is signing in to %s: waiting for it.", l.target)
		case !l.bounded:
			l.bounded = true
			bound := l.app.loginPatience()
			l.app.Say("Another process is signing in to %s: waiting for it, for %s at most.", l.target, bound)
			time.AfterFunc(bound, l.goOn)
		}
		l.waited = true
	}
	turn, adopted, err := l.store.LoginTurn(ctx, l.target, l.since, waiting, l.enough)
	stop()
	if err != nil || !adopted {
		return turn, nothing, err
	}
	known, ok, err := l.store.Known(l.target)
	if err != nil {
		return nil, nothing, err
	}
	l.since = known.Login
	if !ok || !l.plan.metBy(known) {
		return nil, somethingElse, nil
	}
	l.app.Say("signed in to %s%s, by another process", l.target, as(known.Pin.Email, known.Pin.Subject))
	return nil, theSame, nil
}

// others says what another process did while this one waited.
type others int

const (
	nothing others = iota
	theSame
	somethingElse
)

// loginPatience is how long a process without a terminal waits for another
// one's sign-in.
func (a *app) loginPatience() time.Duration {
	if c, err := a.Config(); err == nil && c.Lock.StaleAfter > 0 {
		return time.Duration(c.Lock.StaleAfter)
	}
	return lockfile.DefaultStaleAfter
}

// metBy reports whether another process's login is what this one asks for.
func (p plan) metBy(k credstore.Known) bool {
	if p.clientID != "" && k.Pin.ClientID != p.clientID {
		return false
	}
	for _, h := range p.hosts {
		if !slices.Contains(k.Hosts, h) {
			return false
		}
	}
	if p.url != "" && k.URL != p.url || k.Pin.TokenUse != p.tokenUse || k.Pin.TokenEndpoint != p.server.TokenEndpoint || k.Pin.Resource != p.resource {
		return false
	}
	for _, s := range p.asked {
		if !slices.Contains(k.Pin.Scope, s) {
			return false
		}
	}
	return true
}
