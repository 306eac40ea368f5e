package mcpcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// tool is what is shown of one.
type tool struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	InputSchema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	} `json:"inputSchema"`
}

// pages bounds how often a server may say that there is more.
const pages = 1000

func toolsCommand(app *credcmd.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "tools TARGET",
		Short:             "List the tools of a remote MCP server",
		Long:              "List the tools of a remote MCP server: the name, what has to be given, and the first line\nof what it is for. --json prints them as the server gives them.",
		Example:           "  spendonce mcp tools example\n  spendonce mcp tools example --json",
		Args:              oneTarget,
		ValidArgsFunction: app.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := converse(cmd.Context(), app, args[0])
			if err != nil {
				return err
			}
			defer d.end()
			all, err := d.tools()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(app.Streams.Out).Encode(toolsOutput{1, args[0], all})
			}
			return printTools(app.Streams.Out, all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: version, target, tools")
	return cmd
}

type toolsOutput struct {
	Version int               `json:"version"`
	Target  string            `json:"target"`
	Tools   []json.RawMessage `json:"tools"`
}

// tools asks for all pages.
func (d *dialogue) tools() ([]json.RawMessage, error) {
	all := []json.RawMessage{}
	params := map[string]string{}
	for range pages {
		result, err := d.ask("tools/list", params)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return nil, errors.New("tools/list: the server's answer is no list of tools")
		}
		all = append(all, page.Tools...)
		if page.NextCursor == "" {
			return all, nil
		}
		params["cursor"] = page.NextCursor
	}
	return nil, fmt.Errorf("tools/list: the server has more than %d pages of tools", pages)
}

func printTools(out io.Writer, all []json.RawMessage) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tNEEDS\tWHAT FOR")
	for _, raw := range all {
		var t tool
		if json.Unmarshal(raw, &t) != nil || t.Name == "" {
			continue // nothing that could be called
		}
		about, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
		if about == "" {
			about = t.Title
		}
		needs := strings.Join(t.InputSchema.Required, " ")
		if needs == "" {
			needs = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", credcmd.Printable(t.Name), credcmd.Printable(needs), credcmd.Printable(about))
	}
	return w.Flush()
}

// errTool: the tool ran and says that it failed.
var errTool = errors.New("the tool says that it failed")

func callCommand(app *credcmd.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "call TARGET TOOL [JSON]",
		Short: "Call a tool of a remote MCP server",
		Long: `Call a tool of a remote MCP server and print what it gives: its texts as they are,
everything else as JSON. The arguments are a JSON object, or - for standard input.
A tool that fails says so on standard output like one that does not, and the exit
code is 1. --json prints the whole result.`,
		Example: `  spendonce mcp call example search '{"query": "locks"}'
  spendonce mcp call example search - < arguments.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return streams.Usage("say which target and which tool, and its arguments as one JSON object: see '%s --help'", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: app.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments, err := toolArguments(app, args[2:])
			if err != nil {
				return err
			}
			return call(cmd.Context(), app, args[0], args[1], arguments, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server gives it")
	return cmd
}

// toolArguments reads the JSON object that a tool is called with.
func toolArguments(app *credcmd.App, args []string) (json.RawMessage, error) {
	const limit = 32 << 20
	text := []byte("{}")
	switch {
	case len(args) == 0:
	case args[0] != "-":
		text = []byte(args[0])
	default:
		app.Arm()
		b, err := io.ReadAll(io.LimitReader(app.Streams.In, limit+1))
		if err != nil {
			return nil, streams.Usage("reading the tool's arguments: %w", err)
		}
		text = b
	}
	text = bytes.TrimSpace(text)
	if len(text) > limit || !bytes.HasPrefix(text, []byte("{")) || !json.Valid(text) {
		return nil, streams.Usage("the tool's arguments are no JSON object of at most 32 MiB, such as '{\"query\": \"locks\"}'")
	}
	return text, nil
}

func call(ctx context.Context, app *credcmd.App, target, name string, arguments json.RawMessage, asJSON bool) error {
	d, err := converse(ctx, app, target)
	if err != nil {
		return err
	}
	defer d.end()
	raw, err := d.ask("tools/call", map[string]any{"name": name, "arguments": arguments})
	if err != nil {
		return err
	}
	var result struct {
		Content           []json.RawMessage `json:"content"`
		StructuredContent json.RawMessage   `json:"structuredContent"`
		IsError           bool              `json:"isError"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return errors.New("tools/call: the server's answer is no result of a tool")
	}
	if asJSON {
		_, err = fmt.Fprintf(app.Streams.Out, "%s\n", raw)
	} else {
		err = printContent(app.Streams.Out, result.Content, result.StructuredContent)
	}
	if err == nil && result.IsError {
		err = fmt.Errorf("%s: %w", credcmd.Printable(name), errTool)
	}
	return err
}

// printContent prints texts as they are and the rest as JSON; what is
// structured only where nothing else is there. On a terminal, characters that
// would steer it are left out.
func printContent(out io.Writer, content []json.RawMessage, structured json.RawMessage) error {
	if len(content) == 0 && len(structured) > 0 {
		content = []json.RawMessage{structured}
	}
	for _, raw := range content {
		var item struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		text := string(raw)
		if json.Unmarshal(raw, &item) == nil && item.Type == "text" && item.Text != nil {
			text = *item.Text
		}
		if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			lines := strings.Split(text, "\n")
			for i := range lines {
				lines[i] = credcmd.Printable(lines[i])
			}
			text = strings.Join(lines, "\n")
		}
		if _, err := fmt.Fprintln(out, strings.TrimSuffix(text, "\n")); err != nil {
			return err
		}
	}
	return nil
}
