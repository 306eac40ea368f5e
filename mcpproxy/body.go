package mcpproxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// isType reports whether an answer says that its body is of a media type.
func isType(resp *http.Response, want string) bool {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && t == want
}

// decompress makes a body readable that was compressed though nobody asked
// for it. What is read of it is bounded like any other body.
func decompress(resp *http.Response) error {
	switch strings.ToLower(resp.Header.Get("Content-Encoding")) {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		resp.Body = &unzipped{under: resp.Body}
		return nil
	}
	return unanswered("encoding", "the server answered in a compression that was not asked for and is not known")
}

// unzipped reads a gzip stream, whose header may come late.
type unzipped struct {
	under io.ReadCloser
	gzip  *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.gzip == nil {
		z, err := gzip.NewReader(u.under)
		if err != nil {
			return 0, err
		}
		u.gzip = z
	}
	return u.gzip.Read(p)
}

func (u *unzipped) Close() error { return u.under.Close() }

const (
	refusalLimit = 1 << 20
	discardLimit = 64 << 10
	// refusalTime is how long a server has for what it says beside a refusal,
	// or where nobody listens.
	refusalTime = 2 * time.Second
)

// keepBody reads the body of a refusal, so that it can be read again.
func keepBody(resp *http.Response) []byte {
	var b bytes.Buffer
	shortly(resp, func() { _, _ = io.CopyN(&b, resp.Body, refusalLimit) })
	resp.Body = io.NopCloser(bytes.NewReader(b.Bytes()))
	return b.Bytes()
}

// discard ends an answer, whose connection serves again if it is short.
func discard(resp *http.Response) {
	if resp.StatusCode == http.StatusOK && isType(resp, typeEvents) {
		_ = resp.Body.Close()
		return
	}
	shortly(resp, func() { _, _ = io.CopyN(io.Discard, resp.Body, discardLimit) })
}

// shortly reads a body for a short while at most, and closes it.
func shortly(resp *http.Response, read func()) {
	late := time.AfterFunc(refusalTime, func() { _ = resp.Body.Close() })
	read()
	late.Stop()
	_ = resp.Body.Close()
}
