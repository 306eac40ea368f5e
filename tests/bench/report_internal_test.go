package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSpreadIsTheMiddleAndBothEnds(t *testing.T) {
	for _, c := range []struct {
		figures []float64
		want    spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3, 1}},
		{[]float64{9, 1, 2}, spread{2, 1, 9, 3}},
		{[]float64{4, 1, 2, 9}, spread{3, 1, 9, 4}},
	} {
		if got := spreadOf(c.figures); got != c.want {
			t.Errorf("%v: %+v, not %+v", c.figures, got, c.want)
		}
	}
}

func TestBoundsAreAskedOfTheMedian(t *testing.T) {
	r := row{ID: "x", Figure: spread{Median: 1.2, Min: 0.1, Max: 9}}
	for _, c := range []struct {
		row  row
		held string
	}{
		{r.atMost(1.2), "yes"},
		{r.atMost(1.1), "NO"},
		{r.atLeast(1.2), "yes"},
		{r.atLeast(1.3), "NO"},
		{r, "-"},
		{row{Error: "broken"}, "-"},
	} {
		if got := c.row.held(); got != c.held {
			t.Errorf("%q: held %s, not %s", c.row.Bound, got, c.held)
		}
	}
}

func TestTableIsWrittenBetweenTheMarkersAndNowhereElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.md")
	page := "before\n" + docsBegin + "old\n" + docsEnd + "after\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	r := report{Rows: []row{
		row{ID: "a1", Name: "first", Figure: spread{1.1, 1, 1.2, 3}}.atMost(1.2),
		{ID: "b1", Name: "second", Error: "no | such thing"},
	}}
	for range 2 { // the second time replaces the first
		if err := r.updateDocs(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	if !strings.HasPrefix(got, "before\n"+docsBegin) || !strings.HasSuffix(got, docsEnd+"after\n") {
		t.Errorf("the page around the table has changed:\n%s", got)
	}
	for _, line := range []string{"| a1 | first | 1.1 | 1 | 1.2 | 3 | ≤ 1.2 | yes |  |\n", `| b1 | second | not measured | - | - | - | - | - | no \| such thing |` + "\n"} {
		if strings.Count(got, line) != 1 {
			t.Errorf("the line %q is not there once:\n%s", line, got)
		}
	}
	if err := os.WriteFile(path, []byte("no markers"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.updateDocs(path); err == nil {
		t.Error("a page without markers was taken")
	}
}

func TestPictureIsWellFormedSmallAndSaysWhatItShows(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	var bad, good []life
	for i := range drawn {
		bad = append(bad, life{start: ms(i), end: ms(60 + i), exchanges: []exchanged{{ms(20 + i), ms(45 + i), i > 0}}})
		good = append(good, life{start: ms(i), end: ms(70 + i), live: true})
	}
	good[0].exchanges = []exchanged{{start: ms(20), end: ms(45)}}
	svg := draw([]panel{{"without a lock", bad, drawn - 1}, {"with flock", good, 0}, {"with spendonce", good, 0}})
	if len(svg) > 40<<10 {
		t.Errorf("%d bytes", len(svg))
	}
	decoder := xml.NewDecoder(strings.NewReader(string(svg)))
	seen := map[string]int{}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			seen[e.Name.Local]++
		}
	}
	if seen["title"] != 1 || seen["desc"] != 1 {
		t.Errorf("%d titles and %d descriptions", seen["title"], seen["desc"])
	}
	for _, text := range []string{
		"16 exchanges, 15 double spends, the server ends the session",
		"With spendonce: 1 exchange, no double spend, 16 of 16 have a live token",
		"prefers-color-scheme",
	} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("the picture does not say %q", text)
		}
	}
}
