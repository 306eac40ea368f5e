package credcmd

import (
	"bufio"
	"context"
	"slices"
	"time"

	"golang.org/x/term"

	"os"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/lockfile"
)

// turn waits while another process asks the person to sign in to the same
// target, so that three that start at once open one browser. What that one
// gets is adopted if it is what was asked for here. A person who does not want
// to wait presses Enter; without one at a terminal the wait has a bound.
func (l *login) turn(ctx context.Context) (*credstore.Turn, bool, error) {
	if l.flow == byPaste || l.flow == byClient {
		return nil, false, nil // what is pasted is pasted here, and a machine opens nothing
	}
	enough := make(chan struct{})
	var timer *time.Timer
	waiting := func() {
		if in, ok := l.app.Streams.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
			l.app.done("Another process is signing in to %s: waiting for it. Press Enter to sign in here instead.", l.target)
			go func() {
				_, _ = bufio.NewReader(in).ReadString('\n') // its end is as good
				close(enough)
			}()
			return
		}
		bound := l.app.loginPatience()
		l.app.done("Another process is signing in to %s: waiting for it, for %s at most.", l.target, bound)
		timer = time.AfterFunc(bound, func() { close(enough) })
	}
	for {
		turn, adopted, err := l.store.LoginTurn(ctx, l.target, waiting, enough)
		if timer != nil {
			timer.Stop()
		}
		if err != nil || !adopted {
			return turn, false, err
		}
		known, ok, err := l.store.Known(l.target)
		if err != nil {
			return nil, false, err
		}
		if ok && l.plan.metBy(known) {
			l.app.done("signed in to %s%s, by another process", l.target, as(known.Pin.Email, known.Pin.Subject))
			return nil, true, nil
		}
		waiting = nil // it was another sign-in than ours: once more, if somebody has the turn already
	}
}

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
	if p.url != "" && k.URL != p.url || k.Pin.TokenEndpoint != p.server.TokenEndpoint || k.Pin.Resource != p.resource {
		return false
	}
	for _, s := range p.asked {
		if !slices.Contains(k.Pin.Scope, s) {
			return false
		}
	}
	return true
}
