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
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
)

// maxNumber is the largest integer that every JSON reader takes as it is.
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

// reader walks over the file's tokens. It compares names as raw bytes, wants
// every member exactly once and every value in the one spelling it has. Its
// errors name a place and never what stands there.
type reader struct {
	dec   *jsontext.Decoder
	where []string
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
		member{"session_id", func() error { return r.text(&id, spells256, "not 256 bits in base64url") }},
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
			err := r.text(&id, spells256, "not 256 bits in base64url")
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

// member is one member of an object, and how its value is read.
type member struct {
	name string
	read func() error
}

// object reads an object that has these members, each exactly once.
func (r *reader) object(members ...member) error {
	if r.dec.PeekKind() != '{' {
		return r.fail("not an object")
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.fail("not JSON")
	}
	seen := make([]bool, len(members))
	for r.dec.PeekKind() == '"' {
		raw, err := r.dec.ReadValue()
		if err != nil {
			return r.fail("not JSON, or a member that stands there twice")
		}
		i := slices.IndexFunc(members, func(m member) bool { return string(raw) == `"`+m.name+`"` })
		if i < 0 {
			return r.fail("a member that does not belong there")
		}
		// The decoder has refused it if it stands there twice, also in other
		// spellings.
		seen[i] = true
		r.where = append(r.where, members[i].name)
		if err := members[i].read(); err != nil {
			return err
		}
		r.where = r.where[:len(r.where)-1]
	}
	if t, err := r.dec.ReadToken(); err != nil || t.Kind() != '}' {
		return r.fail("not JSON")
	}
	if i := slices.Index(seen, false); i >= 0 {
		r.where = append(r.where, members[i].name)
		return r.fail("missing")
	}
	return nil
}

// list reads an array of at most limit elements.
func (r *reader) list(limit int, element func() error) error {
	if r.dec.PeekKind() != '[' {
		return r.fail("not an array")
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.fail("not JSON")
	}
	for n := 0; r.dec.PeekKind() == '{'; n++ {
		r.where = append(r.where, strconv.Itoa(n))
		if n == limit {
			return r.fail("more than %d", limit)
		}
		if err := element(); err != nil {
			return err
		}
		r.where = r.where[:len(r.where)-1]
	}
	if t, err := r.dec.ReadToken(); err != nil || t.Kind() != ']' {
		return r.fail("not an array of objects")
	}
	return nil
}

// value reads a value of one kind.
func (r *reader) value(kind jsontext.Kind) (jsontext.Value, error) {
	k := r.dec.PeekKind()
	if k == 't' {
		k = 'f'
	}
	if k != kind {
		return nil, r.fail("of another type")
	}
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.fail("not JSON")
	}
	return v, nil
}

// number reads 0|[1-9][0-9]*, up to limit.
func (r *reader) number(limit uint64) (uint64, error) {
	v, err := r.value('0')
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil || n > limit {
		return 0, r.fail("not an integer from 0 to %d", limit)
	}
	return n, nil
}

// text reads a string that is spelt as we would.
func (r *reader) text(to *string, ok func(string) bool, want string) error {
	v, err := r.value('"')
	if err != nil {
		return err
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil || !ok(string(b)) {
		return r.fail("%s", want)
	}
	if !bytes.Equal(v, appendQuoted(nil, string(b))) {
		return r.fail("spelt with escapes that it does not need")
	}
	*to = string(b)
	return nil
}

// fail says what is wrong and where.
func (r *reader) fail(format string, args ...any) error {
	place := ""
	for _, w := range r.where {
		place += "/" + w
	}
	if place == "" {
		place = "/"
	}
	return fmt.Errorf("at byte %d, %s: "+format, append([]any{r.dec.InputOffset(), place}, args...)...)
}
