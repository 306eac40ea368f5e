//nolint:staticcheck // what the newest revision drops is in use in the others
package mcpproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spendonce/spendonce/mcpproxy"
)

type named struct {
	Name string `json:"name"`
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// everything is a server of the official kind with all that the protocol has.
type everything struct {
	*mcp.Server
	begun     chan struct{} // a call that hangs
	cancelled chan struct{} // it was
}

func newEverything() *everything {
	e := &everything{begun: make(chan struct{}, 1), cancelled: make(chan struct{}, 1)}
	e.Server = mcp.NewServer(&mcp.Implementation{Name: "everything", Version: "1"}, &mcp.ServerOptions{
		Instructions: "ask",
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"paris", "park"}, Total: 2}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	tool := func(name string, do func(ctx context.Context, req *mcp.CallToolRequest, in named) (string, error)) {
		mcp.AddTool(e.Server, &mcp.Tool{Name: name, Description: "does " + name}, func(ctx context.Context, req *mcp.CallToolRequest, in named) (*mcp.CallToolResult, any, error) {
			text, err := do(ctx, req, in)
			return said(text), nil, err
		})
	}
	tool("greet", func(_ context.Context, _ *mcp.CallToolRequest, in named) (string, error) {
		return "hello " + in.Name, nil
	})
	tool("fail", func(context.Context, *mcp.CallToolRequest, named) (string, error) {
		return "", errors.New("it is broken")
	})
	tool("sample", func(ctx context.Context, req *mcp.CallToolRequest, in named) (string, error) {
		r, err := req.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: in.Name}}}})
		if err != nil {
			return "", err
		}
		return r.Model, nil
	})
	tool("ask", func(ctx context.Context, req *mcp.CallToolRequest, in named) (string, error) {
		r, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "which, " + in.Name + "?", RequestedSchema: map[string]any{
			"type": "object", "properties": map[string]any{"colour": map[string]any{"type": "string"}},
		}})
		if err != nil {
			return "", err
		}
		return r.Action, nil
	})
	tool("roots", func(ctx context.Context, req *mcp.CallToolRequest, _ named) (string, error) {
		r, err := req.Session.ListRoots(ctx, nil)
		if err != nil {
			return "", err
		}
		return r.Roots[0].URI, req.Session.Ping(ctx, nil)
	})
	tool("count", func(ctx context.Context, req *mcp.CallToolRequest, _ named) (string, error) {
		for i := range 3 {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i), Total: 3, Message: "on"})
			_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: i})
		}
		return "counted", nil
	})
	tool("hang", func(ctx context.Context, _ *mcp.CallToolRequest, _ named) (string, error) {
		e.begun <- struct{}{}
		<-ctx.Done()
		e.cancelled <- struct{}{}
		return "", ctx.Err()
	})
	text := func(header string) map[string]any { return map[string]any{"type": "string", "x-mcp-header": header} }
	e.AddTool(&mcp.Tool{Name: "query", InputSchema: map[string]any{"type": "object", "properties": map[string]any{
		"region": text("Region"), "note": text("Note"), "absent": text("Absent"), "plain": map[string]any{"type": "string"},
		"at": map[string]any{"type": "object", "properties": map[string]any{
			"shard": map[string]any{"type": "integer", "x-mcp-header": "Shard"}, "dry": map[string]any{"type": "boolean", "x-mcp-header": "Dry"},
		}},
	}}}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		h := req.Extra.Header
		return said(strings.Join([]string{h.Get("Mcp-Param-Region"), h.Get("Mcp-Param-Note"), h.Get("Mcp-Param-Shard"), h.Get("Mcp-Param-Dry"), h.Get("Mcp-Param-Absent")}, " ")), nil
	})
	e.AddResource(&mcp.Resource{Name: "page", URI: "file:///page"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "file:///page", Text: "text", MIMEType: "text/plain"}}}, nil
	})
	e.AddResourceTemplate(&mcp.ResourceTemplate{Name: "t", URITemplate: "file:///{x}"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return nil, errors.New("no")
	})
	e.AddPrompt(&mcp.Prompt{Name: "p", Arguments: []*mcp.PromptArgument{{Name: "city"}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: r.Params.Arguments["city"]}}}}, nil
	})
	return e
}

