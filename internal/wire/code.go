package wire

// Code names why a request is refused. It is all that a refused peer learns.
// The empty Code is no refusal.
type Code string

// The codes, in the order in which the broker checks.
const (
	// CodeBusy: too many connections, in all or from one process. The only
	// refusal that waiting helps against.
	CodeBusy Code = "BUSY"
	// CodePeerRefused: the process on the other end cannot be identified, is
	// another user's, or has exited.
	CodePeerRefused Code = "PEER_REFUSED"

	// CodeFrameTooLarge: more than [MaxFrame] bytes and no newline among them.
	CodeFrameTooLarge Code = "FRAME_TOO_LARGE"
	// CodeFrameMultiple: something follows the first newline.
	CodeFrameMultiple Code = "FRAME_MULTIPLE"
	// CodeFrameUnterminated: the stream ended before a newline.
	CodeFrameUnterminated Code = "FRAME_UNTERMINATED"
	// CodeDeadlineExceeded: the stream had not ended by the deadline.
	CodeDeadlineExceeded Code = "DEADLINE_EXCEEDED"
	// CodeFrameMalformed: not the text of one JSON object; see [ParseRequest].
	CodeFrameMalformed Code = "FRAME_MALFORMED"

	// CodeSessionIDForbidden: a register_anchor that names a session.
	CodeSessionIDForbidden Code = "SESSION_ID_FORBIDDEN"
	// CodeActionUnknown: the action is a string, and none of the four.
	CodeActionUnknown Code = "ACTION_UNKNOWN"
	// CodeRequestInvalid: members or values other than the action takes.
	CodeRequestInvalid Code = "REQUEST_INVALID"

	// CodeSessionUnknown: no such session, or its anchor has exited.
	CodeSessionUnknown Code = "SESSION_UNKNOWN"
	// CodeNotDescendant: the caller does not descend from the anchor.
	CodeNotDescendant Code = "NOT_DESCENDANT"
	// CodeAncestryChanged: the process tree changed while it was walked;
	// asking again is safe.
	CodeAncestryChanged Code = "ANCESTRY_CHANGED"
	// CodeGenerationStale: lower than the registered generation.
	CodeGenerationStale Code = "GENERATION_STALE"
	// CodeGenerationUnknown: higher than the registered generation.
	CodeGenerationUnknown Code = "GENERATION_UNKNOWN"
	// CodeTokenMalformed: no spelling of a token; see [ValidID].
	CodeTokenMalformed Code = "TOKEN_MALFORMED"
	// CodeTokenReplay: not pending for this session and generation, whether
	// consumed, revoked, another's or never minted.
	CodeTokenReplay Code = "TOKEN_REPLAY"
	// CodeTokenCapacity: as many tokens are pending as may be.
	CodeTokenCapacity Code = "TOKEN_CAPACITY"
	// CodeSessionCapacity: as many sessions are registered as may be.
	CodeSessionCapacity Code = "SESSION_CAPACITY"
	// CodeStateTooLarge: the next state would be over its bound.
	CodeStateTooLarge Code = "STATE_TOO_LARGE"
	// CodeStateUnavailable: the next state could not be made durable.
	CodeStateUnavailable Code = "STATE_UNAVAILABLE"
)
