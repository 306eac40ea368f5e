package mcpproxy

import (
	"encoding/base64"
	"maps"
	"net/http"
	"strings"

	"github.com/spendonce/spendonce/internal/secret"
)

// The names are as [http.CanonicalHeaderKey] writes them: they are set as they
// stand.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerCursor  = "Last-Event-Id"

	typeJSON   = "application/json"
	typeEvents = "text/event-stream"

	// The first revision whose requests say the version in a header.
	versionHeaderSince = "2025-06-18"
	// The one revision in which messages may come in batches.
	versionOfBatches = "2025-03-26"
)

// modern reports whether a message says itself what protocol it speaks
// (revision 2026-07-28 and later): it belongs to no session, is cancelled by
// the end of its request, and its stream cannot be resumed.
func (m *message) modern() bool { return m.version != "" }

// headersOf are the headers that carry a message to its server.
func headersOf(m message, s *session, extra http.Header) http.Header {
	h := headersFor(s, extra)
	h["Content-Type"], h["Accept"] = []string{typeJSON}, []string{typeJSON + ", " + typeEvents}
	switch {
	case m.modern():
		delete(h, headerSession)
		h[headerVersion] = []string{headerValue(m.version)}
		h[headerMethod] = []string{headerValue(m.method)}
		switch m.method {
		case methodCallTool, "prompts/get":
			h[headerName] = []string{headerValue(m.name)}
		case "resources/read":
			h[headerName] = []string{headerValue(m.uri)}
		}
	case m.method == methodInitialize:
		delete(h, headerSession)
		delete(h, headerVersion)
	}
	return h
}

// headersFor are the headers of any request of a session.
func headersFor(s *session, extra http.Header) http.Header {
	h := make(http.Header, 8)
	h["User-Agent"] = []string{"spendonce"}
	maps.Copy(h, extra)
	h["Accept-Encoding"] = []string{"identity"} // events are to come as they are sent
	if s == nil {
		return h
	}
	if !s.id.Empty() {
		h[headerSession] = []string{s.id.Reveal()}
	}
	if s.version >= versionHeaderSince {
		h[headerVersion] = []string{s.version}
	}
	return h
}

// headerValue writes what a header cannot hold as the revision 2026-07-28
// does.
func headerValue(v string) string {
	const begin, end = "=?base64?", "?="
	plain := strings.Trim(v, " \t") == v && !(strings.HasPrefix(v, begin) && strings.HasSuffix(v, end))
	for i := 0; plain && i < len(v); i++ {
		plain = v[i] >= 0x20 && v[i] <= 0x7e || v[i] == '\t'
	}
	if plain {
		return v
	}
	return begin + base64.StdEncoding.EncodeToString([]byte(v)) + end
}

// sessionID is the one that an answer gives; ok is false if no request could
// name it.
func sessionID(h http.Header) (id secret.Secret, ok bool) {
	const longest = 8 << 10
	v := h.Get(headerSession)
	odd := strings.ContainsFunc(v, func(r rune) bool { return r < 0x21 || r > 0x7e })
	return secret.New(v), !odd && len(v) <= longest
}

// canRepeat reports whether a place in a stream can be named to the server:
// there is one, and a header can hold it.
func canRepeat(cursor string) bool {
	return cursor != "" && !strings.ContainsFunc(cursor, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f })
}

// versionOf is a protocol version that can be sent, "" if that one cannot.
func versionOf(v string) string {
	const longest = 64
	if len(v) > longest || strings.ContainsFunc(v, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return ""
	}
	return v
}
