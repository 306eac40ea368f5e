package everything_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/real/everything"
)

func transcript(lines ...string) everything.Transcript {
	var t everything.Transcript
	for _, line := range lines {
		t.Messages = append(t.Messages, everything.Message{Scenario: "s", Dir: line[:1], Text: line[2:]})
	}
	return t
}

var spoken = []string{
	`> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`,
	`< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
	`< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}`,
	`< {"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{}}`,
	`> {"jsonrpc":"2.0","id":"s1","result":{"model":"m"}}`,
	`< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`,
	`< {"jsonrpc":"2.0","id":1,"result":{"content":[],"at":"2026-01-02T03:04:05.678Z","session":"01234567-89ab-cdef-0123-456789abcdef"}}`,
	`> {"jsonrpc":"2.0","id":2,"method":"ping"}`,
	`< {"jsonrpc":"2.0","id":2,"result":{}}`,
}

func TestWhatAProxyLosesOrChangesIsADifference(t *testing.T) {
	replace := func(old, by string) []string {
		lines := slices.Clone(spoken)
		for i := range lines {
			lines[i] = strings.Replace(lines[i], old, by, 1)
		}
		return lines
	}
	swap := func(i, j int) []string {
		lines := slices.Clone(spoken)
		lines[i], lines[j] = lines[j], lines[i]
		return lines
	}
	for name, lines := range map[string][]string{
		"a member is lost":                     replace(`"model":"m"`, ``),
		"an answer has another id":             replace(`"id":2,"result"`, `"id":"2","result"`),
		"a request has another id":             replace(`"id":2,"method"`, `"id":3,"method"`),
		"a number is spelt otherwise":          replace(`"progress":2`, `"progress":2.0`),
		"members change places":                replace(`"level":"info","data":"x"`, `"data":"x","level":"info"`),
		"a notification is lost":               slices.Delete(slices.Clone(spoken), 5, 6),
		"a notification comes twice":           slices.Insert(slices.Clone(spoken), 5, spoken[5]),
		"the answer is lost":                   slices.Delete(slices.Clone(spoken), 8, 9),
		"progress changes places":              swap(1, 2),
		"an answer comes before its progress":  swap(2, 6),
		"requests change places":               swap(0, 7),
		"something comes that nobody has sent": append(slices.Clone(spoken), `< {"jsonrpc":"2.0","method":"notifications/x"}`),
	} {
		t.Run(name, func(t *testing.T) {
			if found := everything.Differences(transcript(spoken...), transcript(lines...)); len(found) == 0 {
				t.Error("no difference is found")
			}
		})
	}
}

func TestWhatIsMadeAnewEachTimeIsNoDifference(t *testing.T) {
	lines := slices.Clone(spoken)
	lines[6] = strings.NewReplacer("2026-01-02", "2027-11-12", "01234567-", "76543210-").Replace(lines[6])
	lines[3], lines[5] = lines[5], lines[3] // they come in different streams
	lines[4], lines[5] = lines[5], lines[4]
	if found := everything.Differences(transcript(spoken...), transcript(lines...)); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

func TestByValueTheSpellingIsNoDifferenceAndTheMeaningIs(t *testing.T) {
	one := transcript(`< {"jsonrpc":"2.0","id":1,"result":{"a":1.0,"b":"\u00fc"}}`).ByValue()
	if found := everything.Differences(one, transcript(`< { "id":1,"result":{"b":"ü","a":1},"jsonrpc":"2.0"}`).ByValue()); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	if found := everything.Differences(one, transcript(`< {"jsonrpc":"2.0","id":1,"result":{"a":1}}`).ByValue()); len(found) != 1 {
		t.Errorf("found %v", found)
	}
}
