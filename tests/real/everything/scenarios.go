//nolint:staticcheck // what the newest revision drops is in use in the others
package everything

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type scenario struct {
	name string
	run  func(ctx context.Context) error
}

// object are the arguments of a tool.
type object = map[string]any

// scenarios are those of drive.mjs, under the same names.
func (p *player) scenarios(transport mcp.Transport) []scenario {
	return []scenario{
		{"handshake", func(context.Context) error { return p.connect(transport) }},
		{"roots, asked for by the server", func(ctx context.Context) error {
			return first(
				func() error { return p.await(ctx, "log Roots updated: 2 ") },
				func() error { return p.want(ctx, "file:///home/zwei%20%C3%BC", "get-roots-list", nil) })
		}},
		{"roots, changed", func(ctx context.Context) error {
			p.client.RemoveRoots("file:///home/one")
			return p.await(ctx, "log Roots updated: 1 ")
		}},
		{"ping", func(ctx context.Context) error { return p.session.Ping(ctx, nil) }},
		{"cancellation", p.cancel},
		{"tools, listed", func(ctx context.Context) error {
			r, err := p.session.ListTools(ctx, nil)
			if err == nil && len(r.Tools) < 15 {
				err = fmt.Errorf("there are %d", len(r.Tools))
			}
			return err
		}},
		{"tools, called", p.callAll},
		{"tools, refused", func(ctx context.Context) error {
			return first(
				func() error { return p.want(ctx, "it is an error", "no-such-tool", nil) },
				func() error { return p.want(ctx, "it is an error", "get-sum", object{"a": "x"}) })
		}},
		{"a list that changes", func(ctx context.Context) error {
			for _, kind := range []string{"resource", "resourceLink"} {
				if _, err := p.call(ctx, "gzip-file-as-resource", object{"name": "a.gz", "data": "data:text/plain,hello", "outputType": kind}); err != nil {
					return err
				}
			}
			if err := p.await(ctx, "list changed"); err != nil {
				return err
			}
			return p.read(ctx, "demo://resource/session/a.gz")
		}},
		{"progress", p.progress},
		{"20 calls at once", p.atOnce},
		{"resources", func(ctx context.Context) error {
			return first(
				func() error { _, err := p.session.ListResources(ctx, nil); return err },
				func() error { _, err := p.session.ListResourceTemplates(ctx, nil); return err },
				func() error { return p.read(ctx, "demo://resource/static/document/architecture.md") },
				func() error { return p.read(ctx, "demo://resource/dynamic/text/3") },
				func() error { return p.read(ctx, "demo://resource/dynamic/blob/4") },
				func() error { return refused(p.read(ctx, "demo://nowhere")) })
		}},
		{"subscriptions", p.subscribe},
		{"prompts", p.prompts},
		{"completion", p.complete},
		{"logging", p.log},
		{"sampling", func(ctx context.Context) error {
			return p.want(ctx, "sampled ü", "trigger-sampling-request", object{"prompt": "say ü", "maxTokens": 5})
		}},
		{"elicitation by form", func(ctx context.Context) error {
			for _, answer := range []*mcp.ElicitResult{{Action: "accept", Content: object{"name": "Zoë", "check": true, "integer": 7}}, {Action: "decline"}, {Action: "cancel"}} {
				p.willAnswer(answer)
				if err := p.want(ctx, answer.Action, "trigger-elicitation-request", nil); err != nil {
					return err
				}
			}
			return nil
		}},
		{"elicitation by URL", func(ctx context.Context) error {
			p.willAnswer(&mcp.ElicitResult{Action: "accept"})
			return p.want(ctx, "completed", "trigger-url-elicitation", object{"url": "https://example.com/consent?x=%20", "elicitationId": "e1"})
		}},
		{"3 MiB", func(ctx context.Context) error {
			message := strings.Repeat("0123456789abcdeü", 3<<16)
			return p.want(ctx, message, "echo", object{"message": message})
		}},
	}
}

func (p *player) willAnswer(r *mcp.ElicitResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elicited = []*mcp.ElicitResult{r}
}

func (p *player) read(ctx context.Context, uri string) error {
	r, err := p.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err == nil && (len(r.Contents) != 1 || r.Contents[0].URI != uri) {
		err = fmt.Errorf("%s has %d contents", uri, len(r.Contents))
	}
	return err
}

func (p *player) callAll(ctx context.Context) error {
	text := "Grüße, 世界 \u2028 😀 \u0000 \"\\"
	return first(
		func() error { return p.want(ctx, "Echo: "+text, "echo", object{"message": text}) },
		func() error {
			return p.want(ctx, "The sum of 2.5 and -1e+21 is -1e+21.", "get-sum", object{"a": 2.5, "b": -1e21})
		},
		func() error { return p.want(ctx, "PATH", "get-env", nil) },
		func() error {
			for _, kind := range []string{"error", "success", "debug"} {
				if _, err := p.call(ctx, "get-annotated-message", object{"messageType": kind, "includeImage": true}); err != nil {
					return err
				}
			}
			return nil
		},
		func() error { return p.want(ctx, "image", "get-tiny-image", nil) },
		func() error { return p.want(ctx, "humidity", "get-structured-content", object{"location": "Chicago"}) },
		func() error { return p.want(ctx, "10 resource links", "get-resource-links", object{"count": 10}) },
		func() error {
			return p.want(ctx, "Resource 7", "get-resource-reference", object{"resourceType": "Blob", "resourceId": 7})
		})
}

