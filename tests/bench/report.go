package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
)

// row is one figure of the table. A row without a bound is there for the
// picture.
type row struct {
	ID     string `json:"id"` // letter of docs/figures.md, and a number
	Name   string `json:"name"`
	Figure spread `json:"figure"`
	Unit   string `json:"unit,omitempty"` // "" for a ratio
	Bound  string `json:"bound,omitempty"`
	Held   *bool  `json:"held,omitempty"`
	Detail string `json:"detail,omitempty"` // the absolute figures behind it
	Error  string `json:"error,omitempty"`
}

// atMost bounds the median from above.
func (r row) atMost(limit float64) row {
	return r.bounded("<=", limit, r.Figure.Median <= limit)
}

func (r row) atLeast(limit float64) row {
	return r.bounded(">=", limit, r.Figure.Median >= limit)
}

func (r row) bounded(sign string, limit float64, held bool) row {
	r.Held = &held
	r.Bound = strings.TrimSpace(fmt.Sprintf("%s %.4g %s", sign, limit, r.Unit))
	return r
}

func (r row) figure() string {
	if r.Error != "" {
		return "not measured"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", short(r.Figure.Median), r.Unit))
}

func (r row) held() string {
	switch {
	case r.Error != "" || r.Held == nil:
		return "-"
	case *r.Held:
		return "yes"
	default:
		return "NO"
	}
}

func short(f float64) string { return fmt.Sprintf("%.3g", f) }

// report is one run.
type report struct {
	Machine   machine `json:"machine"`
	Pairs     int     `json:"pairs"`
	LoadAtEnd float64 `json:"load_at_end"`
	Rows      []row   `json:"rows"`
}

func (r *report) unmeasured() int { return r.count(func(w row) bool { return w.Error != "" }) }
func (r *report) missed() int {
	return r.count(func(w row) bool { return w.Error == "" && w.Held != nil && !*w.Held })
}

func (r *report) count(is func(row) bool) int {
	n := 0
	for _, w := range r.Rows {
		if is(w) {
			n++
		}
	}
	return n
}

var columns = []string{"", "what", "figure", "min", "max", "n", "bound", "held", "behind it"}

func (r row) cells() []string {
	if r.Error != "" {
		return []string{r.ID, r.Name, r.figure(), "-", "-", "-", "-", r.held(), r.Error}
	}
	bound := r.Bound
	if bound == "" {
		bound = "-"
	}
	return []string{
		r.ID, r.Name, r.figure(), short(r.Figure.Min), short(r.Figure.Max), strconv.Itoa(r.Figure.N), bound, r.held(), r.Detail,
	}
}

func (r *report) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for _, row := range r.Rows {
		fmt.Fprintln(t, strings.Join(row.cells(), "\t"))
	}
	_ = t.Flush()
	if r.Machine.busy() {
		fmt.Fprintf(w, "warning: measured on a busy machine (load %.2f at the start, %.2f at the end)\n", r.Machine.Load, r.LoadAtEnd)
	}
}

func (r *report) writeJSON(path string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a bound begins with <=
	e.SetIndent("", "  ")
	err := e.Encode(struct {
		Version int `json:"version"`
		*report
	}{1, r})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // figures for everybody
}

const (
	docsBegin = "<!-- figures: written by make bench -->\n"
	docsEnd   = "<!-- end of figures -->\n"
)

// updateDocs puts the table between the markers of the page at path.
func (r *report) updateDocs(path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(page, []byte(docsBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(docsEnd))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table: the lines %q and %q", path, docsBegin, docsEnd)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(docsBegin)
	fmt.Fprintf(&b, "Measured %s: %s.\n", r.Machine.Time.Format("2006-01-02"), r.Machine)
	if r.Machine.busy() {
		fmt.Fprintln(&b, "\n**The machine was busy: these figures are blurred.**")
	}
	fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, row := range r.Rows {
		cells := row.cells()
		for i := range cells {
			cells[i] = strings.NewReplacer("|", `\|`, "<=", "≤", ">=", "≥").Replace(cells[i])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString(docsEnd)
	b.Write(after)
	return os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // a page of the repository
}