// play lets the official client do all that it can. streams says that the
// server may say something before it answers.
func play(t *testing.T, e *everything, front *tap, transport mcp.Transport, version string, streams bool) {
	t.Helper()
	modern := version >= "2026"
	came := make(chan string, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: r.Params.Messages[0].Content}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"colour": "red"}}, nil
		},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { came <- "tools" },
		ResourceUpdatedHandler:      func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { came <- "resource" },
		LoggingMessageHandler:       func(context.Context, *mcp.LoggingMessageRequest) { came <- "log" },
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { came <- "progress" },
	})
	client.AddRoots(&mcp.Root{URI: "file:///root", Name: "r"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect := func(n int, what string) {
		t.Helper()
		for range n {
			select {
			case got := <-came:
				if !strings.Contains(what, got) {
					t.Errorf("got %s, want %s", got, what)
				}
			case <-ctx.Done():
				t.Fatalf("no %s came", what)
			}
		}
	}
	s, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("the session speaks %s", got)
	}
	call := func(name string, meta mcp.Meta) {
		t.Helper()
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: named{"bob ü"}, Meta: meta}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	try := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = s.ListTools(ctx, nil)
	try("tools", err)
	call("greet", nil)
	call("fail", nil)
	if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "unknown"}); err == nil {
		t.Error("an unknown tool was called")
	}
	if !modern {
		try("ping", s.Ping(ctx, nil))
		try("level", s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}))
		if streams {
			call("sample", nil)
			call("ask", nil)
			call("roots", nil)
			call("count", mcp.Meta{"progressToken": "p1"})
			expect(6, "log progress")
		}
		select {
		case <-front.listening: // what the server says before is lost
		case <-ctx.Done():
			t.Fatal("nobody asks for the server's stream")
		}
		try("subscribing", s.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///page"}))
		try("updating", e.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "file:///page"}))
		expect(1, "resource")
		try("unsubscribing", s.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "file:///page"}))
	} else {
		// The server refuses a call whose headers are not as its schema says.
		r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "query", Arguments: map[string]any{
			"region": "us-west1", "note": " bob ü", "plain": "x", "at": map[string]any{"shard": 7, "dry": true},
		}})
		if err != nil {
			t.Errorf("a call with headers: %v", err)
		} else if text, ok := r.Content[0].(*mcp.TextContent); !ok || text.Text != "us-west1 =?base64?IGJvYiDDvA==?= 7 true " {
			t.Errorf("the headers were %v", r.Content[0])
		}
		call("count", mcp.Meta{"progressToken": "p1"})
		expect(3, "log progress")
	}
	_, err = s.ListResources(ctx, nil)
	try("resources", err)
	_, err = s.ListResourceTemplates(ctx, nil)
	try("templates", err)
	_, err = s.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///page"})
	try("reading", err)
	_, err = s.ListPrompts(ctx, nil)
	try("prompts", err)
	_, err = s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p", Arguments: map[string]string{"city": "paris"}})
	try("prompt", err)
	_, err = s.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "p"}, Argument: mcp.CompleteParamsArgument{Name: "city", Value: "pa"}})
	try("completion", err)
	if !modern { // there, the end of the request is what the server sees, which is another test's
		hanging, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() {
			_, err := s.CallTool(hanging, &mcp.CallToolParams{Name: "hang", Arguments: named{"x"}})
			done <- err
		}()
		<-e.begun
		stop()
		<-e.cancelled
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled call ends with %v", err)
		}
	}
	e.AddTool(&mcp.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return said("new"), nil })
	expect(1, "tools")
	_, err = s.ListTools(ctx, nil)
	try("tools", err)
	try("closing", s.Close())
}

// tap notes the messages that pass a server, in both directions.
type tap struct {
	http.Handler
	listening chan struct{} // closed when the server's own stream is open
	mu        sync.Mutex
	messages  []string
}

func (h *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var b bytes.Buffer
	opened := func() {}
	if r.Method == http.MethodGet {
		opened = sync.OnceFunc(func() { close(h.listening) })
	}
	h.Handler.ServeHTTP(&tapped{ResponseWriter: w, b: &b, opened: opened}, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(body) > 0 {
		h.messages = append(h.messages, "> "+string(body))
	}
	switch kind := w.Header().Get("Content-Type"); {
	case b.Len() == 0:
	case strings.HasPrefix(kind, "application/json"):
		h.messages = append(h.messages, "< "+strings.TrimSpace(b.String()))
	case strings.HasPrefix(kind, "text/event-stream"):
		for line := range strings.Lines(b.String()) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
				h.messages = append(h.messages, "< "+data)
			}
		}
	}
}

