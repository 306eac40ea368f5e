//go:build linux

package conformance_test

import (
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/spendonce/spendonce/internal/conformance"
)

const someID = "3q2-7wABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs"

func TestAnAnswerIsJudgedToTheByte(t *testing.T) {
	const binding = `{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}`
	for _, c := range []struct {
		name, raw string
		wrong     bool
	}{
		{"refusal", `{"ok":false,"code":"TOKEN_REPLAY"}` + "\n", false},
		{"other order and spaces", `{ "code": "TOKEN_REPLAY", "ok": false }` + "\n", false},
		{"session", `{"ok":true,"session_id":"` + someID + `","runtime_generation":0}` + "\n", false},
		{"token", `{"ok":true,"token":"` + someID + `"}` + "\n", false},
		{"binding", `{"ok":true,"binding":` + binding + `}` + "\n", false},
		{"reason", `{"ok":false,"code":"TOKEN_REPLAY","reason":"x"}` + "\n", true},
		{"unknown code", `{"ok":false,"code":"NO"}` + "\n", true},
		{"no code", `{"ok":false}` + "\n", true},
		{"twice", `{"ok":false,"code":"TOKEN_REPLAY","code":"TOKEN_REPLAY"}` + "\n", true},
		{"two lines", `{"ok":false,` + "\n" + `"code":"TOKEN_REPLAY"}` + "\n", true},
		{"two newlines", `{"ok":false,"code":"TOKEN_REPLAY"}` + "\n\n", true},
		{"no newline", `{"ok":false,"code":"TOKEN_REPLAY"}`, true},
		{"CR", `{"ok":false,"code":"TOKEN_REPLAY"}` + "\r\n", true},
		{"blank before", ` {"ok":false,"code":"TOKEN_REPLAY"}` + "\n", true},
		{"ok with code", `{"ok":true,"token":"` + someID + `","code":""}` + "\n", true},
		{"binding with more", `{"ok":true,"binding":` + strings.Replace(binding, "{", `{"a":[[1]],`, 1) + `}` + "\n", true},
		{"binding with less", `{"ok":true,"binding":{"compaction_epoch":1}}` + "\n", true},
		{"nothing", ``, true},
		{"no JSON", "no\n", true},
		{"no object", "[]\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if text, faults := conformance.Judge([]byte(c.raw)); (len(faults) > 0) != c.wrong {
				t.Errorf("%s: %q, want it found wrong: %v", text, faults, c.wrong)
			}
		})
	}
}

func FuzzNoAnswerConfusesTheKit(f *testing.F) {
	for _, seed := range []string{
		`{"ok":true,"token":"` + someID + `"}` + "\n", `{"ok":false,"code":"BUSY"}` + "\n", `{"ok":true,"binding":{"a":[[{}]],"a":{}}}`, "[]", "{",
		`{"ok":true,"session_id":"` + someID + someID + `","runtime_generation":1e3}`, "\xff", `{"OK":true}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		text, faults := conformance.Judge(raw)
		if strings.Contains(text, someID) {
			t.Errorf("prints an id: %s", text)
		}
		if len(faults) > 0 {
			return
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil || m["ok"] == nil {
			t.Errorf("finds no fault in %q: %v", raw, err)
		}
	})
}

// A broker may answer anything, or hang up: what it gets is a report.
func TestWhatIsNoBrokerIsReportedAsBroken(t *testing.T) {
	for name, answer := range map[string]string{
		"hangs up":          "",
		"no JSON":           "hello\n",
		"grants everything": `{"ok":true,"session_id":"x","runtime_generation":0,"token":"","binding":{}}` + "\n",
		"refuses all":       `{"ok":false,"code":"NOT_DESCENDANT"}` + "\n",
		"quotes":            `{"ok":true,"session_id":"\"\\\u0000","runtime_generation":1,"token":"\"}\n"}` + "\n",
	} {
		if testing.Short() && name != "no JSON" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := conformance.Run(t.Context(), conformance.Config{Socket: parrot(t, answer), Actor: actor(), Quick: true})
			if err != nil {
				t.Fatal(err)
			}
			held := len(report) - len(report.Broken())
			if name != "refuses all" && 10*held > 3*len(report) || len(report.Broken()) < 20 {
				t.Errorf("%d of %d checks hold", held, len(report))
			}
		})
	}
}

// parrot says the same to everybody who is ready to listen.
func parrot(t *testing.T, answer string) string {
	t.Helper()
	path := place(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(answer))
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		served.Wait()
	})
	return path
}
