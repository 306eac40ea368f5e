//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func TestTheSearchForIDsSeesThem(t *testing.T) {
	id := strings.Repeat("-aZ_09", 7) + "A"
	for text, want := range map[string]int{
		id: 0, "x: " + id + "\n": 3, `{"session_id":"` + id + `"}`: 15,
		"x" + id: -1, id + "x": -1, id[:42]: -1, id[:42] + "B": -1, "": -1,
	} {
		if got := idIn([]byte(text)); got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
}

// TestSecretsAreOnlyWhereTheyWereAskedFor plays a session with all that can go
// wrong in it, and searches everything that was printed, the argument lists of
// all processes while they run, and all files that the program left, for the
// session's id and its tokens.
func TestSecretsAreOnlyWhereTheyWereAskedFor(t *testing.T) {
	r := newRealm(t)
	secrets := t.TempDir()
	i := r.inside(r.shell(`exec spendonce -v lease run --stay -- sh -c '
		echo "$SPENDONCE_SESSION_ID" >"$0/id"
		echo "$SPENDONCE_GENERATION_FILE"
		read -r line
		echo "$1" | spendonce lease mint >"$0/token"
		echo "$1" | spendonce -v lease mint --json >"$0/token.json"
		echo minted
		read -r line
		exec >>printed 2>&1
		set -v
		spendonce -v lease consume <"$0/token"
		spendonce -v lease consume --json <"$0/token"
		SPENDONCE_GENERATION_FILE= SPENDONCE_GENERATION=7 spendonce lease consume <"$0/token"
		{ printf x; cat "$0/token"; } | spendonce lease consume
		{ cat "$0/token"; cat "$0/token"; } | spendonce lease consume
		spendonce lease mint <"$0/token"
		spendonce lease mint --json <"$0/token.json"
		cat "$0/id" "$0/id" | spendonce lease why --session-stdin $$
		spendonce -v lease why --session-stdin $$ <"$0/id"
		spendonce lease why --session-stdin --json $PPID <"$0/id"
		spendonce lease why --session-stdin --json $$ <"$0/token"
		spendonce -v lease status; spendonce lease status --json
		spendonce -v lease run -- sh -c "echo inner"
		spendonce -v lease run -- no-such-command
		spendonce lease run --generation x -- true
		spendonce lease serve; spendonce lease install --print; spendonce status; spendonce doctor; spendonce doctor --json
		kill -USR1 $PPID
		kill -USR2 $PPID
		' ` + secrets + ` '{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}'`))
	i.next()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(secrets, name))
		must(t, err)
		return strings.TrimSuffix(string(b), "\n")
	}
	session := []canary.Value{canary.Of("session id", read("id"))}
	_, err := fmt.Fprintln(i.in)
	must(t, err)
	i.next()
	var answer struct{ Token string }
	must(t, json.Unmarshal([]byte(read("token.json")), &answer))
	tokens := []canary.Value{canary.Of("token", read("token")), canary.Of("token in JSON", answer.Token)}

	// While the session and its processes are there.
	state := filepath.Join(r.state, "broker-state.json")
	canary.Absent(t, append(tokens, session...), canary.Places{Dirs: []string{r.dir}, Allow: []string{state}, Cmdlines: true})
	canary.Absent(t, tokens, canary.Places{Files: []string{state}})
	if found := canary.Search(t, session, canary.Places{Files: []string{state}}); len(found) == 0 {
		t.Error("the search sees no session id in the state: it would see none elsewhere")
	}
	// Outside of it.
	for _, args := range [][]string{{"lease", "auth"}, {"lease", "consume"}, {"lease", "status"}, {"lease", "why", "1"}} {
		p := r.command(args...)
		p.Env = append(p.Env, "SPENDONCE_SESSION_ID="+read("id"), "SPENDONCE_GENERATION=0")
		p.Stdin = strings.NewReader(read("token"))
		_, out, _ := r.finish(p)
		canary.Absent(t, append(tokens, session...), canary.Places{Outputs: map[string][]byte{strings.Join(args, " "): []byte(out)}})
	}
	i.leave()

	// Afterwards.
	must(t, stopBroker(r.socket))
	r.mu.Lock()
	defer r.mu.Unlock()
	printed, err := os.ReadFile(filepath.Join(r.dir, "printed"))
	must(t, err)
	for _, want := range []string{"TOKEN_REPLAY", "GENERATION_UNKNOWN", "TOKEN_MALFORMED", `"h_source":"a"`, "belongs to session", "SESSION_UNKNOWN", "inner", "another broker is running"} {
		if !strings.Contains(string(printed), want) {
			t.Errorf("nothing printed %s: was it played?\n%s", want, printed)
		}
	}
	canary.Absent(t, append(tokens, session...), canary.Places{
		Outputs: map[string][]byte{"standard error": r.outputs.Bytes()}, Dirs: []string{r.dir}, Allow: []string{state}, Cmdlines: true,
	})
	canary.Absent(t, tokens, canary.Places{Files: []string{state}})
}
