package wire

import "github.com/spendonce/spendonce/internal/secret"

// ParseRequest reads a frame as [ReadFrame] returns it, or says with one code
// why it is none; the Request is zero then. The whole frame is read before
// anything in it is judged, and the first of these rules that it breaks names
// the code:
//
//   - FRAME_MALFORMED: the frame is one JSON object (RFC 8259) in UTF-8, from
//     its first byte to its last, without a byte order mark and without
//     anything before or after the braces. No string holds half a surrogate
//     pair; no object, at any level, has two names that are equal once they
//     are unescaped. Nesting of more than 10,000 levels is malformed too: no
//     reader is asked to follow it.
//   - SESSION_ID_FORBIDDEN: a register_anchor has no session_id, whatever its
//     value is.
//   - ACTION_UNKNOWN: an action that is a string is one of the four.
//   - REQUEST_INVALID: the members are exactly those that [Request] shows for
//     the action, of those types, within the bounds stated there and at
//     [Binding]. A number is 0 or digits without a leading zero.
//
// A name is the bytes it was sent with: one that is escaped, or that differs
// in case or by Unicode folding, is another name. So an escaped session_id in
// a register_anchor is an unknown member, REQUEST_INVALID, as an escaped action
// is a missing one; neither is ever taken for the name it resembles. Values
// may be escaped.
func ParseRequest(frame []byte) (Request, Code) {
	if len(frame) == 0 || frame[0] != '{' || frame[len(frame)-1] != '}' {
		return Request{}, CodeFrameMalformed
	}
	var (
		w          = startWalk(frame)
		seen       members
		invalid    bool
		action     []byte
		session    []byte
		token      []byte
		generation uint64
		binding    binding
	)
	defer w.finish()
	w.enter()
	for w.more() {
		var ok bool
		switch string(w.raw()) {
		case `"action"`:
			if action, ok = unquote(w.raw()); ok {
				seen |= memberAction
			}
		case `"session_id"`:
			seen |= memberSessionID
			session, ok = unquote(w.raw())
		case `"runtime_generation"`:
			seen |= memberGeneration
			generation, ok = integer(w.raw())
		case `"binding"`:
			seen |= memberBinding
			ok = binding.read(w)
		case `"token"`:
			seen |= memberToken
			token, ok = unquote(w.raw())
		default:
			w.raw()
		}
		invalid = invalid || !ok
	}
	if !w.end() {
		return Request{}, CodeFrameMalformed
	}

	takes := Action(action).takes()
	switch {
	case seen&memberAction == 0:
		return Request{}, CodeRequestInvalid
	case Action(action) == RegisterAnchor && seen&memberSessionID != 0:
		return Request{}, CodeSessionIDForbidden
	case takes == 0:
		return Request{}, CodeActionUnknown
	case invalid || seen != takes:
		return Request{}, CodeRequestInvalid
	}
	return Request{
		Action:     known(action),
		SessionID:  secret.New(string(session)),
		Generation: generation,
		Binding:    binding.value(),
		Token:      secret.New(string(token)),
	}, ""
}

// known returns the constant that a spells, so that no copy is made of it.
func known(a []byte) Action {
	for _, action := range [...]Action{RegisterAnchor, Authenticate, MintToken, ConsumeToken} {
		if string(a) == string(action) {
			return action
		}
	}
	return ""
}

// binding is a Binding whose texts are still bytes of the frame.
type binding struct {
	compactionEpoch, requestEpoch, schemaVersion uint64
	hSource, hPayload                            []byte
}

// read reads the next value, and reports whether it is a binding.
func (b *binding) read(w *walk) bool {
	if !w.enter() {
		w.raw()
		return false
	}
	valid, count := true, 0
	for w.more() {
		var ok bool
		switch string(w.raw()) {
		case `"compaction_epoch"`:
			b.compactionEpoch, ok = integer(w.raw())
		case `"request_epoch"`:
			b.requestEpoch, ok = integer(w.raw())
		case `"h_source"`:
			b.hSource, ok = digest(w.raw())
		case `"h_payload"`:
			b.hPayload, ok = digest(w.raw())
		case `"schema_version"`:
			b.schemaVersion, ok = integer(w.raw())
			ok = ok && b.schemaVersion > 0
		default:
			w.raw()
		}
		valid = valid && ok
		count++
	}
	// All of them were known, and none comes twice.
	return valid && count == 5
}

func (b *binding) value() Binding {
	return Binding{
		CompactionEpoch: b.compactionEpoch,
		RequestEpoch:    b.requestEpoch,
		HSource:         string(b.hSource),
		HPayload:        string(b.hPayload),
		SchemaVersion:   b.schemaVersion,
	}
}
