// Package everything runs the reference server of the Model Context Protocol
// (@modelcontextprotocol/server-everything), which has all that the protocol
// has, as an ordinary service would: behind something that wants tokens.
//
//	server, err := everything.Start(ctx, everything.StreamableHTTP)
//	defer server.Close()
//	front, err := everything.Protect(server, everything.Config{})
//	defer front.Close()
//	env, err := front.Home(dir, "demo", everything.Fresh)
//	... run "spendonce mcp proxy demo" with that environment ...
//
// The server, the official TypeScript client and mcp-remote are npm packages,
// pinned with all that they need in package-lock.json. They are installed once
// into the user's cache directory.
package everything
