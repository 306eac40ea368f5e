package bearer_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/bearer"
)

func TestALackOfScopeIsNamedAndNothingIsRefreshed(t *testing.T) {
	for challenge, want := range map[string][]string{
		`Bearer realm="x", error="insufficient_scope", scope="files:read files:write"`:       {"files:read", "files:write"},
		`Bearer error="insufficient_scope"`:                                                  nil,
		`Basic realm="x", Bearer scope="a a b", error=insufficient_scope`:                    {"a", "b"},
		"Bearer error=\"insufficient_scope\", scope=\"ok badé b\\\"ad\u00e9 https://x/y.z\"": {"ok", "https://x/y.z"},
		`Bearer error="insufficient_scope", scope="` + strings.Repeat("x", 300) + ` ok"`:     {"ok"},
	} {
		src := newSource()
		here := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "not for you")
		})
		_, _, err := do(t, clientOf(t, bearer.Config{Source: src}, here.URL), request(t, "GET", here.URL, nil))
		var scope *bearer.ScopeError
		if !errors.As(err, &scope) || !errors.Is(err, bearer.ErrScope) || scope.Target != box || !slices.Equal(scope.Missing, want) {
			t.Errorf("%q is the error %v", challenge, err)
			continue
		}
		if b, _ := io.ReadAll(scope.Answer.Body); scope.Answer.StatusCode != 403 || string(b) != "not for you" {
			t.Errorf("its answer is %d %q", scope.Answer.StatusCode, b)
		}
		if asked, exchanges := src.counts(); asked != 1 || exchanges != 0 || len(here.got()) != 1 {
			t.Errorf("asked for %d tokens, %d exchanges, %d requests", asked, exchanges, len(here.got()))
		}
		src.silent(t, err)
	}
}

func TestAnyOther403IsAnAnswer(t *testing.T) {
	for _, challenge := range []string{"", `Bearer error="invalid_token"`, `Basic error="insufficient_scope"`} {
		here := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusForbidden)
		})
		status, _, err := do(t, clientOf(t, bearer.Config{Source: newSource()}, here.URL), request(t, "GET", here.URL, nil))
		if err != nil || status != 403 {
			t.Errorf("%q: %d, %v", challenge, status, err)
		}
	}
}

// The words are a server's, and who reads them pastes them into a shell.
func TestTheLoginThatIsNamedIsSafeInAShell(t *testing.T) {
	scopes := []string{"read", "$(id)", "`id`", "a;b", "it's", "'", "--help", "~", "*", "a|b", "#x", "!x", "{a,b}", "<x>", "&"}
	text := (&bearer.ScopeError{Target: box, Missing: scopes}).Error()
	_, command, ok := strings.Cut(text, "sign in again with: ")
	if !ok {
		t.Fatal(text)
	}
	out, err := exec.Command("sh", "-c", `spendonce() { printf '%s\n' "$@"; }; `+command).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{"login", box}
	for _, s := range scopes {
		want = append(want, "--scope", s)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("a shell makes %q of it", got)
	}
}
