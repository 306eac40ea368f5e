// Package mcpproxy puts a remote MCP server in front of a client that speaks
// over standard input and output (Model Context Protocol, revisions
// 2024-11-05 to 2026-07-28).
//
// A [Proxy] carries messages between two framings: a line of JSON each on the
// client's side, HTTP requests, answers and event streams on the server's. It
// looks at no more of a message than its way needs, and passes it on as it
// came, but for line ends between its tokens. How a request gets its token is
// the [http.RoundTripper]'s affair, which is a bearer.Transport in the
// program.
//
// message.go, outline.go, lines.go, events.go, header.go, params.go and judge.go
// are pure: bytes and values in, values out. proxy.go, call.go, request.go, crew.go,
// session.go, listen.go and legacy.go do what they say.
package mcpproxy
