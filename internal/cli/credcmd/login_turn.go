package credcmd

import (
	"bufio"
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/term"

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
	var timer *time.Timer
	waiting := func() {
		if in, ok := l.app.Streams.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
			l.app.done("Another process is signing in to %s: waiting for it. Press Enter to sign in here instead.", l.target)
			go func() {
				_, _ = bufio.NewReader(in).ReadString('\n') // its end is as good
				close(l.enough)
			}()
			return
		}
		bound := l.app.loginPatience()
		l.app.done("Another process is signing in to %s: waiting for it, for %s at most.", l.target, bound)
		timer = time.AfterFunc(bound, func() { close(l.enough) })
	}
	if l.waited {
		waiting = nil // it was said, and what ends the wait is set up
	}
	turn, adopted, err := l.store.LoginTurn(ctx, l.target, func() {
		if waiting != nil {
			waiting()
			l.waited = true
		}
	}, l.enough)
	if timer != nil && turn != nil {
		timer.Stop()
	}
	if err != nil || !adopted {
		return turn, nothing, err
	}
	known, ok, err := l.store.Known(l.target)
	if err != nil {
		return nil, nothing, err
	}
	if !ok || !l.plan.metBy(known) {
		return nil, somethingElse, nil
	}
	l.app.done("signed in to %s%s, by another process", l.target, as(known.Pin.Email, known.Pin.Subject))
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
func (a *App) loginPatience() time.Duration {
	if c, err := a.Config(); err == nil && c.Lock.StaleAfter > 0 {
		return time.Duration(c.Lock.StaleAfter)
	}
	return lockfile.DefaultStaleAfter
}

// metBy reports whether another process's login is what this one asks for.
func (p plan) metBy(k credstore.Known) bool {
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
