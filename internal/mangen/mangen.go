// Package mangen writes the manual pages from the commands themselves. Only
// its own test runs it: `make man` writes docs/man, and `go test` fails when
// the pages there are not those of the commands. The program links none of it.
//
// The pages are written with the macros of man(7) rather than by way of
// cobra's generator, which goes through Markdown, loses what looks like
// Markdown in a command's own words, and brings two modules with it.
package mangen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Pages returns the manual pages of root and all commands below it, by file
// name. The same commands and release give the same bytes.
func Pages(root *cobra.Command, r Release) map[string][]byte {
	root.InitDefaultHelpFlag()
	pages := map[string][]byte{}
	for cmd := range visible(root) {
		pages[name(cmd)+".1"] = render(cmd, r)
	}
	return pages
}

// Release is what stands in the margins of the pages.
type Release struct {
	Version string // empty: not released
	Date    string // of the release, YYYY-MM-DD
}

// LastRelease reads the newest release of a changelog in the form of Keep a
// Changelog. Before the first one the pages carry the date of their writing.
func LastRelease(changelog string) Release {
	for line := range strings.Lines(changelog) {
		version, date, ok := strings.Cut(strings.TrimSpace(line), "] - ")
		if version, isRelease := strings.CutPrefix(version, "## ["); ok && isRelease {
			return Release{Version: version, Date: date}
		}
	}
	return Release{Date: "2026-11-30"}
}

// visible yields cmd and the commands below it that help lists.
func visible(cmd *cobra.Command) func(yield func(*cobra.Command) bool) {
	return func(yield func(*cobra.Command) bool) {
		var walk func(*cobra.Command) bool
		walk = func(c *cobra.Command) bool {
			if !yield(c) {
				return false
			}
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() && !walk(sub) {
					return false
				}
			}
			return true
		}
		walk(cmd)
	}
}

func name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func render(cmd *cobra.Command, r Release) []byte {
	p := &page{}
	p.title(name(cmd), r.Date, strings.TrimSpace("spendonce "+r.Version))
	p.section("NAME")
	p.WriteString(code(name(cmd)) + ` \- ` + inline(lowerFirst(cmd.Short)) + "\n")
	p.section("SYNOPSIS")
	p.WriteString(synopsis(cmd) + "\n")
	p.section("DESCRIPTION")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	p.prose(text)
	commands(p, cmd)
	options(p, cmd)
	if !cmd.HasParent() {
		appendix(p)
	} else {
		p.section("EXIT STATUS")
		p.prose("0 if all went well, else a number that says what kind of failure it was:\nsee EXIT STATUS in\n")
		p.WriteString(".BR spendonce (1).\n")
	}
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.literal(cmd.Example)
	}
	seeAlso(p, cmd)
	return p.Bytes()
}

// synopsis marks up a command's own line of use: words in capitals are what
// the user puts in.
func synopsis(cmd *cobra.Command) string {
	path := cmd.CommandPath()
	parts := []string{bold(path), `[\fIoption\fR ...]`}
	if cmd.HasAvailableSubCommands() {
		parts = append(parts, `\fIcommand\fR`)
	}
	_, args, _ := strings.Cut(cmd.Use, " ")
	for _, word := range strings.Fields(args) {
		bare := strings.Trim(word, "[].,")
		switch {
		case strings.ContainsAny(bare, "|"):
			parts = append(parts, alternatives(word))
		case strings.HasPrefix(bare, "-"):
			parts = append(parts, strings.Replace(code(word), code(bare), bold(bare), 1))
		case bare == strings.ToUpper(bare):
			parts = append(parts, strings.Replace(code(word), code(bare), italic(bare), 1))
		default:
			parts = append(parts, code(word))
		}
	}
	return strings.Join(parts, " ")
}

func alternatives(word string) string {
	var marked []string
	for alt := range strings.SplitSeq(strings.Trim(word, "[]"), "|") {
		if alt == strings.ToUpper(alt) {
			marked = append(marked, italic(alt))
		} else {
			marked = append(marked, bold(alt))
		}
	}
	text := strings.Join(marked, "|")
	if strings.HasPrefix(word, "[") {
		return "[" + text + "]"
	}
	return text
}

func commands(p *page, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	p.section("COMMANDS")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			p.tagged(".BR "+code(name(sub))+" (1)", sub.Short+".")
		}
	}
}

func options(p *page, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	p.section("OPTIONS")
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { option(p, f) })
	if cmd.HasParent() {
		p.WriteString(".PP\nThe options of every command:\n")
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { option(p, f) })
	}
}

func option(p *page, f *pflag.Flag) {
	if f.Hidden || f.Deprecated != "" {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	tag := bold("--" + f.Name)
	if f.Shorthand != "" {
		tag = bold("-"+f.Shorthand) + ", " + tag
	}
	switch {
	case f.Name == "help":
		usage = "print a short help"
	case value == "string": // has no name of its own: --client-id ID
		value = f.Name[strings.LastIndex(f.Name, "-")+1:]
	}
	if value != "" {
		tag += " " + italic(strings.ToUpper(value))
	}
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "[]" {
		usage += " (default " + f.DefValue + ")"
	}
	p.tagged(tag, usage)
}

func seeAlso(p *page, cmd *cobra.Command) {
	var pages []string
	if parent := cmd.Parent(); parent != nil {
		pages = append(pages, name(parent))
		if parent.HasParent() {
			pages = append(pages, name(cmd.Root()))
		}
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, name(sub))
		}
	}
	if len(pages) == 0 {
		return
	}
	slices.Sort(pages)
	p.section("SEE ALSO")
	for i, page := range pages {
		comma := ","
		if i == len(pages)-1 {
			comma = ""
		}
		fmt.Fprintf(&p.Buffer, ".BR %s (1)%s\n", code(page), comma)
	}
}

func lowerFirst(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' || len(s) > 1 && s[1] == ' ' {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}
