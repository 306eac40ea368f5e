package credstore_test

import (
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
)

func TestWhoNeedsAFreshTokenIsNotGivenOneThatIsAboutToEnd(t *testing.T) {
	temporary := failing(credstore.Failure{Class: credstore.ClassTemporary, Text: "busy"})
	for name, c := range map[string]struct {
		left, lifetime time.Duration
		refused        bool
		want           string
	}{
		"with more than a minute left":                       {left: 2 * time.Minute, want: "A0"},
		"with less, renewed":                                 {left: 30 * time.Second, want: "A-new-1"},
		"with less, where the refresh fails":                 {left: 30 * time.Second, refused: true},
		"in the first half of a short life":                  {left: 15 * time.Second, lifetime: 20 * time.Second, refused: true, want: "A0"},
		"in the second half of it, where the refresh fails":  {left: 8 * time.Second, lifetime: 20 * time.Second, refused: true},
		"in the second half of it, which gives one as short": {left: 8 * time.Second, lifetime: 20 * time.Second, want: "A-new-1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(c.left))})
			putSession(t, dir, box, session{"lifetimeSeconds": c.lifetime.Seconds(), "loginId": "L"})
			a := &authority{lifetime: c.lifetime}
			if c.refused {
				a.answer = temporary
			}
			src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
			if c.want == "" {
				mustRefuse(t, src, credstore.Request{Fresh: true}, credstore.ErrTemporary)
				return
			}
			mustGive(t, src, credstore.Request{Fresh: true}, c.want)
		})
	}
}
