//go:build linux

package lease

import (
	"fmt"

	"github.com/spendonce/spendonce/internal/secret"
)

// Secret is a session id or a token: a string that no printing shows, and
// whose Reveal method gives the value.
type Secret = secret.Secret

// NewSecret wraps a session id or a token that came from elsewhere.
func NewSecret(value string) Secret { return secret.New(value) }

// Session is what a registration gave: an id that the broker made, and the
// generation that the anchor gave it.
type Session struct {
	ID         Secret
	Generation uint64
}

// Binding is the payload a token is minted for. Who consumes the token gets
// it back, and compares.
type Binding struct {
	CompactionEpoch uint64 `json:"compaction_epoch"`
	RequestEpoch    uint64 `json:"request_epoch"`
	HSource         string `json:"h_source"`       // a digest: 1 to 256 bytes of printable ASCII, no space
	HPayload        string `json:"h_payload"`      // likewise
	SchemaVersion   uint64 `json:"schema_version"` // 1 or more
}

// MaxInteger is the largest generation, epoch and schema version: integers
// that every JSON implementation holds exactly.
const MaxInteger = 1<<53 - 1

// Refusal is the broker's no, and why. After it nothing has changed at the
// broker, but for [ErrStateUnavailable], where a mint or consumption may yet
// turn out to have been made durable; never is a token accepted twice.
//
// Compare with errors.Is. A broker of another version may send codes that are
// not listed here.
type Refusal string

// The broker's refusals, by the step that fails.
const (
	ErrBusy               Refusal = "BUSY"                 // too many connections; [Client] has retried
	ErrPeerRefused        Refusal = "PEER_REFUSED"         // another user, another pid namespace, a passed descriptor, a process that exited
	ErrFrameTooLarge      Refusal = "FRAME_TOO_LARGE"      // over 65,536 bytes
	ErrFrameMultiple      Refusal = "FRAME_MULTIPLE"       // bytes after the newline
	ErrFrameUnterminated  Refusal = "FRAME_UNTERMINATED"   // no newline
	ErrDeadlineExceeded   Refusal = "DEADLINE_EXCEEDED"    // too slow; without effect
	ErrFrameMalformed     Refusal = "FRAME_MALFORMED"      // no JSON object
	ErrSessionIDForbidden Refusal = "SESSION_ID_FORBIDDEN" // a registration that names a session
	ErrActionUnknown      Refusal = "ACTION_UNKNOWN"
	ErrRequestInvalid     Refusal = "REQUEST_INVALID"
	ErrSessionUnknown     Refusal = "SESSION_UNKNOWN"    // no such session, or its anchor has exited
	ErrNotDescendant      Refusal = "NOT_DESCENDANT"     // the caller is not the anchor nor below it
	ErrAncestryChanged    Refusal = "ANCESTRY_CHANGED"   // a process on the way to the anchor changed; [Client] has retried
	ErrGenerationStale    Refusal = "GENERATION_STALE"   // a higher one is registered
	ErrGenerationUnknown  Refusal = "GENERATION_UNKNOWN" // higher than the registered one
	ErrTokenMalformed     Refusal = "TOKEN_MALFORMED"
	ErrTokenReplay        Refusal = "TOKEN_REPLAY"      // consumed, revoked, of another session, or never minted
	ErrTokenCapacity      Refusal = "TOKEN_CAPACITY"    // too many pending tokens
	ErrSessionCapacity    Refusal = "SESSION_CAPACITY"  // too many sessions
	ErrStateTooLarge      Refusal = "STATE_TOO_LARGE"   // the broker's file would grow over its bound
	ErrStateUnavailable   Refusal = "STATE_UNAVAILABLE" // the broker could not make the change durable
)

var sentences = map[Refusal]string{
	ErrBusy:               "the broker has too many connections: try again later",
	ErrPeerRefused:        "the broker does not take requests from this process (another user, another pid namespace, or a connection made by somebody else)",
	ErrFrameTooLarge:      "the request is too large",
	ErrFrameMultiple:      "the broker got more than one request",
	ErrFrameUnterminated:  "the broker got half a request",
	ErrDeadlineExceeded:   "the request took too long and had no effect: try again",
	ErrFrameMalformed:     "the broker cannot read the request",
	ErrSessionIDForbidden: "a registration cannot name its session",
	ErrActionUnknown:      "the broker does not know this action: it may be older than this program",
	ErrRequestInvalid:     "the request is not one the broker takes: look at the binding's members",
	ErrSessionUnknown:     "there is no such session, or its anchor has exited: run under 'spendonce lease run'",
	ErrNotDescendant:      "this process does not descend from the session's anchor: 'spendonce lease why' shows the chain",
	ErrAncestryChanged:    "the processes above this one keep changing: try again",
	ErrGenerationStale:    "the session has a higher generation now: this process belongs to an earlier one",
	ErrGenerationUnknown:  "the session has not reached this generation",
	ErrTokenMalformed:     "this is not a token",
	ErrTokenReplay:        "the token is not pending: it was consumed or revoked, or never belonged to this session and generation",
	ErrTokenCapacity:      "too many tokens are pending: consume some, or raise the generation",
	ErrSessionCapacity:    "too many sessions have living anchors",
	ErrStateTooLarge:      "the broker's state would grow over its bound",
	ErrStateUnavailable:   "the broker could not save the change: look at the disk that holds its state directory",
}

// Error says in a sentence what was refused and names the code.
func (r Refusal) Error() string {
	if s := sentences[r]; s != "" {
		return fmt.Sprintf("%s (%s)", s, string(r))
	}
	return fmt.Sprintf("the broker refused with the code %q", string(r))
}

// Retry reports whether the same request may be sent again at once: nothing
// happened, and a moment later it may be granted.
func (r Refusal) Retry() bool { return r == ErrBusy || r == ErrAncestryChanged }