func (p *player) cancel(ctx context.Context) error {
	hanging, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := p.session.CallTool(hanging, &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: object{"duration": 3, "steps": 1}})
		done <- err
	}()
	if !p.recorder.await(ctx, ">", `"trigger-long-running-operation"`) {
		return ctx.Err()
	}
	if err := p.session.Ping(ctx, nil); err != nil { // the server has read the call by then, or nearly
		return err
	}
	select {
	case err := <-done:
		return fmt.Errorf("it was answered: %w", err)
	case <-time.After(200 * time.Millisecond):
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("it ends with %w", err)
	}
	if !p.recorder.await(ctx, ">", "notifications/cancelled") {
		return ctx.Err()
	}
	return nil
}

func (p *player) progress(ctx context.Context) error {
	params := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: object{"duration": 0.4, "steps": 4}, Meta: mcp.Meta{"progressToken": "p1"}}
	if _, err := p.session.CallTool(ctx, params); err != nil {
		return err
	}
	for i := range 4 {
		if err := p.await(ctx, fmt.Sprint("progress ", i+1)); err != nil {
			return err
		}
	}
	return nil
}

// atOnce has its calls begun one after the other, so that each has the same id
// every time, but none waits for another's answer.
func (p *player) atOnce(ctx context.Context) error {
	const n = 20
	errs := make(chan error, n)
	for i := range n {
		text := fmt.Sprint("Echo: n", i, ".")
		go func() { errs <- p.want(ctx, text, "echo", object{"message": strings.TrimPrefix(text, "Echo: ")}) }()
		if !p.recorder.await(ctx, ">", fmt.Sprintf(`"n%d."`, i)) {
			return ctx.Err()
		}
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

func (p *player) subscribe(ctx context.Context) error {
	const uri = "demo://resource/dynamic/text/1"
	toggle := func() error { return p.want(ctx, "simulated resource updated", "toggle-subscriber-updates", nil) }
	return first(
		func() error { return p.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}) },
		func() error { return p.await(ctx, "log Received Subscribe Resource request") },
		toggle,
		func() error { return p.await(ctx, "update") },
		func() error { _, err := p.call(ctx, "toggle-subscriber-updates", nil); return err },
		func() error { return p.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}) },
		func() error { return p.await(ctx, "log Received Unsubscribe Resource request") })
}

func (p *player) prompts(ctx context.Context) error {
	if _, err := p.session.ListPrompts(ctx, nil); err != nil {
		return err
	}
	get := func(name string, args map[string]string) error {
		_, err := p.session.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: args})
		return err
	}
	return first(
		func() error { return get("simple-prompt", nil) },
		func() error { return get("args-prompt", map[string]string{"city": "Bern", "state": "BE"}) },
		func() error {
			return get("completable-prompt", map[string]string{"department": "Sales", "name": "Eve"})
		},
		func() error {
			return get("resource-prompt", map[string]string{"resourceType": "Blob", "resourceId": "2"})
		},
		func() error { return refused(get("args-prompt", nil)) },
		func() error { return refused(get("no-such-prompt", nil)) })
}

func (p *player) complete(ctx context.Context) error {
	ask := func(ref *mcp.CompleteReference, name, value string, context *mcp.CompleteContext, want ...string) error {
		r, err := p.session.Complete(ctx, &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: name, Value: value}, Context: context})
		if err == nil && !slices.Equal(r.Completion.Values, want) {
			err = fmt.Errorf("got %q", r.Completion.Values)
		}
		return err
	}
	prompt := &mcp.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"}
	return first(
		func() error { return ask(prompt, "department", "S", nil, "Sales", "Support") },
		func() error {
			return ask(prompt, "name", "", &mcp.CompleteContext{Arguments: map[string]string{"department": "Sales"}}, "David", "Eve", "Frank")
		},
		func() error {
			return ask(&mcp.CompleteReference{Type: "ref/resource", URI: "demo://resource/dynamic/text/{resourceId}"}, "resourceId", "5", nil, "5")
		})
}

func (p *player) log(ctx context.Context) error {
	level := func(level mcp.LoggingLevel) error {
		return p.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: level})
	}
	toggle := func() error { _, err := p.call(ctx, "toggle-simulated-logging", nil); return err }
	return first(
		func() error { return level("debug") },
		toggle,
		func() error { return p.await(ctx, "log ") },
		toggle,
		func() error { return level("error") }, // then this is not worth a message
		func() error {
			return p.session.Subscribe(ctx, &mcp.SubscribeParams{URI: "demo://resource/dynamic/text/2"})
		})
}