// sorted are the messages of a log: some come at a time of their own. Those
// about calls that were cancelled are left out: whether an answer to them is
// still written is chance, and in the revision 2026-07-28 the end of the
// request takes the place of the notification.
func sorted(messages []string, version string) []string {
	return slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(messages), func(m string) bool {
		return strings.Contains(m, `"text":"context canceled"`) ||
			version >= "2026" && (strings.Contains(m, "notifications/cancelled") || strings.Contains(m, `"resultType":"complete"`) && strings.Contains(m, "subscriptionId"))
	})))
}

type tapped struct {
	http.ResponseWriter
	b      *bytes.Buffer
	opened func()
}

func (t *tapped) Write(p []byte) (int, error) {
	t.b.Write(p)
	return t.ResponseWriter.Write(p)
}

func (t *tapped) Unwrap() http.ResponseWriter { return t.ResponseWriter }
func (t *tapped) Flush() {
	_ = http.NewResponseController(t.ResponseWriter).Flush()
	t.opened()
}

// noting notes the lines that pass a pipe.
type noting struct {
	io.Writer
	mark  string
	notes *bytes.Buffer // guarded by mu
	mu    *sync.Mutex
}

func (n noting) Write(p []byte) (int, error) {
	n.mu.Lock()
	for line := range bytes.Lines(p) {
		n.notes.WriteString(n.mark + string(line))
	}
	n.mu.Unlock()
	return n.Writer.Write(p)
}

type closing struct {
	io.Writer
	io.Closer
}

func TestTheOfficialClientSeesNoDifferenceToADirectConnection(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		for _, json := range []bool{false, true} {
			if json && version >= "2026" {
				continue
			}
			name := version + " by events"
			if json {
				name = version + " by JSON"
			}
			t.Run(name, func(t *testing.T) {
				side := func(wait <-chan struct{}, connect func(url string, client *http.Client) mcp.Transport) []string {
					e := newEverything()
					front := &tap{listening: make(chan struct{}), Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return e.Server }, &mcp.StreamableHTTPOptions{JSONResponse: json, Stateless: version >= "2026"})}
					server := httptest.NewServer(front)
					base := &http.Transport{DisableCompression: true}
					play(t, e, front, connect(server.URL, &http.Client{Transport: base}), version, !json)
					<-wait
					base.CloseIdleConnections()
					server.CloseClientConnections()
					server.Close()
					return sorted(front.messages, version)
				}
				nothing := make(chan struct{})
				close(nothing)
				direct := side(nothing, func(url string, client *http.Client) mcp.Transport {
					return &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}
				})
				var mu sync.Mutex
				var notes bytes.Buffer
				done := make(chan struct{})
				proxied := side(done, func(url string, client *http.Client) mcp.Transport {
					p, err := mcpproxy.New(mcpproxy.Config{URL: url, Transport: client.Transport})
					if err != nil {
						t.Fatal(err)
					}
					in, w := io.Pipe()
					r, out := io.Pipe()
					go func() {
						defer close(done)
						if err := p.Run(t.Context(), in, noting{out, "< ", &notes, &mu}); err != nil {
							t.Error(err)
						}
						_ = out.Close()
					}()
					return &mcp.IOTransport{Reader: r, Writer: closing{noting{w, "> ", &notes, &mu}, w}}
				})
				if !slices.Equal(direct, proxied) {
					t.Errorf("what the server sees; only direct:\n%s\nonly proxied:\n%s", strings.Join(only(direct, proxied), "\n"), strings.Join(only(proxied, direct), "\n"))
				}
				piped := sorted(strings.Split(strings.TrimSpace(notes.String()), "\n"), version)
				if !slices.Equal(piped, proxied) {
					t.Errorf("at the proxy; only of the client's side:\n%s\nonly of the server's:\n%s", strings.Join(only(piped, proxied), "\n"), strings.Join(only(proxied, piped), "\n"))
				}
				t.Logf("%d messages", len(direct))
			})
		}
	}
}

// only are the lines of a that b has not.
func only(a, b []string) (lines []string) {
	for _, line := range a {
		if !slices.Contains(b, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
