package mangen

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/spendonce/spendonce/internal/cli"
)

// What the documents and the help show must be what the program takes.

func TestEveryCommandInADocumentExists(t *testing.T) {
	for file, text := range documents(t) {
		fenced, inline := codeIn(text)
		found := 0
		for _, block := range fenced {
			for _, words := range calls(block) {
				found++
				if err := try(words, true); err != nil {
					t.Errorf("%s: spendonce %s: %v", file, strings.Join(words, " "), err)
				}
			}
		}
		for _, span := range inline {
			for _, words := range calls(span) {
				found++
				if err := try(words, false); err != nil {
					t.Errorf("%s: spendonce %s: %v", file, strings.Join(words, " "), err)
				}
			}
		}
		if file == "README.md" && found < 5 {
			t.Errorf("found only %d commands in README.md: is it read rightly?", found)
		}
	}
}

func TestEveryFlagInTheReadmeExists(t *testing.T) {
	known := map[string]bool{}
	for cmd := range visible(cli.Root()) {
		cmd.InitDefaultHelpFlag()
		note := func(f *pflag.Flag) { known["--"+f.Name] = true }
		cmd.Flags().VisitAll(note)
		cmd.PersistentFlags().VisitAll(note)
	}
	_, inline := codeIn(documents(t)["README.md"])
	for _, span := range inline {
		if name, _, _ := strings.Cut(span, " "); strings.HasPrefix(name, "--") && !known[name] {
			t.Errorf("README.md shows the flag %s, which no command has", name)
		}
	}
}

func TestEveryExampleInTheHelpIsACallThatIsTaken(t *testing.T) {
	for cmd := range visible(cli.Root()) {
		for _, words := range calls(cmd.Example) {
			if err := try(words, true); err != nil {
				t.Errorf("%s shows spendonce %s: %v", cmd.CommandPath(), strings.Join(words, " "), err)
			}
		}
	}
}

func TestEveryMakeTargetInADocumentExists(t *testing.T) {
	makefile := read(t, "Makefile")
	target := regexp.MustCompile(`(?m)^make ([a-z][a-z-]*)`)
	for file, text := range documents(t) {
		fenced, inline := codeIn(text)
		for _, code := range append(fenced, inline...) {
			for _, m := range target.FindAllStringSubmatch(code, -1) {
				if !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s: the Makefile has no target %q", file, m[1])
				}
			}
		}
	}
}

func TestEveryRelativeLinkLeadsSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for file, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(withoutFences(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			at := filepath.Join(filepath.Dir(file), path)
			if path == "" {
				at = file
			}
			if _, err := os.Stat(filepath.Join(root, at)); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			} else if anchor != "" && !strings.Contains(anchors(read(t, at)), "#"+anchor+"\n") {
				t.Errorf("%s links to %s, and %s has no such heading", file, m[1], at)
			}
		}
	}
}

// The lines in README.md are compiled and run where they stand in an example.
func TestTheReadmesProgramIsPartOfTheExample(t *testing.T) {
	blocks := fences(documents(t)["README.md"], "go")
	if len(blocks) == 0 {
		t.Fatal("README.md shows no Go program")
	}
	examples := dedent(read(t, "credstore/example_test.go")) + dedent(read(t, "lease/example_test.go"))
	for _, b := range blocks {
		if !strings.Contains(examples, dedent(b)) {
			t.Errorf("no example has these lines:\n%s", b)
		}
	}
}

// try asks the command that words name whether it would take them; whole
// says that they are a whole call and not a part of a sentence.
func try(words []string, whole bool) error {
	cmd, rest, err := cli.Root().Find(words)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	if !whole && len(args) == 0 && cmd.HasParent() {
		return nil
	}
	if help := cmd.Flags().Lookup("help"); help != nil && help.Changed {
		return nil
	}
	return cmd.ValidateArgs(args)
}

// calls returns the words behind each "spendonce" in a piece of shell.
func calls(shell string) [][]string {
	shell = strings.ReplaceAll(shell, "\\\n", " ")
	var all [][]string
	for _, m := range regexp.MustCompile(`(?m)(?:^|[\s(/'])spendonce([ \t][^|;&<>()"'#\n]*)?`).FindAllStringSubmatch(shell, -1) {
		words := strings.Fields(m[1])
		if len(words) > 0 && !strings.Contains(m[1], "...") && !strings.Contains(m[1], "…") {
			all = append(all, words)
		}
	}
	return all
}

func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = read(t, name)
		}
	}
	return texts
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// codeIn returns the fenced blocks of shell, and the spans of code in prose.
func codeIn(text string) (fenced, inline []string) {
	for _, language := range []string{"", "sh", "console"} {
		fenced = append(fenced, fences(text, language)...)
	}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(withoutFences(text), -1) {
		inline = append(inline, strings.Join(strings.Fields(m[1]), " "))
	}
	return fenced, inline
}

func fences(text, language string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}

func withoutFences(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// anchors returns the names that headings have on GitHub, each with its # and
// on a line of its own.
func anchors(text string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutFences(text), -1) {
		name := strings.ToLower(strings.TrimSpace(m[1]))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		b.WriteString("#" + strings.ReplaceAll(name, " ", "-") + "\n")
	}
	return b.String()
}

func dedent(text string) string { return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "") }

func TestTheChecksOfDocumentsCanFail(t *testing.T) {
	for _, c := range []struct {
		text  string
		whole bool
		want  bool
	}{
		{"spendonce token example", true, true},
		{"curl -H \"Bearer $(spendonce token example)\" https://x", true, true},
		{"spendonce token example --no-such-flag", true, false},
		{"spendonce token example --min-valid soon", true, false},
		{"spendonce tokens example", true, false},
		{"spendonce token", true, false},
		{"spendonce token", false, true},
		{"bin/spendonce demo --naive", true, true},
		{"spendonce completion powershell", true, false},
	} {
		got := calls(c.text)
		if len(got) != 1 {
			t.Errorf("%s: found the calls %q", c.text, got)
			continue
		}
		if err := try(got[0], c.whole); (err == nil) != c.want {
			t.Errorf("%s: %v, want it taken: %v", c.text, err, c.want)
		}
	}
	if got := calls("see `spendonce ...` and spendoncetest, a spendonce-token page, SPENDONCE_BIN"); len(got) != 0 {
		t.Errorf("took %q for calls", got)
	}
	if got := anchors("# A b\n## What's `new`?\n"); got != "#a-b\n#whats-new\n" {
		t.Errorf("anchors %q", got)
	}
}
