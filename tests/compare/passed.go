package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spendonce/spendonce/tests/real/everything"
)

var kinds = []everything.Kind{everything.StreamableHTTP, everything.SSE}

var contenders = []contender{direct, spendonce, mcpRemote}

// players are the two official clients.
var players = []struct {
	name string
	play func(context.Context, everything.Way) (everything.Transcript, error)
}{
	{"TypeScript", everything.PlayTypeScript},
	{"Go", everything.PlayGo},
}

// verdicts are what there is to say against a scenario in one column.
type verdicts []string

func (v verdicts) cell() string {
	if len(v) > 0 {
		return "**no**"
	}
	return "yes"
}

type column struct {
	kind everything.Kind
	contender
}

// sameBytes is the row for what a scenario cannot see.
const sameBytes = "all of it in the same bytes"

// passed is the table of what each passed. A scenario is passed if both clients
// are content and see what they see directly, by value.
func (b *bench) passed(ctx context.Context) (string, error) {
	cells := map[column]map[string]verdicts{}
	var rows []string
	for _, kind := range kinds {
		for _, p := range players {
			var alone everything.Transcript
			for _, c := range contenders {
				fmt.Fprintf(b.talk, "%s client, %s, %s\n", p.name, kind, c)
				t, err := b.play(ctx, c, kind, p.play)
				if err != nil {
					return "", fmt.Errorf("%s client, %s, %s: %w", p.name, kind, c, err)
				}
				at := column{kind, c}
				if cells[at] == nil {
					cells[at] = map[string]verdicts{}
				}
				blame := func(scenario, what string) {
					fmt.Fprintf(b.talk, "  %s: %s\n", scenario, what)
					cells[at][scenario] = append(cells[at][scenario], what)
				}
				for _, o := range t.Outcomes {
					if o.Error != "" {
						blame(o.Scenario, o.Error)
					}
				}
				if c == direct {
					alone = t
				}
				if rows == nil {
					for _, o := range t.Outcomes {
						rows = append(rows, o.Scenario)
					}
				}
				for _, d := range everything.Differences(alone.ByValue(), t.ByValue()) {
					blame(d.Scenario, d.Text)
				}
				if found := everything.Differences(alone, t); len(found) > 0 {
					blame(sameBytes, fmt.Sprintf("%d differences, the first: %s", len(found), found[0].Text))
				}
			}
		}
	}
	return table(append(rows, sameBytes), cells), nil
}

func (b *bench) play(ctx context.Context, c contender, kind everything.Kind, play func(context.Context, everything.Way) (everything.Transcript, error)) (everything.Transcript, error) {
	s, err := b.site(ctx, c, kind, false)
	if err != nil {
		return everything.Transcript{}, err
	}
	defer s.close()
	return play(ctx, s.way())
}

func table(rows []string, cells map[column]map[string]verdicts) string {
	var out strings.Builder
	out.WriteString("| |")
	for _, kind := range kinds {
		for _, c := range contenders {
			fmt.Fprintf(&out, " %s, %s |", map[everything.Kind]string{everything.StreamableHTTP: "Streamable HTTP", everything.SSE: "HTTP with SSE"}[kind], c)
		}
	}
	out.WriteString("\n|---" + strings.Repeat("|---", len(kinds)*len(contenders)) + "|\n")
	for _, row := range rows {
		fmt.Fprintf(&out, "| %s |", row)
		for _, kind := range kinds {
			for _, c := range contenders {
				fmt.Fprintf(&out, " %s |", cells[column{kind, c}][row].cell())
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}
