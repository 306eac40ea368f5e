package everything

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// recorder notes messages, in their order.
type recorder struct {
	mu       sync.Mutex
	scenario string
	messages []Message
	news     chan struct{}
}

func (r *recorder) begin(scenario string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scenario = scenario
}

func (r *recorder) note(dir, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, Message{r.scenario, dir, text})
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

func (r *recorder) all() []Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages)
}

// await reports whether a message of the current scenario came that has the
// text in it, before the context ended.
func (r *recorder) await(ctx context.Context, dir, text string) bool {
	for {
		r.mu.Lock()
		for _, m := range slices.Backward(r.messages) {
			if m.Scenario != r.scenario {
				break
			}
			if m.Dir == dir && strings.Contains(m.Text, text) {
				r.mu.Unlock()
				return true
			}
		}
		if r.news == nil {
			r.news = make(chan struct{})
		}
		news := r.news
		r.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return false
		}
	}
}

// lines is a writer that takes whole lines out of what passes.
type lines struct {
	record func(line string)
	rest   []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.record(strings.TrimSuffix(string(line), "\r"))
		l.rest = rest
	}
}

// tapped sends requests with a token, and notes the messages in them and in
// their answers.
type tapped struct {
	next     http.RoundTripper
	token    string
	recorder *recorder
}

func (t *tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		t.recorder.note(">", string(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch kind := answer.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/event-stream"):
		e := &events{record: func(data string) { t.recorder.note("<", data) }}
		answer.Body = teeBody(answer.Body, &lines{record: e.line})
	case strings.HasPrefix(kind, "application/json"):
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return nil, err
		}
		t.recorder.note("<", string(body))
		answer.Body = io.NopCloser(bytes.NewReader(body))
	}
	return answer, nil
}

func teeBody(body io.ReadCloser, w io.Writer) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(body, w), body}
}

// events takes the messages out of a stream's lines.
type events struct {
	record func(data string)
	name   string
	data   []string
}

func (e *events) line(line string) {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch {
	case field == "event":
		e.name = value
	case field == "data":
		e.data = append(e.data, value)
	case line == "":
		if data := strings.Join(e.data, "\n"); data != "" && (e.name == "" || e.name == "message") {
			e.record(data)
		}
		e.name, e.data = "", nil
	}
}
