package mcpcmd

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/requestcmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/mcpproxy"
)

type proxyFlags struct {
	transport     string
	maxMessage    int
	headerTimeout time.Duration
	headers       []string
	login         bool
	logs          logFlags
}

// wires are the values of --transport.
var wires = map[string]mcpproxy.Wire{"auto": mcpproxy.AnyWire, "http": mcpproxy.StreamableHTTP, "sse": mcpproxy.HTTPWithSSE}

// A message may not be larger than what memory is there for, nor smaller than
// what every client sends.
const leastMessage, mostMessage = 64 << 10, 1 << 30

func proxyCommand(app *credcmd.App) *cobra.Command {
	var f proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy TARGET",
		Short: "Be an MCP server on standard input and output, in front of a remote one",
		Long: `Be an MCP server on standard input and output, in front of the remote one at the
target's URL, with the session that all programs share.

Messages pass unchanged. However many clients start their own proxy, the target is
signed in to once and its token refreshed once. When a person has to do something,
the client gets an error that says what to run; this command goes on, and a login
or logout elsewhere is noticed. A session that the server has forgotten is begun
again by the same handshake. No browser is opened, unless --login lets it.

The command ends when the client closes standard input, and tells the server so.
Logs go to standard error: warnings, and with --verbose methods, sizes and times,
never what is in a message. --log-file gets them too, in a directory that only you
can write to; at 8 MiB it becomes FILE.1.`,
		Example: `  spendonce mcp proxy example < /dev/null
  claude mcp add example -- spendonce mcp proxy example`,
		Args:              oneTarget,
		ValidArgsFunction: app.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return proxy(cmd.Context(), app, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.transport, "transport", "auto", "`KIND` of server: http (streamable), sse (2024-11-05), or auto: http, and sse if it has only that")
	flags.IntVar(&f.maxMessage, "max-message", 64<<20, "refuse messages that are longer than this many `BYTES`")
	flags.DurationVar(&f.headerTimeout, "header-timeout", 5*time.Minute, "wait this long for a server to begin its answer; 0: without end")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "a further `NAME:VALUE` to send with each request; may be repeated")
	flags.BoolVar(&f.login, "login", false, "let a person sign in with a browser when that is needed; of several proxies one asks")
	f.logs.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("transport", cobra.FixedCompletions([]string{"auto", "http", "sse"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func proxy(ctx context.Context, app *credcmd.App, target string, f proxyFlags) error {
	// It waits for others nearly all of the time. On one core a message is
	// handed on without waking a thread on another one each time, and that is
	// most of what a small message costs here.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	wire, ok := wires[f.transport]
	switch {
	case !ok:
		return streams.Usage("--transport: %q is none of auto, http and sse", f.transport)
	case f.maxMessage < leastMessage || f.maxMessage > mostMessage:
		return streams.Usage("--max-message must be between %d and %d bytes", leastMessage, mostMessage)
	case f.headerTimeout < 0:
		return streams.Usage("--header-timeout must not be negative")
	case f.headerTimeout == 0:
		f.headerTimeout = -1 // as a bearer transport says it
	}
	header, err := parseHeader(f.headers)
	if err != nil {
		return err
	}
	app.Streams.Err = newImpatient(app.Streams.Err)
	app.Arm() // it is to end by itself when told to
	log, err := f.logs.open(app.Streams)
	if err != nil {
		return err
	}
	conn, err := requestcmd.Connect(app, target, requestcmd.ConnectConfig{
		HeaderTimeout: f.headerTimeout, SignIn: f.login,
		Warn: func(err error) { log.Warn("the session may be lost", "reason", err) },
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	in := app.Streams.In
	p, err := mcpproxy.New(mcpproxy.Config{
		Target: target, Locate: conn.Locate, Transport: conn, Header: header, Wire: wire, Log: log, Gone: hungUp(in), Settle: conn.Close,
		Trim: debug.FreeOSMemory, Limits: mcpproxy.Limits{Message: f.maxMessage},
	})
	if err != nil {
		return err
	}
	app.Streams.In = strings.NewReader("") // it is the client's: no sign-in asks there
	return p.Run(ctx, streams.Awaited(in), app.Streams.Out)
}

// parseHeader reads the headers of --header.
func parseHeader(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, err := requestcmd.HeaderLine(line)
		if err != nil {
			return nil, err
		}
		switch {
		case name == "Authorization":
			return nil, streams.Usage("--header Authorization: the token of the target is what is sent there")
		case strings.HasPrefix(name, "Mcp-"), slices.Contains(protocolHeaders, name):
			return nil, streams.Usage("--header %s: the protocol says what is sent there", name)
		}
		h.Add(name, value)
	}
	return h, nil
}

var protocolHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Last-Event-Id",
	"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	// With one of these, net/http sends a request a second time.
	"Idempotency-Key", "X-Idempotency-Key",
}
