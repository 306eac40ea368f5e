//go:build linux

package conformance

import (
	"fmt"
	"strconv"
	"strings"
)

// Requests are put together from the text of their members, so that each can
// be left out, misspelt or sent twice.

// frame is a request with these members.
func frame(members ...string) string { return "{" + strings.Join(members, ",") + "}\n" }

func action(name string) string { return `"action":"` + name + `"` }

func generation(n uint64) string { return `"runtime_generation":` + strconv.FormatUint(n, 10) }

func sessionID(id string) string { return `"session_id":"` + id + `"` }

func token(text string) string { return `"token":"` + text + `"` }

// bound is the member that holds a binding with these members.
func bound(members ...string) string { return `"binding":{` + strings.Join(members, ",") + "}" }

// plain are the members of a binding like any other.
func plain() []string {
	return []string{
		`"compaction_epoch":1`, `"request_epoch":7`, `"h_source":"sha256:0f1e"`, `"h_payload":"sha256:9c2d"`, `"schema_version":1`,
	}
}

// session is an anchor's session as a client knows it.
type session struct {
	id         string
	generation uint64
}

func register(gen uint64) string { return frame(action("register_anchor"), generation(gen)) }

// members are those that authenticate a request for the action.
func (s session) members(name string) []string {
	return []string{action(name), sessionID(s.id), generation(s.generation)}
}

func (s session) authenticate() string { return frame(s.members("authenticate")...) }

func (s session) mint() string { return s.mintFor(plain()...) }

func (s session) mintFor(b ...string) string {
	return frame(append(s.members("mint_token"), bound(b...))...)
}

func (s session) consume(tok string) string {
	return frame(append(s.members("consume_token"), token(tok))...)
}

// at is the same session, spoken of with another generation.
func (s session) at(gen uint64) session { return session{s.id, gen} }

// alphabet is that of base64url.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// misspelling says what is wrong with a session id or token, or "": 43
// characters of base64url for 256 bits, the last two bits of 258 zero.
func misspelling(id string) string {
	if len(id) != 43 {
		return fmt.Sprintf("%d characters long", len(id))
	}
	for i := range len(id) {
		at := strings.IndexByte(alphabet, id[i])
		switch {
		case at < 0:
			return fmt.Sprintf("character %d is not of base64url", i+1)
		case i == 42 && at%4 != 0:
			return "its last character is not the canonical one"
		}
	}
	return ""
}

// never is a well-formed session id or token that nobody ever made.
func never() string { return strings.Repeat("never", 8) + "-oA" }

// respelt is the same value, with another last character that a lenient
// decoder reads alike.
func respelt(id string) string {
	last := strings.IndexByte(alphabet, id[42])
	return id[:42] + alphabet[last+1:last+2]
}

// without returns the list less the element at i.
func without(list []string, i int) []string {
	return append(append([]string{}, list[:i]...), list[i+1:]...)
}

// with returns the list with another element at i.
func with(list []string, i int, element string) []string {
	changed := append([]string{}, list...)
	changed[i] = element
	return changed
}

// and returns the list with more elements after it.
func and(list []string, more ...string) []string { return append(append([]string{}, list...), more...) }
