package mangen

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli"
)

var update = flag.Bool("update", false, "write the pages into docs/man")

const (
	root = "../.."
	dir  = root + "/docs/man"
)

func TestThePagesAreThoseOfTheCommands(t *testing.T) {
	changelog, err := os.ReadFile(root + "/CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := Pages(cli.Root(), LastRelease(string(changelog)))
	if *update {
		write(t, pages)
	}
	for name, want := range pages {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/man/%s is not what the command says: make man writes it", name)
		}
	}
	there, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if pages[filepath.Base(file)] == nil {
			t.Errorf("docs/man/%s describes no command: make man removes it", filepath.Base(file))
		}
	}
}

func write(t *testing.T, pages map[string][]byte) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, page := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMandocHasNoComplaint(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed")
	}
	for name, page := range Pages(cli.Root(), Release{Version: "1.2.3", Date: "2026-01-02"}) {
		cmd := exec.CommandContext(t.Context(), mandoc, "-Tlint", "-Wwarning")
		cmd.Stdin = bytes.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestEveryCommandHasAnExampleAndASentence(t *testing.T) {
	for cmd := range visible(cli.Root()) {
		if !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%q has no example that shows it", cmd.CommandPath())
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%q: Short is %q, not a sentence without its period", cmd.CommandPath(), cmd.Short)
		}
	}
}

func TestTheManualNamesEveryExitCode(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), root+"/internal/cli/exit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "exit") {
			return true
		}
		if code, ok := spec.Values[0].(*ast.BasicLit); ok {
			found++
			if !has(exitStatus, code.Value) {
				t.Errorf("EXIT STATUS does not say what %s (%s) means", code.Value, spec.Names[0].Name)
			}
		}
		return true
	})
	if found < 8 {
		t.Errorf("found only %d exit codes: have they moved?", found)
	}
}

// privateVariables pass something between two processes of this program.
var privateVariables = []string{}

func TestTheManualNamesEveryVariable(t *testing.T) {
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || hasFile(path, "go.mod")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, name := range variables(t, path) {
			found++
			if !has(environment, name) && !slices.Contains(privateVariables, name) {
				t.Errorf("%s reads $%s, which ENVIRONMENT of spendonce(1) does not name: add it to internal/mangen/appendix.go", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 5 {
		t.Errorf("found only %d variables: are they read in another way now?", found)
	}
}

// variables finds what a file reads from the environment by a literal name.
func variables(t *testing.T, path string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Getenv" && sel.Sel.Name != "LookupEnv" {
			return true
		}
		if lit, ok := call.Args[0].(*ast.BasicLit); ok {
			if name, err := strconv.Unquote(lit.Value); err == nil {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

func TestTextCannotBecomeMarkup(t *testing.T) {
	cmd := &cobra.Command{
		Use: "tool", Short: `Say 'x' \ y`,
		Long:    ".TH evil 1\n'quoted at the start\nuse --no-such -x; a well-known path is ~/a-b.c\n\n  literal --line\n   .more\n\nend",
		Example: "  tool \\\n    'x'",
		Run:     func(*cobra.Command, []string) {},
	}
	cmd.Flags().String("with-value", "it's", "a `THING` to .say")
	got := string(Pages(cmd, Release{Date: "2026-01-02"})["tool.1"])
	for _, want := range []string{
		"tool \\- say \\(aqx\\(aq \\e y\n",
		"\n\\&.TH evil 1\n",
		"\n\\(aqquoted at the start\n",
		"\nuse \\-\\-no\\-such \\-x; a well-known path is \\(ti/a\\-b.c\n",
		"\n.EX\nliteral \\-\\-line\n .more\n.EE\n",
		"\ntool \\e\n  \\(aqx\\(aq\n",
		"\n\\fB\\-\\-with\\-value\\fR \\fITHING\\fR\na THING to .say (default it\\(aqs)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

func TestTheSynopsisMarksWhatTheUserPutsIn(t *testing.T) {
	for use, want := range map[string]string{
		"tool":                        `\fBtool\fR [\fIoption\fR ...]`,
		"tool TARGET|--all":           `\fBtool\fR [\fIoption\fR ...] \fITARGET\fR|\fB\-\-all\fR`,
		"tool TARGET [METHOD] A|B":    `\fBtool\fR [\fIoption\fR ...] \fITARGET\fR [\fIMETHOD\fR] \fIA\fR|\fIB\fR`,
		"tool [--env NAME] -- CMD...": `\fBtool\fR [\fIoption\fR ...] [\fB\-\-env\fR \fINAME\fR] \fB\-\-\fR \fICMD\fR...`,
		"tool bash|zsh":               `\fBtool\fR [\fIoption\fR ...] \fBbash\fR|\fBzsh\fR`,
	} {
		if got := synopsis(&cobra.Command{Use: use}); got != want {
			t.Errorf("%s: %s, want %s", use, got, want)
		}
	}
}

func TestTheLastReleaseIsTheFirstWithADate(t *testing.T) {
	got := LastRelease("# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2027-01-02\n\n## [0.1.0] - 2026-12-01\n")
	if want := (Release{Version: "0.2.0", Date: "2027-01-02"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := LastRelease("## [Unreleased]\n"); got.Version != "" || got.Date == "" {
		t.Errorf("an unreleased changelog gives %+v", got)
	}
}

func has(table []entry, tag string) bool {
	return slices.ContainsFunc(table, func(e entry) bool { return e.tag == tag })
}

func hasFile(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
