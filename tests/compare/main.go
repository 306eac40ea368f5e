// Command compare has the official MCP clients talk to the reference server
// directly, through spendonce and through mcp-remote, and writes a table of
// what each passed. docs/mcp-compare.md is made by it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spendonce/spendonce/tests/real/everything"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	binary := flags.String("binary", "../bin/spendonce", "the program to judge")
	update := flags.String("update", "", "the document whose marked part is written anew")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "compare-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{dir: dir, talk: stderr}
	if b.binary, err = filepath.Abs(*binary); err != nil {
		return err
	}
	if b.modules, err = everything.Modules(ctx); err != nil {
		return err
	}
	versions, err := b.versions(ctx)
	if err != nil {
		return err
	}
	passed, err := b.passed(ctx)
	if err != nil {
		return err
	}
	life, err := b.life(ctx)
	if err != nil {
		return err
	}
	text := strings.Join([]string{versions, passed, life}, "\n")
	fmt.Fprintln(stdout, text)
	if *update == "" {
		return nil
	}
	return rewrite(*update, text)
}

// bench is where the contenders meet.
type bench struct {
	binary  string
	modules string
	dir     string // each user gets a directory of its own below
	talk    io.Writer
}

// home is a directory that nobody has used.
func (b *bench) home() (string, error) { return os.MkdirTemp(b.dir, "home-") }

func (b *bench) versions(ctx context.Context) (string, error) {
	node, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return "", err
	}
	var packages []string
	for _, name := range []string{"@modelcontextprotocol/server-everything", "@modelcontextprotocol/sdk", "mcp-remote"} {
		version, err := everything.Version(ctx, name)
		if err != nil {
			return "", err
		}
		packages = append(packages, fmt.Sprintf("`%s` %s", name, version))
	}
	return fmt.Sprintf("Seen with %s, the Go SDK %s and node %s.\n", strings.Join(packages, ", "),
		goSDK(), strings.TrimSpace(string(node))), nil
}

var marked = regexp.MustCompile(`(?s)(<!-- compare -->\n).*(<!-- /compare -->)`)

// rewrite puts the text between the marks of a document.
func rewrite(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !marked.Match(old) {
		return fmt.Errorf("%s has no part that is marked", path)
	}
	next := marked.ReplaceAllFunc(old, func([]byte) []byte { return []byte("<!-- compare -->\n" + text + "<!-- /compare -->") })
	return os.WriteFile(path, next, 0o600) // the mode is what it was
}
