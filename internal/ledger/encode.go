//go:build linux

package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
)

// This file is where secrets leave their wrapping: a session id goes into the
// file as it is, a token only as its hash.

// digest is the SHA-256 of a session id or a token: sessions and tokens are
// looked up by it, so that how long a look-up takes tells nothing about them.
type digest [sha256.Size]byte

func digestOf(s secret.Secret) digest { return sha256.Sum256([]byte(s.Reveal())) }

func wellFormed(s secret.Secret) bool { return wire.ValidID(s.Reveal()) }

// newSession prepares a session's record.
func newSession(s Session) *session {
	b := make([]byte, 0, 192)
	b = append(b, `{"session_id":"`...)
	b = append(b, s.ID.Reveal()...)
	b = append(b, `","anchor_pid":`...)
	b = strconv.AppendInt(b, int64(s.Anchor.PID), 10)
	b = append(b, `,"anchor_starttime":`...)
	b = strconv.AppendUint(b, s.Anchor.StartTime, 10)
	b = append(b, `,"uid":`...)
	b = strconv.AppendUint(b, uint64(s.UID), 10)
	b = append(b, `,"gid":`...)
	b = strconv.AppendUint(b, uint64(s.GID), 10)
	b = append(b, `,"runtime_generation":`...)
	b = strconv.AppendUint(b, s.Generation, 10)
	b = append(b, '}')
	return &session{Session: s, key: digestOf(s.ID), record: b}
}

// newPending prepares a token's record.
func newPending(key digest, owner *session, binding Binding) *pending {
	b := make([]byte, 0, 352+len(binding.HSource)+len(binding.HPayload))
	b = append(b, `{"token_sha256":"`...)
	b = hex.AppendEncode(b, key[:])
	b = append(b, `","session_id":"`...)
	b = append(b, owner.ID.Reveal()...)
	b = append(b, `","runtime_generation":`...)
	b = strconv.AppendUint(b, owner.Generation, 10)
	b = append(b, `,"binding":{"compaction_epoch":`...)
	b = strconv.AppendUint(b, binding.CompactionEpoch, 10)
	b = append(b, `,"request_epoch":`...)
	b = strconv.AppendUint(b, binding.RequestEpoch, 10)
	b = append(b, `,"h_source":`...)
	b = appendQuoted(b, binding.HSource)
	b = append(b, `,"h_payload":`...)
	b = appendQuoted(b, binding.HPayload)
	b = append(b, `,"schema_version":`...)
	b = strconv.AppendUint(b, binding.SchemaVersion, 10)
	b = append(b, `},"consumed":false}`...)
	return &pending{key: key, owner: owner, binding: binding, record: b}
}

// appendQuoted appends the one spelling of a JSON string that the file uses.
func appendQuoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // an error tells of bad UTF-8: what comes here is ASCII
	return b
}

const (
	beforeBootID   = `{"version":1,"boot_id":"`
	beforeSessions = `","sessions":[`
	beforeTokens   = `],"tokens":[`
	afterTokens    = "]}\n"
)

// appendState appends the whole file.
func appendState(b []byte, s *state) []byte {
	b = append(b, beforeBootID...)
	b = append(b, s.bootID...)
	b = append(b, beforeSessions...)
	for i, x := range s.sessions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, x.record...)
	}
	b = append(b, beforeTokens...)
	for i, p := range s.tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, p.record...)
	}
	return append(b, afterTokens...)
}

// size is how long the file of s is.
func (s *state) size() int {
	n := len(beforeBootID) + len(s.bootID) + len(beforeSessions) + len(beforeTokens) + len(afterTokens)
	for _, x := range s.sessions {
		n += len(x.record)
	}
	for _, p := range s.tokens {
		n += len(p.record)
	}
	return n + max(0, len(s.sessions)-1) + max(0, len(s.tokens)-1)
}
