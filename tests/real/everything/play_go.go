//nolint:staticcheck // what the newest revision drops is in use in the others
package everything

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// protocolVersion is the newest that the reference server speaks.
const protocolVersion = "2025-11-25"

// PlayGo has the official Go client do what PlayTypeScript has the other do,
// but for what it does not know: tasks, and methods that nobody has heard of.
// Its messages are noted as they pass the pipe or the HTTP connection, byte for
// byte.
func PlayGo(ctx context.Context, way Way) (Transcript, error) {
	p := &player{recorder: &recorder{}, way: way, news: make(chan struct{})}
	transport, end, err := p.transport(ctx)
	if err != nil {
		return Transcript{}, err
	}
	p.life = ctx
	for _, s := range p.scenarios(transport) {
		p.recorder.begin(s.name)
		ctx, cancel := context.WithTimeout(ctx, way.patience())
		err := s.run(ctx)
		cancel()
		o := Outcome{Scenario: s.name}
		if err != nil {
			o.Error = err.Error()
		}
		p.outcomes = append(p.outcomes, o)
		if p.session == nil {
			break
		}
	}
	p.recorder.begin("end")
	if p.session != nil {
		_ = p.session.Close()
	}
	log := end()
	return Transcript{Outcomes: p.outcomes, Messages: p.recorder.all(), Log: log}, nil
}

// player is a client at work.
type player struct {
	recorder *recorder
	way      Way
	client   *mcp.Client
	session  *mcp.ClientSession
	life     context.Context // of the session; a scenario's ends with it
	outcomes []Outcome

	mu       sync.Mutex
	heard    []string      // kinds of what came unasked
	news     chan struct{} // closed and replaced when there is more
	elicited []*mcp.ElicitResult
}

// transport is a client's, whose messages are noted; end says what else was
// printed when the client is through.
func (p *player) transport(ctx context.Context) (t mcp.Transport, end func() string, err error) {
	if p.way.Command == nil {
		base := &http.Transport{DisableCompression: true}
		client := &http.Client{Transport: &tapped{next: base, token: p.way.Token, recorder: p.recorder}}
		end = func() string { base.CloseIdleConnections(); return "" }
		if p.way.Kind == SSE {
			return &mcp.SSEClientTransport{Endpoint: p.way.URL, HTTPClient: client}, end, nil
		}
		return &mcp.StreamableClientTransport{Endpoint: p.way.URL, HTTPClient: client}, end, nil
	}
	cmd := exec.CommandContext(ctx, p.way.Command[0], p.way.Command[1:]...)
	cmd.Env = p.way.Env
	var stderr output
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, says, err := os.Pipe() // unlike StdoutPipe, it may be read after the end
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout = says
	err = cmd.Start()
	_ = says.Close()
	if err != nil {
		return nil, nil, err
	}
	end = func() string {
		_ = in.Close()
		late := time.AfterFunc(p.way.patience(), func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
		_ = out.Close()
		return stderr.String()
	}
	return &mcp.IOTransport{
		Reader: struct {
			io.Reader
			io.Closer
		}{io.TeeReader(out, &lines{record: func(line string) { p.recorder.note("<", line) }}), out},
		Writer: struct {
			io.Writer
			io.Closer
		}{io.MultiWriter(&lines{record: func(line string) { p.recorder.note(">", line) }}, in), in},
		MaxLineLength: -1,
	}, end, nil
}

func (p *player) hear(kind string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, kind)
	close(p.news)
	p.news = make(chan struct{})
}

// await waits for something that begins with kind, and takes it and what came
// before it.
func (p *player) await(ctx context.Context, kind string) error {
	for {
		p.mu.Lock()
		news := p.news
		for i, k := range p.heard {
			if strings.HasPrefix(k, kind) {
				p.heard = p.heard[i+1:]
				p.mu.Unlock()
				return nil
			}
		}
		p.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("%s did not come", kind)
		}
	}
}

func (p *player) elicit(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.elicited) == 0 {
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
	r := p.elicited[0]
	p.elicited = p.elicited[1:]
	return r, nil
}

func (p *player) connect(t mcp.Transport) (err error) {
	p.client = mcp.NewClient(&mcp.Implementation{Name: "drive", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m1", Role: "assistant", Content: &mcp.TextContent{Text: "sampled ü"}}, nil
		},
		ElicitationHandler:         p.elicit,
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { p.hear("list changed") },
		ResourceUpdatedHandler:     func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { p.hear("update") },
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			p.hear(fmt.Sprint("log ", r.Params.Data))
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			p.hear(fmt.Sprint("progress ", r.Params.Progress))
		},
	})
	p.client.AddRoots(&mcp.Root{URI: "file:///home/one", Name: "One"}, &mcp.Root{URI: "file:///home/zwei%20%C3%BC", Name: "Zwei ü"})
	p.session, err = p.client.Connect(p.life, t, &mcp.ClientSessionOptions{ProtocolVersion: protocolVersion})
	if err != nil {
		return err
	}
	if info := p.session.InitializeResult(); info.ServerInfo.Name != "mcp-servers/everything" || info.ProtocolVersion != protocolVersion {
		return fmt.Errorf("the server is %v, and speaks %s", info.ServerInfo.Name, info.ProtocolVersion)
	}
	return nil
}

// call returns the texts of a tool's answer.
func (p *player) call(ctx context.Context, name string, args map[string]any) (string, error) {
	if args == nil {
		args = map[string]any{} // this server takes no null for nothing
	}
	r, err := p.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return "", err
	}
	var said []string
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			said = append(said, text.Text)
		}
	}
	if r.IsError {
		said = append(said, "it is an error")
	}
	return strings.Join(said, "\n"), nil
}

// want fails unless the answer has the text in it.
func (p *player) want(ctx context.Context, text, name string, args map[string]any) error {
	said, err := p.call(ctx, name, args)
	if err == nil && !strings.Contains(said, text) {
		err = fmt.Errorf("%s says %.300q", name, said)
	}
	return err
}

// first runs one after the other until one fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// refused turns an error into what was expected.
func refused(err error) error {
	if err == nil {
		return errors.New("it was not refused")
	}
	if !strings.Contains(err.Error(), "MCP error -32") && !strings.Contains(err.Error(), "not found") {
		return err
	}
	return nil
}
