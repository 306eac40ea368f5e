//go:build linux

package ledger_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/ledger"
)

var update = flag.Bool("update", false, "write the fault matrix into docs/threat-model.md")

// stepNames are the steps as system calls.
var stepNames = map[string]string{
	"create":   "openat of the temporary file",
	"write":    "pwrite of all bytes",
	"fsync":    "fsync of the file",
	"rename":   "renameat",
	"fsyncdir": "fsync of the directory",
}

// The table is what happened just now, at every step of the commit of a
// consume_token.
func TestTheThreatModelPrintsTheFaultMatrix(t *testing.T) {
	const name, start, end = "../../docs/threat-model.md", "<!-- fault matrix -->\n", "<!-- /fault matrix -->"
	data, err := os.ReadFile(name)
	must(t, err)
	before, rest, ok := strings.Cut(string(data), start)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no lines %s and %s around the matrix", name, strings.TrimSpace(start), end)
	}
	want := matrix(t)
	if got == want || t.Failed() {
		return
	}
	if !*update {
		t.Fatalf("%s shows another matrix; `go test -run FaultMatrix ./internal/ledger -update` writes this one:\n%s", name, want)
	}
	must(t, os.WriteFile(name, []byte(before+start+want+end+after), 0o644))
}

func matrix(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| step | which | the client is told | the file then holds | asked again, it is told | after a restart instead |\n|---|---|---|---|---|---|\n")
	for _, step := range commitSteps {
		for _, how := range []string{notDone, allFail, doneAfterAll, doneAllFail, cutShort, killedBefore, killedPart, killedAfter} {
			if (how == cutShort || how == killedPart) && step != "write" {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", stepNames[step], how, strings.Join(ended(t, step, how), " | "))
		}
	}
	return b.String()
}

// ended plays one fault through and tells what became of it.
func ended(t *testing.T, step, how string) []string {
	t.Helper()
	path := memory(t)
	l := open(t, path, ledger.Config{})
	s := register(t, l, 1, 0)
	token := mint(t, l, s, 1)
	stop(t, l)
	prior := contentOf(t, stateFile(path))

	other := memory(t) // the same, to ask twice
	write(t, stateFile(other), prior)

	said, killed := child(t, "spend", path, step, how, s.ID.Reveal(), token.Reveal(), "once")
	told, again := strings.TrimSpace(said), "(gone)"
	if killed {
		told = "nothing"
		if said != "" {
			t.Errorf("%s %s: answered %q before the end", step, how, said)
		}
	} else {
		said, _ := child(t, "spend", other, step, how, s.ID.Reveal(), token.Reveal(), "again")
		words := strings.Fields(said)
		if len(words) != 2 || words[0] != told {
			t.Fatalf("%s %s: %q, and %q before", step, how, words, told)
		}
		again = words[1]
	}
	holds := "the token spent"
	if contentOf(t, stateFile(path)) == prior {
		holds = "the token pending"
	}
	if n := len(tempsIn(t, path)); n > 0 {
		holds += ", a temporary file beside it"
	}
	l = open(t, path, ledger.Config{})
	restarted := code(consumed(l, s, token))
	if names := tempsIn(t, path); len(names) > 0 {
		t.Errorf("%s %s: %q outlived the restart", step, how, names)
	}

	// Whatever the table shows, this must hold.
	if oks := count("ok", told, restarted); oks > 1 || count("ok", told, again) > 1 {
		t.Errorf("%s %s: good twice: %s, %s, %s", step, how, told, again, restarted)
	}
	if strings.HasPrefix(holds, "the token pending") != (restarted == "ok") {
		t.Errorf("%s %s: the file holds %s, and a restart answers %s", step, how, holds, restarted)
	}
	for _, word := range []string{told, again, restarted} {
		if !slices.Contains([]string{"ok", "STATE_UNAVAILABLE", "TOKEN_REPLAY", "nothing", "(gone)"}, word) {
			t.Errorf("%s %s: answered %q", step, how, word)
		}
	}
	wantError(t, step+" "+how+": in the end", consumed(l, s, token), ledger.ErrTokenReplay)
	quote := func(s string) string {
		if s == strings.ToUpper(s) || s == "ok" {
			return "`" + s + "`"
		}
		return s
	}
	return []string{quote(told), holds, quote(again), quote(restarted)}
}

func count(word string, in ...string) int {
	n := 0
	for _, x := range in {
		if x == word {
			n++
		}
	}
	return n
}
