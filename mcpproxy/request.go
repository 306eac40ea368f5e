package mcpproxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/spendonce/spendonce/bearer"
)

// post sends a message.
func (r *run) post(ctx context.Context, s *session, m message) (*http.Response, error) {
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	to := at.url
	if s != nil && s.stream != nil {
		if s.stream.hasEnded() {
			return nil, errStreamEnded
		}
		to = s.stream.endpoint
	}
	header := headersOf(m, s, r.cfg.Header)
	if m.modern() && m.method == methodCallTool {
		setParamHeaders(header, m.raw, r.tools.of(m.name))
	}
	return r.do(newRequest(ctx, http.MethodPost, to, header, m.raw))
}

// get asks for a stream.
func (r *run) get(ctx context.Context, s *session, cursor string) (*http.Response, error) {
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	header := headersFor(s, r.cfg.Header)
	header["Accept"] = []string{typeEvents}
	if cursor != "" {
		header[headerCursor] = []string{cursor}
	}
	return r.do(newRequest(ctx, http.MethodGet, at.url, header, nil))
}

// newRequest makes a request to a URL that does not change.
func newRequest(ctx context.Context, method string, to *url.URL, header http.Header, body []byte) *http.Request {
	req := (&http.Request{
		Method: method, URL: to, Host: to.Host, Header: header, Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if len(body) > 0 {
		req.ContentLength = int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	return req
}

const maxRedirects = 5

// do sends a request, and again where a redirect leads. It needs nothing else
// of what an [http.Client] does.
func (r *run) do(req *http.Request) (*http.Response, error) {
	for hops := 0; ; hops++ {
		resp, err := r.cfg.Transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if hops < maxRedirects {
			if next := redirected(req, resp); next != nil {
				discard(resp)
				req = next
				continue
			}
		}
		if err := decompress(resp); err != nil {
			_ = resp.Body.Close()
			return nil, err
		}
		return resp, nil
	}
}

// redirected is the request that an answer asks for instead, if it keeps
// method, body and origin; every other redirect is an answer.
func redirected(req *http.Request, resp *http.Response) *http.Request {
	switch resp.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if req.Method != http.MethodGet {
			return nil // it would become one
		}
	default:
		return nil
	}
	location := resp.Header.Get("Location")
	to, err := req.URL.Parse(location)
	if location == "" || err != nil || to.User != nil {
		return nil
	}
	from, err := bearer.OriginOf(req.URL)
	origin, errTo := bearer.OriginOf(to)
	if err != nil || errTo != nil || from != origin {
		return nil
	}
	next := req.WithContext(req.Context())
	next.URL, next.Host = to, to.Host
	if req.GetBody != nil {
		next.Body, _ = req.GetBody() // it cannot fail
	}
	return next
}
