//go:build linux

package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// reader walks over the file's tokens. It compares names as raw bytes, wants
// every member exactly once and every value in the one spelling it has. Its
// errors name a place and never what stands there.
type reader struct {
	dec   *jsontext.Decoder
	where []string
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
