package requestcmd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// maxEnvelope bounds the body that --json holds in memory.
const maxEnvelope = 16 << 20

type requestEnvelope struct {
	Version    int                 `json:"version"`
	Status     int                 `json:"status"`
	Headers    map[string][]string `json:"headers"`
	Body       *string             `json:"body,omitempty"`        // UTF-8
	BodyBase64 string              `json:"body_base64,omitempty"` // what is not
}

// printAnswer writes an answer as it arrives. The end of ctx ends it even where
// nobody reads what is written.
func printAnswer(ctx context.Context, resp *http.Response, out *requestOutput, f requestFlags) error {
	defer func() { _ = resp.Body.Close() }()
	to, err := out.of(resp.StatusCode)
	if err != nil {
		return err
	}
	write := copyAnswer
	switch {
	case f.json:
		write = writeEnvelope
	case f.include:
		write = writeWithHeader
	}
	done := make(chan error, 1)
	go func() { done <- write(to, resp) }()
	select {
	case err := <-done:
		return errors.Join(err, out.close())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// copyAnswer streams the body, telling apart which side failed.
func copyAnswer(out io.Writer, resp *http.Response) error {
	in := &reading{Reader: resp.Body}
	n, err := io.Copy(out, in)
	switch {
	case in.err != nil:
		return &streams.Exit{Code: exitUnanswered, Err: fmt.Errorf("the answer broke off after %d bytes: %s", n, credcmd.Printable(in.err.Error()))}
	case err != nil:
		return fmt.Errorf("the answer could not be written after %d bytes: %w", n, err)
	}
	return nil
}

func writeWithHeader(out io.Writer, resp *http.Response) error {
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s\r\n", resp.Proto, resp.Status)
	names := make([]string, 0, len(resp.Header))
	for name := range resp.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range resp.Header[name] {
			fmt.Fprintf(&head, "%s: %s\r\n", name, value)
		}
	}
	if _, err := io.WriteString(out, head.String()+"\r\n"); err != nil {
		return fmt.Errorf("the answer could not be written: %w", err)
	}
	return copyAnswer(out, resp)
}

func writeEnvelope(out io.Writer, resp *http.Response) error {
	var body strings.Builder
	if err := copyAnswer(&body, &http.Response{Body: io.NopCloser(io.LimitReader(resp.Body, maxEnvelope+1))}); err != nil {
		return err
	}
	if body.Len() > maxEnvelope {
		return errors.New("the answer is longer than the 16 MiB that --json holds: leave --json out")
	}
	o := requestEnvelope{Version: 1, Status: resp.StatusCode, Headers: resp.Header}
	if text := body.String(); utf8.ValidString(text) {
		o.Body = &text
	} else {
		o.BodyBase64 = base64.StdEncoding.EncodeToString([]byte(text))
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o); err != nil {
		return fmt.Errorf("the answer could not be written: %w", err)
	}
	return nil
}

// reading keeps the error of a reader.
type reading struct {
	io.Reader
	err error
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
