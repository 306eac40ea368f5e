package everything

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Message is one that passed a client's transport.
type Message struct {
	Scenario string
	Dir      string // ">" from the client, "<" to it
	Text     string // JSON
}

// Outcome is how a scenario went. The client is content if Error is "".
type Outcome struct {
	Scenario string
	Error    string
}

// Transcript is all that a client saw of a server.
type Transcript struct {
	Outcomes []Outcome
	Messages []Message
	// Log is what the client and the proxy printed.
	Log string
}

// Failed are the scenarios that did not go well.
func (t Transcript) Failed() []Outcome {
	return slices.DeleteFunc(slices.Clone(t.Outcomes), func(o Outcome) bool { return o.Error == "" })
}

// ByValue is the transcript with the members of all objects in one order and
// numbers and strings in one spelling: what differs then, differs in what it
// means.
func (t Transcript) ByValue() Transcript {
	t.Messages = slices.Clone(t.Messages)
	for i, m := range t.Messages {
		var value any
		if json.Unmarshal([]byte(normal(m.Text)), &value) != nil {
			continue
		}
		if text, err := json.Marshal(value); err == nil {
			t.Messages[i].Text = string(text)
		}
	}
	return t
}

// Difference is what one of two clients saw and the other did not.
type Difference struct {
	Scenario string
	Text     string
}

// Differences compares what a client saw through something with what it saw
// without it. Within each conversation (what the client sends, by itself; what
// comes to one request; one request of the server's and its answer;
// notifications of one kind) messages and their order must be the same, but for
// what is made anew each time: ids, times, random levels. Between conversations
// there is no order: they are in different streams. Notifications that tools
// have changed are left out: this server sends them only while a client opens
// the stream that they need, and it is chance how many it gets.
func Differences(direct, through Transcript) []Difference {
	one, other := conversations(direct), conversations(through)
	var found []Difference
	for _, name := range one.order {
		found = append(found, compare(name, one.said[name], other.said[name])...)
	}
	for _, name := range other.order {
		if one.said[name] == nil {
			found = append(found, compare(name, nil, other.said[name])...)
		}
	}
	return found
}

// dialogue is a transcript by conversations.
type dialogue struct {
	order []string
	said  map[string][]Message
}

func conversations(t Transcript) dialogue {
	d := dialogue{said: map[string][]Message{}}
	for _, m := range t.Messages {
		name := conversation(m)
		if name == "notifications/tools/list_changed" {
			continue
		}
		if d.said[name] == nil {
			d.order = append(d.order, name)
		}
		m.Text = normal(m.Text)
		d.said[name] = append(d.said[name], m)
	}
	return d
}

// conversation names the one that a message belongs to.
func conversation(m Message) string {
	var parts struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"params"`
	}
	if json.Unmarshal([]byte(m.Text), &parts) != nil {
		return m.Dir + " what is no message"
	}
	id := string(parts.ID)
	switch {
	case m.Dir == ">" && parts.Method != "":
		return "what the client asks"
	case m.Dir == "<" && parts.Method == "":
		return "answers to " + id
	case parts.Params.ProgressToken != nil:
		return "answers to " + string(parts.Params.ProgressToken) // it is the id, or stands for it
	case id != "":
		return "request of the server " + id
	}
	return parts.Method
}

func compare(name string, direct, through []Message) []Difference {
	for i := range max(len(direct), len(through)) {
		at := func(all []Message) (scenario, text string) {
			if i >= len(all) {
				return "", "nothing"
			}
			return all[i].Scenario, all[i].Dir + " " + all[i].Text
		}
		scenario, want := at(direct)
		otherwise, got := at(through)
		if want == got {
			continue
		}
		if scenario == "" {
			scenario = otherwise
		}
		return []Difference{{scenario, fmt.Sprintf("%s, message %d:\n\tdirect:  %s\n\tthrough: %s", name, i+1, around(want, got), around(got, want))}}
	}
	return nil
}

// around is the part of a text where it begins to differ.
func around(text, other string) string {
	const before, after = 100, 300
	n := 0
	for n < min(len(text), len(other)) && text[n] == other[n] {
		n++
	}
	from, to := max(0, n-before), min(len(text), n+after)
	shown := strings.ToValidUTF8(text[from:to], "")
	if from > 0 {
		shown = "..." + shown
	}
	if to < len(text) {
		shown += "..."
	}
	return shown
}
