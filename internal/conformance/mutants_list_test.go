//go:build linux

package conformance_test

// mutants are brokers with one fault each, and the checks meant to see it.
// Others may see it too.
var mutants = []struct {
	fault string
	seen  []string
}{
	// Place.
	{"directory for everybody", []string{"the socket's directory is ours and gives nobody else anything"}},
	{"socket for everybody", []string{"the socket is ours and gives nobody else anything"}},
	{"listens as another user", []string{"the process that listens runs as this user"}},

	// Frame.
	{"wants lines to end as in HTTP", []string{"an object, a newline and end of file are a request"}},
	{"needs a whole request in one piece", []string{
		"a request may come in many pieces",
		"nesting of 30,000 levels is refused",
	}},
	{"knows compact JSON only", []string{"spaces and tabs between the members change nothing"}},
	{"limit one too small", []string{
		"a request of exactly 65,536 bytes is carried out",
		"a request of exactly 65,536 bytes is judged by its content",
		"65,536 bytes without a newline and then end of file are unterminated",
	}},
	{"limit one too large", []string{"a request of 65,537 bytes is refused", "too large comes before malformed"}},
	{"no limit", []string{"a request of 65,537 bytes is refused", "a mebibyte without a newline is refused, though its end is never seen"}},
	{"does without the newline", []string{
		"65,536 bytes without a newline and then end of file are unterminated",
		"end of file without a byte before it is refused",
		"a request without its newline is refused",
		"half a request is refused",
		"unterminated comes before malformed",
	}},
	{"says nothing at end of file", []string{"end of file without a byte before it is refused", "half a request is refused"}},
	{"reads the first of two", []string{
		"two requests in one write are refused",
		"a second request in a write of its own is refused",
		"a second request 100 ms later is refused",
		"a single byte behind the newline is refused, whatever it is",
		"one byte behind 65,536 bytes that end with a newline is a second request",
		"a newline inside the object ends the request",
		"the first of two requests is not carried out",
		"multiple comes before malformed",
	}},
	{"allows blanks behind the newline", []string{
		"a single byte behind the newline is refused, whatever it is",
		"one byte behind 65,536 bytes that end with a newline is a second request",
	}},
	{"does not wait for the half-close", []string{
		"a second request 900 ms later is refused",
		"a client that never half-closes gets no ok",
		"a peer that exited before its request was complete is refused",
		"a peer that exited and waits to be reaped is refused",
	}},
	{"grants at the deadline", []string{
		"a client that never half-closes gets no ok",
		"a registration that is not half-closed changes nothing",
		"a consumption that is not half-closed leaves the token pending",
	}},
	{"carries out before it has read all", []string{
		"the first of two requests is not carried out",
		"a registration that is not half-closed changes nothing",
		"a consumption that is not half-closed leaves the token pending",
	}},
	{"no deadline", []string{"a connection on which nothing comes is ended", "half a request and then nothing is ended"}},
	{"sliding deadline", []string{"a byte every 200 ms does not move the deadline"}},
	{"one after the other", []string{"while 100 connections are silent others are answered"}},
	{"a crowd holds up all", []string{
		"while 100 connections are silent others are answered",
		"while 100 clients hold back their half-close others are answered",
	}},
	{"waits for its reader", []string{"while 100 clients do not read their answers others are answered"}},
	{"a drip holds up all", []string{"while a client drips others are answered"}},

	// Decoding.
	{"trims", []string{"nothing stands before the object", "nothing stands between the object and the newline"}},
	{"reads the first value only", []string{"nothing stands between the object and the newline"}},
	{"tolerates broken UTF-8", []string{"bytes that are not UTF-8 are refused, in values and in names"}},
	{"takes any value for an object", []string{"a value that is no object is refused"}},
	{"tolerates lax JSON", []string{
		"what RFC 8259 does not allow is refused",
		"numbers that RFC 8259 does not allow are refused",
		"malformed comes before a forbidden session id",
		"malformed comes before an unknown action",
	}},
	{"tolerates half pairs", []string{"half a surrogate pair is refused, in values and in names"}},
	{"the last of two wins", []string{
		"a member that comes twice is refused, with the same value too",
		"two names that are the same once unescaped are refused",
		"unknown members that come twice are refused, on any level",
		"malformed at the end comes before invalid at the beginning",
	}},
	{"duplicates only as written", []string{"two names that are the same once unescaped are refused"}},
	{"duplicates only on top", []string{
		"a member that comes twice is refused, with the same value too",
		"unknown members that come twice are refused, on any level",
	}},
	{"judges the shape while it reads", []string{
		"malformed comes before a forbidden session id",
		"malformed comes before an unknown action",
		"malformed at the end comes before invalid at the beginning",
	}},
	{"forgives an empty session id", []string{"register_anchor with a session_id is refused, whatever its value"}},
	{"counts members first", []string{
		"register_anchor with a session_id is told so, whatever else is wrong",
		"an action that is none of the four is refused",
		"an unknown action is told so, whatever else is wrong",
	}},
	{"trims actions", []string{"an action that is none of the four is refused"}},
	{"takes any action for a word", []string{"an action that is missing or no string is an invalid request"}},
	{"takes null for nothing", []string{"an action that is missing or no string is an invalid request"}},
	{"tolerates more and less", []string{
		"a request that lacks a member is refused",
		"a request with another member is refused",
		"a caller that names its own identity is refused",
		"nesting beyond binding is refused",
	}},
	{"folds names", []string{"a name in another case is another name", "a name that only folding makes equal is another name"}},
	{"unescapes names", []string{"a name with an escape in it is another name"}},
	{"tolerates other types", []string{"a value of another type is refused, null always"}},
	{"takes any number", []string{"an integer that is written in any other way is refused"}},
	{"numbers of 32 bits", []string{"2^53 - 1 is a number", "the bounds of a binding are within it"}},
	{"takes values as they are written", []string{"escapes in values are resolved"}},

	// Register.
	{"short ids", []string{"a new anchor gets a session id of 256 bits in base64url", "a token is 256 bits in base64url"}},
	{"one session for all", []string{"two anchors get two sessions", "a descendant that registers gets a session of its own"}},
	{"forgets whom it registered", []string{
		"the same generation again gets the same session",
		"32 first registrations of one process at the same time get one session",
		"a higher generation keeps the session id",
	}},
	{"registering again empties the session", []string{"the same generation again leaves the tokens pending"}},
	{"a new generation has a new id", []string{"a higher generation keeps the session id"}},
	{"generations stay", []string{
		"a higher generation keeps the session id",
		"a child that the anchor started after a generation may act for it",
	}},
	{"tokens survive generations", []string{
		"a higher generation deletes the session's tokens",
		"a token of an earlier generation is a replay",
		"a higher generation makes room",
	}},
	{"a new generation empties all sessions", []string{
		"a higher generation leaves the tokens of other sessions pending",
		"a nested anchor neither ends nor raises nor empties the outer session",
	}},
	{"raises in two steps", []string{
		"generation and tokens change in one step: no attempt meanwhile finds one without the other",
	}},
	{"generations go down", []string{"a lower generation is refused and changes nothing"}},
	{"a lower generation empties the session", []string{"a lower generation is refused and changes nothing"}},
	{"nested anchors join", []string{
		"a descendant that registers gets a session of its own",
		"a nested anchor and its children may still act for the outer session",
		"the outer anchor may not act for the inner session",
		"a nested anchor's session does not open the outer one's token",
	}},
	{"nested anchors end the outer session", []string{
		"a nested anchor neither ends nor raises nor empties the outer session",
		"the outer session survives the end of a nested anchor",
	}},
	{"knows anchors by what they execute", []string{"an anchor that executes another program stays the anchor"}},
	{"authenticating empties the session", []string{"authenticating changes nothing"}},
	{"serves old generations", []string{
		"each request with an older generation is refused",
		"after a new generation the old one is refused to descendants too",
		"a stale generation comes before the token's spelling",
	}},
	{"serves generations to come", []string{
		"each request with a generation that was not registered is refused",
		"an unknown generation comes before a replay",
		"no refusal but that for want of room hides it: generation and descent come first",
	}},

	// Descent.
	{"looks at the parent only", []string{
		"the anchor, its child and its grandchild may act for the session",
		"a process whose parent has exited no longer descends",
		"a descendant is told its session and generation",
		"what one process of the tree mints another may consume",
	}},
	{"believes command names", []string{"a command name that looks like other fields of /proc leads nobody astray"}},
	{"goes up four steps", []string{"a process eight steps below the anchor may too"}},
	{"serves only whom it saw in time", []string{
		"a process eight steps below the anchor may too",
		"an orphan that a subreaper in the tree takes over still descends",
	}},
	{"takes everybody for a descendant", []string{
		"the anchor's parent is refused, whatever it asks",
		"a process beside the anchor is refused, whatever it asks",
		"another anchor and its child are refused, whatever they ask",
		"a process whose parent has exited no longer descends",
		"a process outside the tree that knows session and token is refused, and the token stays pending",
	}},
	{"a stranger's attempt spends the token", []string{
		"a stranger's attempt leaves the token pending",
		"a process outside the tree that knows session and token is refused, and the token stays pending",
	}},
	{"sessions outlive their anchors", []string{"a session ends with its anchor", "an anchor that waits to be reaped has exited"}},
	{"takes zombies for living anchors", []string{"an anchor that waits to be reaped has exited"}},
	{"sessions are inherited", []string{"what was the child of an anchor that exited registers as any other"}},
	{"takes session ids in any spelling", []string{"a session id that was never made, or is spelt otherwise, is unknown"}},
	{"hides unknown sessions", []string{
		"a session id that was never made, or is spelt otherwise, is unknown",
		"an unknown session comes before descent",
	}},
	{"serves only its own pid namespace", []string{"a descendant in a pid namespace of its own is served"}},

	// Peer.
	{"takes every user", []string{"a process of another user is refused, whatever it asks"}},
	{"does not ask who writes", []string{
		"a process of the tree that writes on a connection it was passed is refused",
		"a child that writes on a connection it inherited is refused",
		"a stranger that writes on a descendant's connection is refused",
		"a descendant that writes on a stranger's connection is refused",
		"a refused writer's request has no effect",
	}},
	{"registers for whoever writes", []string{"a process that registers on a connection it was passed is refused"}},
	{"asks only for the first writer", []string{"a request that two processes wrote is refused, whoever began"}},
	{"takes descriptors", []string{"a request that brings a descriptor is refused, with whatever piece it comes"}},
	{"serves the dead", []string{
		"a peer that exited before its request was complete is refused",
		"a peer that exited and waits to be reaped is refused",
	}},
	{"takes zombies for living peers", []string{"a peer that exited and waits to be reaped is refused"}},

	// Mint and capacity.
	{"one token for one binding", []string{"32 tokens for the same binding are 32 tokens, each good once"}},
	{"digests of 255", []string{"the bounds of a binding are within it"}},
	{"takes any digest", []string{"digests outside their bounds are refused"}},
	{"takes any version", []string{"schema_version 0 is refused"}},
	{"room for 255", []string{"256 tokens may be pending, one more is refused, and all 256 are still good"}},
	{"room for more", []string{"256 tokens may be pending, one more is refused, and all 256 are still good"}},
	{"counts each session by itself", []string{
		"256 tokens may be pending, one more is refused, and all 256 are still good",
		"consuming one makes room for one, for whatever session",
	}},
	{"a refusal for want of room makes room", []string{
		"256 tokens may be pending, one more is refused, and all 256 are still good",
	}},
	{"room never comes back", []string{"consuming one makes room for one, for whatever session"}},
	{"keeps the tokens of the dead", []string{"the tokens of an anchor that exited make room"}},

	// Consume.
	{"replays are granted", []string{
		"a token is consumed once and is a replay ever after",
		"of 64 attempts at the same time exactly one is granted",
		"of 64 attempts by four processes at the same time exactly one is granted",
		"consumption is final though nobody reads the answer",
	}},
	{"looks and deletes in two steps", []string{
		"of 64 attempts at the same time exactly one is granted",
		"of 64 attempts by four processes at the same time exactly one is granted",
	}},
	{"spends a little later", []string{"consumption is final though nobody reads the answer"}},
	{"gives back what nobody fetched", []string{"consumption is final though the client is gone before the answer"}},
	{"bindings lose precision", []string{"the answer has the binding that was minted, to the last bit"}},
	{"tells the unknown from the spent", []string{"a token that was never minted is a replay"}},
	{"any session's token will do", []string{
		"a token of another session is a replay and stays pending",
		"a nested anchor's session does not open the outer one's token",
	}},
	{"a foreign attempt spends the token", []string{"a token of another session is a replay and stays pending"}},
	{"takes tokens in any spelling", []string{"a token in another spelling is malformed, and the right one stays pending"}},

	// Order.
	{"judges content first", []string{
		"too large comes before malformed",
		"multiple comes before malformed",
		"unterminated comes before malformed",
	}},
	{"looks at content at once", []string{"the deadline comes before malformed: content is judged at end of file"}},
	{"judges the shape last", []string{
		"invalid comes before an unknown session",
		"invalid comes before descent",
		"an invalid binding comes before a stale generation",
	}},
	{"judges the writer first", []string{"a malformed frame comes before its writer", "an invalid request comes before its writer"}},
	{"judges the writer last", []string{"the writer comes before an unknown session", "the writer comes before descent"}},
	{"spelling before all", []string{
		"an unknown session comes before the token's spelling",
		"descent comes before the token's spelling",
		"a stale generation comes before the token's spelling",
	}},
	{"generation before descent", []string{"descent comes before a stale generation", "descent comes before an unknown generation"}},
	{"token before generation", []string{
		"a stale generation comes before the token's spelling",
		"an unknown generation comes before a replay",
	}},

	// Limits and answers.
	{"hangs up on a crowd", []string{"300 silent connections of one process are refused each, and others are answered"}},
	{"never forgets a crowd", []string{"a process that was busy is served again afterwards"}},
	{"two newlines", []string{"every answer is one object on one line"}},
	{"no newline", []string{"every answer ends with one newline"}},
	{"tells the reason", []string{"every refusal has ok and code and nothing else"}},
	{"words of its own", []string{"every refusal has a code of the protocol"}},
	{"greets", []string{"every success has the members of its request and nothing else"}},
	{"stays open", []string{"after every answer comes end of file"}},
	{"waits before it writes", []string{"no answer took longer than 5 s"}},
}
