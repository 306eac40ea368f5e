package wire

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Append appends the request as a frame with its newline. [ParseRequest] of
// it gives q back, if q is what its comments say it is; otherwise the frame is
// one that the broker refuses, or one for what the action takes of q.
func (q Request) Append(b []byte) []byte {
	takes := q.Action.takes()
	b = append(b, `{"action":`...)
	b = quote(b, string(q.Action))
	if takes&memberSessionID != 0 {
		b = append(b, `,"session_id":`...)
		b = quote(b, q.SessionID.Reveal())
	}
	b = append(b, `,"runtime_generation":`...)
	b = strconv.AppendUint(b, q.Generation, 10)
	if takes&memberBinding != 0 {
		b = append(b, `,"binding":`...)
		b = q.Binding.append(b)
	}
	if takes&memberToken != 0 {
		b = append(b, `,"token":`...)
		b = quote(b, q.Token.Reveal())
	}
	return append(b, '}', '\n')
}

// Append appends the answer to a request for action, with its newline. An
// action that does not exist is granted nothing, whatever the answer says.
func (a Answer) Append(b []byte, action Action) []byte {
	gives := action.gives()
	if a.Code == "" && gives == 0 {
		a.Code = CodeActionUnknown
	}
	if a.Code != "" {
		b = append(b, `{"ok":false,"code":`...)
		b = quote(b, string(a.Code))
		return append(b, '}', '\n')
	}
	b = append(b, `{"ok":true`...)
	if gives&memberSessionID != 0 {
		b = append(b, `,"session_id":`...)
		b = quote(b, a.SessionID.Reveal())
	}
	if gives&memberGeneration != 0 {
		b = append(b, `,"runtime_generation":`...)
		b = strconv.AppendUint(b, a.Generation, 10)
	}
	if gives&memberToken != 0 {
		b = append(b, `,"token":`...)
		b = quote(b, a.Token.Reveal())
	}
	if gives&memberBinding != 0 {
		b = append(b, `,"binding":`...)
		b = a.Binding.append(b)
	}
	return append(b, '}', '\n')
}

func (v Binding) append(b []byte) []byte {
	b = append(b, `{"compaction_epoch":`...)
	b = strconv.AppendUint(b, v.CompactionEpoch, 10)
	b = append(b, `,"request_epoch":`...)
	b = strconv.AppendUint(b, v.RequestEpoch, 10)
	b = append(b, `,"h_source":`...)
	b = quote(b, v.HSource)
	b = append(b, `,"h_payload":`...)
	b = quote(b, v.HPayload)
	b = append(b, `,"schema_version":`...)
	b = strconv.AppendUint(b, v.SchemaVersion, 10)
	return append(b, '}')
}

// quote appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD,
// and what they were in is another string then: nothing that a rule accepts.
func quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
