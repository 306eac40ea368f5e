//go:build linux

package conformance_test

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/conformance"
)

const page = "../../docs/protocol.md"

// unseen are the rules that nobody can see from outside, or only in ways that
// a kit for everybody's machine cannot arrange.
var unseen = map[string]string{
	"frame.malformed": "what it means is said, and checked, rule by rule as decode",
	"peer.connect":    "how the broker learns it; what follows from it is checked as peer and descent",
	"descent.recheck": "takes a process that changes in the middle of a walk",
	"descent.limit":   "takes 256 processes, one below the other",
	"durable.first":   "takes a power cut",
	"durable.once":    "takes a broker that the kit could kill",
}

func TestEveryRuleOfTheProtocolIsCheckedOrSaidToBeUnseen(t *testing.T) {
	rules := map[string]bool{}
	for _, m := range regexp.MustCompile(`\*\*([a-z]+\.[a-z0-9-]+)\*\*`).FindAllStringSubmatch(text(t), -1) {
		if rules[m[1]] {
			t.Errorf("the page states %s twice", m[1])
		}
		rules[m[1]] = true
	}
	checked := map[string]bool{}
	for name, rule := range conformance.CheckNames() {
		checked[rule] = true
		if !rules[rule] {
			t.Errorf("the check %q cites %s, which the page does not state", name, rule)
		}
	}
	for rule := range rules {
		if checked[rule] == (unseen[rule] != "") {
			t.Errorf("%s: checked %v, said to be unseen %v", rule, checked[rule], unseen[rule] != "")
		}
	}
	for rule := range unseen {
		if !rules[rule] {
			t.Errorf("%s is said to be unseen, and the page does not state it", rule)
		}
	}
}

func TestThePageAndTheKitKnowTheSameCodes(t *testing.T) {
	_, table, _ := strings.Cut(text(t), "\n### The codes\n")
	table, _, _ = strings.Cut(table, "\n#")
	var codes []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		codes = append(codes, m[1])
	}
	if known := conformance.Codes(); !slices.Equal(codes, known) {
		t.Errorf("the page lists %q, the kit %q", codes, known)
	}
}

func TestTheExampleOfThePageIsWhatABrokerAnswers(t *testing.T) {
	socket := serve(t, "")
	_, example, _ := strings.Cut(text(t), "\n```text\n> ")
	example, _, _ = strings.Cut(example, "\n```\n")
	ids := map[string]string{} // of the page: ours
	exchanges := strings.Split(example, "\n> ")
	if len(exchanges) < 8 {
		t.Fatalf("found only %d exchanges", len(exchanges))
	}
	for _, e := range exchanges {
		request, answer, _ := strings.Cut(e, "\n< ")
		for theirs, ours := range ids {
			request = strings.ReplaceAll(request, theirs, ours)
		}
		got, want := decoded(t, ask(t, socket, request+"\n")), decoded(t, answer)
		for _, member := range []string{"session_id", "token"} {
			theirs, isThere := want[member].(string)
			if ours, isHere := got[member].(string); isThere && isHere {
				if known := ids[theirs]; known != "" && known != ours {
					t.Errorf("%s\nanswers another %s than before", request, member)
				}
				ids[theirs], got[member] = ours, theirs
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nanswers %v, the page says %v", request, got, want)
		}
	}
}

func TestThePythonClientOfThePageUsesATokenOnce(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	_, script, _ := strings.Cut(text(t), "\n```python\n")
	script, _, _ = strings.Cut(script, "\n```\n")
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Env = append(os.Environ(), "SPENDONCE_SOCKET="+serve(t, ""))
	out, err := cmd.CombinedOutput()
	if want := "do it\nTOKEN_REPLAY\n"; err != nil || string(out) != want {
		t.Errorf("it prints %q, %v, want %q", out, err, want)
	}
}

func TestThePythonClientOfThePageSendsNothingToWhatOthersMayReplace(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	_, script, _ := strings.Cut(text(t), "\n```python\n")
	script, _, _ = strings.Cut(script, "\n```\n")
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Env = append(os.Environ(), "SPENDONCE_SOCKET="+serve(t, "socket for everybody"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nothing was sent") {
		t.Errorf("it prints %q, %v", out, err)
	}
}

func text(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func ask(t *testing.T, socket, request string) string {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return m
}
