package mangen

import (
	"bytes"
	"fmt"
	"strings"
)

// page writes one manual page with the macros of man(7), which every man
// program knows. Text that comes from a command is escaped on its way in.
type page struct{ bytes.Buffer }

func (p *page) title(name, date, source string) {
	fmt.Fprintf(&p.Buffer, ".\\\" Generated from the commands themselves by \"make man\": edit those.\n")
	fmt.Fprintf(&p.Buffer, ".TH %s 1 %s %s %s\n", quoted(code(strings.ToUpper(name))), quoted(date), quoted(code(source)), quoted("spendonce manual"))
}

func (p *page) section(name string) { fmt.Fprintf(&p.Buffer, ".SH %s\n", name) }

// tagged begins an item whose tag is already marked up.
func (p *page) tagged(tag, text string) {
	fmt.Fprintf(&p.Buffer, ".TP\n%s\n", tag)
	p.line(text)
}

// prose writes paragraphs that blank lines separate. One that is indented is
// shown as it stands.
func (p *page) prose(text string) {
	for i, par := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.WriteString(".PP\n")
		}
		if strings.HasPrefix(par, "  ") || strings.HasPrefix(par, "\t") {
			p.literal(par)
			continue
		}
		for line := range strings.Lines(par) {
			p.line(strings.TrimSpace(line))
		}
	}
}

// literal shows lines as they stand, less the indentation they share.
func (p *page) literal(text string) {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	indent := len(text)
	for _, l := range lines {
		if rest := strings.TrimLeft(l, " "); rest != "" {
			indent = min(indent, len(l)-len(rest))
		}
	}
	p.WriteString(".RS 4\n.EX\n")
	for _, l := range lines {
		p.WriteString(control(code(l[min(indent, len(l)):])) + "\n")
	}
	p.WriteString(".EE\n.RE\n")
}

func (p *page) line(text string) { p.WriteString(control(inline(text)) + "\n") }

// inline escapes a line of prose. Its options keep their hyphens, so that
// they can be searched for and copied.
func inline(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if strings.HasPrefix(strings.TrimLeft(w, `'"(`), "-") || strings.ContainsAny(w, "/_.") {
			words[i] = code(w)
		} else {
			words[i] = escape(w)
		}
	}
	return strings.Join(words, " ")
}

// code escapes text that must reach the terminal byte by byte.
func code(text string) string { return strings.ReplaceAll(escape(text), "-", `\-`) }

func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, `'`, `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// control keeps a line of text from being read as a request.
func control(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}

func bold(s string) string   { return `\fB` + code(s) + `\fR` }
func italic(s string) string { return `\fI` + code(s) + `\fR` }
func quoted(s string) string { return `"` + s + `"` }
