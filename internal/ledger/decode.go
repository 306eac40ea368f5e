//go:build linux

package ledger

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
)

// maxNumber is the largest integer that every JSON reader takes as it is. What
// the file may hold is decided here, apart from what a request may: a protocol
// that comes to allow more must not change by itself what an older broker is
// to read.
const maxNumber = 1<<53 - 1

func (s Session) valid() bool {
	return wellFormed(s.ID) && s.Anchor.PID >= 1 && s.Anchor.PID <= math.MaxInt32 &&
		s.Anchor.StartTime <= maxNumber && s.Generation <= maxNumber
}

func (b Binding) valid() bool {
	return b.CompactionEpoch <= maxNumber && b.RequestEpoch <= maxNumber && isDigest(b.HSource) && isDigest(b.HPayload) &&
		b.SchemaVersion >= 1 && b.SchemaVersion <= maxNumber
}

// isDigest reports whether s is 1 to 256 bytes of printable ASCII without
// space.
func isDigest(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 256
}

func canonicalUUID(s string) bool {
	const shape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(s) != len(shape) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		hexDigit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if shape[i] == '-' && c != '-' || shape[i] == 'x' && !hexDigit {
			return false
		}
	}
	return true
}

// parseState reads a whole file: the schema, and every invariant.
func parseState(b []byte, lim limits) (*state, error) {
	r := &reader{dec: jsontext.NewDecoder(bytes.NewReader(b))}
	s := &state{}
	var err error
	var records []tokenRecord
	err = r.object(
		member{"version", func() error {
			n, err := r.number(maxNumber)
			if err == nil && n != 1 {
				err = r.fail("not a version that this program knows")
			}
			return err
		}},
		member{"boot_id", func() error { return r.text(&s.bootID, canonicalUUID, "not a UUID in lower case") }},
		member{"sessions", func() error {
			return r.list(lim.sessions, func() error {
				x, err := r.session()
				s.sessions = append(s.sessions, x)
				return err
			})
		}},
		member{"tokens", func() error {
			return r.list(lim.tokens, func() error {
				t, err := r.token()
				records = append(records, t)
				return err
			})
		}},
	)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, r.fail("more stands behind the state")
	}
	return s, s.complete(records)
}

// tokenRecord is a token before its session is looked up: the order of
// members is free.
type tokenRecord struct {
	key        digest
	session    digest
	generation uint64
	binding    Binding
}

// complete sorts what was read and holds the records against each other.
func (s *state) complete(records []tokenRecord) error {
	slices.SortFunc(s.sessions, func(a, b *session) int { return bytes.Compare(a.key[:], b.key[:]) })
	anchors := map[Anchor]bool{}
	for i, x := range s.sessions {
		if i > 0 && s.sessions[i-1].key == x.key {
			return errors.New("two sessions have one id")
		}
		if anchors[x.Anchor] {
			return fmt.Errorf("two sessions have one anchor, process %d", x.Anchor.PID)
		}
		anchors[x.Anchor] = true
	}
	for n, t := range records {
		i, ok := s.find(t.session)
		if !ok {
			return fmt.Errorf("at /tokens/%d: of no session in this file", n)
		}
		owner := s.sessions[i]
		if t.generation != owner.Generation {
			return fmt.Errorf("at /tokens/%d: not of its session's generation", n)
		}
		at, dup := s.findToken(t.key)
		if dup {
			return fmt.Errorf("at /tokens/%d: stands there twice", n)
		}
		s.tokens = slices.Insert(s.tokens, at, newPending(t.key, owner, t.binding))
	}
	return nil
}

func (r *reader) session() (*session, error) {
	var as Session
	var id string
	err := r.object(
		member{"session_id", func() error { return r.text(&id, wire.ValidID, "not 256 bits in base64url") }},
		member{"anchor_pid", func() error {
			n, err := r.number(math.MaxInt32)
			as.Anchor.PID = int(n)
			if err == nil && n == 0 {
				err = r.fail("no process has this number")
			}
			return err
		}},
		member{"anchor_starttime", func() (err error) { as.Anchor.StartTime, err = r.number(maxNumber); return err }},
		member{"uid", func() error { n, err := r.number(math.MaxUint32); as.UID = uint32(n); return err }},
		member{"gid", func() error { n, err := r.number(math.MaxUint32); as.GID = uint32(n); return err }},
		member{"runtime_generation", func() (err error) { as.Generation, err = r.number(maxNumber); return err }},
	)
	as.ID = secret.New(id)
	return newSession(as), err
}

func (r *reader) token() (tokenRecord, error) {
	var t tokenRecord
	err := r.object(
		member{"token_sha256", func() error {
			var s string
			err := r.text(&s, isLowerHex, "not 64 lower-case hex digits")
			_, _ = hex.Decode(t.key[:], []byte(s))
			return err
		}},
		member{"session_id", func() error {
			var id string
			err := r.text(&id, wire.ValidID, "not 256 bits in base64url")
			t.session = digestOf(secret.New(id))
			return err
		}},
		member{"runtime_generation", func() (err error) { t.generation, err = r.number(maxNumber); return err }},
		member{"binding", func() (err error) { t.binding, err = r.binding(); return err }},
		member{"consumed", func() error {
			v, err := r.value('f')
			if err == nil && string(v) != "false" {
				err = r.fail("spent tokens do not stand in the file")
			}
			return err
		}},
	)
	return t, err
}

func (r *reader) binding() (Binding, error) {
	var b Binding
	digestText := func(to *string) func() error {
		return func() error { return r.text(to, isDigest, "not 1 to 256 printable characters without space") }
	}
	err := r.object(
		member{"compaction_epoch", func() (err error) { b.CompactionEpoch, err = r.number(maxNumber); return err }},
		member{"request_epoch", func() (err error) { b.RequestEpoch, err = r.number(maxNumber); return err }},
		member{"h_source", digestText(&b.HSource)},
		member{"h_payload", digestText(&b.HPayload)},
		member{"schema_version", func() (err error) {
			b.SchemaVersion, err = r.number(maxNumber)
			if err == nil && b.SchemaVersion == 0 {
				err = r.fail("not positive")
			}
			return err
		}},
	)
	return b, err
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if !(s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f') {
			return false
		}
	}
	return len(s) == 2*len(digest{})
}
