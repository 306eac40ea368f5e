package credstore_test

import (
	"testing"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

func TestASourceHoldsTheTokenThatItsTargetHasNow(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-1)), "ci": {"kind": "static", "token": "S0"}})
	s := open(t, credstore.Config{Dir: dir})
	a := &authority{}
	check := func(target, token string, want bool) {
		t.Helper()
		held, err := sourceOf(t, s, target, a).Holds(secret.New(token))
		if err != nil || held != want {
			t.Errorf("%s holds %q: %v, %v", target, token, held, err)
		}
	}
	check(box, "A0", true) // though it has expired
	check(box, "A1", false)
	check(box, "R0", false)
	check(box, "", false)
	check("ci", "S0", true)
	check("nobody", "A0", false)

	t.Setenv(credstore.OverrideVariable(box), "E0")
	check(box, "A0", false) // nobody gets that one now
	check(box, "E0", true)
	if n := len(a.sent()); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}
