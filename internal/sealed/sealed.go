// Package sealed is the form of a file that is encrypted at rest: one JSON
// array that says under which key it is sealed and holds the rest as
// authenticated ciphertext.
//
//	["spendonce-sealed",1,{"kind":"keyring","id":"0f…"},"…"]
//	["spendonce-sealed",1,{"kind":"age","id":"0f…","wrapped":"…"},"…"]
//
// It is an array because a file in plain is an object: a program that knows
// nothing of sealed files finds such a file damaged and leaves it alone. In an
// object it would see records that it does not know, and write its own beside
// them.
//
// The last string is base64 of a nonce of 12 bytes, the ciphertext of AES-256-GCM and its
// tag of 16 bytes. Version, role of the file, kind, id and wrapped key are
// authenticated with it: a sealed file that is put in another one's place, or
// whose header is edited, does not open. That an older version of the same
// file was put back is not seen.
//
// There is one way to write a given content, byte for byte, and no other is
// read. No error holds a byte of the file.
package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Ref names the key of a file, as its header does.
type Ref struct {
	Kind    string // where the key is to be had: lower-case letters
	ID      string // of the key: see [Key.ID]
	Wrapped []byte // the key itself, encrypted; empty where it is kept elsewhere
}

// String names the key for messages: kind and the start of the id.
func (r Ref) String() string { return r.Kind + " key " + r.ID[:min(len(r.ID), 8)] }

// File is a sealed file that was parsed and not yet opened.
type File struct {
	Ref  Ref
	data []byte // nonce, ciphertext, tag
}

// The elements of the array, up to what varies.
const (
	label   = "spendonce-sealed"
	magic   = `["` + label + `",`
	version = "1"
	toKind  = `,{"kind":"`
	toID    = `","id":"`
	toWrap  = `","wrapped":"`
	toData  = `"},"`
	end     = "\"]\n"
)

const (
	overhead = 12 + 16 // nonce and tag
	maxKind  = 16
)

// MaxWrapped bounds [Ref.Wrapped].
const MaxWrapped = 64 << 10

var (
	// ErrFormat: the bytes are no sealed file, or not a whole one.
	ErrFormat = errors.New("not a whole sealed file")
	// ErrVersion: a newer program sealed the file.
	ErrVersion = errors.New("sealed by a newer version of this program")
	// ErrAltered: the content or the header is not what was sealed, or it was
	// sealed as another file.
	ErrAltered = errors.New("not what was sealed")
	// ErrKey: the key is not the one that the file names.
	ErrKey = errors.New("another key than the file names")
)

// Is reports whether the bytes claim to be a sealed file. No file in plain
// does: it is an object.
func Is(b []byte) bool { return bytes.HasPrefix(b, []byte(magic)) }

// Parse reads the header. What it accepts is byte for byte what [Seal]
// writes.
func Parse(b []byte) (File, error) {
	r := &reader{rest: b}
	r.literal(magic)
	number := r.run(func(c byte) bool { return c >= '0' && c <= '9' })
	if !r.bad && number != version && number != "" {
		return File{}, ErrVersion
	}
	var f File
	r.literal(toKind)
	f.Ref.Kind = r.run(func(c byte) bool { return c >= 'a' && c <= 'z' })
	r.literal(toID)
	f.Ref.ID = r.run(func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' })
	if bytes.HasPrefix(r.rest, []byte(toWrap)) {
		r.literal(toWrap)
		f.Ref.Wrapped = r.base64()
		r.bad = r.bad || len(f.Ref.Wrapped) == 0 || len(f.Ref.Wrapped) > MaxWrapped
	}
	r.literal(toData)
	f.data = r.base64()
	r.literal(end)
	switch {
	case r.bad, number == "", f.Ref.Kind == "", len(f.Ref.Kind) > maxKind, !IsID(f.Ref.ID), len(f.data) < overhead, len(r.rest) > 0:
		return File{}, fmt.Errorf("%w, at byte %d", ErrFormat, len(b)-len(r.rest))
	}
	return f, nil
}

// reader goes bad at the first surprise and then reads nothing more.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) literal(want string) {
	if r.bad || !bytes.HasPrefix(r.rest, []byte(want)) {
		r.bad = true
		return
	}
	r.rest = r.rest[len(want):]
}

func (r *reader) run(of func(byte) bool) string {
	n := 0
	for !r.bad && n < len(r.rest) && of(r.rest[n]) {
		n++
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

// base64 reads up to the closing quote. Line breaks, which the decoder would
// skip, and bits that stand for nothing are refused.
func (r *reader) base64() []byte {
	n := bytes.IndexByte(r.rest, '"')
	if r.bad || n < 0 || bytes.ContainsAny(r.rest[:n], "\r\n") {
		r.bad = true
		return nil
	}
	b, err := base64.StdEncoding.Strict().AppendDecode(nil, r.rest[:n])
	if err != nil {
		r.bad = true
		return nil
	}
	r.rest = r.rest[n:]
	return b
}

// Open returns what was sealed as that role.
func (f File) Open(role string, key Key) ([]byte, error) {
	if key.ID() != f.Ref.ID {
		return nil, ErrKey
	}
	aead, err := key.aead()
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, f.data, authenticated(f.Ref, role))
	if err != nil {
		return nil, ErrAltered
	}
	return plain, nil
}

// Seal returns the file that holds plain as that role under the key, which ref
// must name.
func Seal(ref Ref, role string, key Key, plain []byte) ([]byte, error) {
	if key.ID() != ref.ID {
		return nil, ErrKey
	}
	aead, err := key.aead()
	if err != nil {
		return nil, err
	}
	data := aead.Seal(nil, nil, plain, authenticated(ref, role)) //nolint:gosec // it makes its nonce itself
	var b strings.Builder
	b.Grow(int(Size(ref, int64(len(plain)))))
	b.WriteString(header(ref))
	b.WriteString(base64.StdEncoding.EncodeToString(data))
	b.WriteString(end)
	sealed := []byte(b.String())
	// A header that cannot be read again must not be written.
	if _, err := Parse(sealed); err != nil {
		return nil, err
	}
	return sealed, nil
}

// Size is how many bytes [Seal] makes of so many.
func Size(ref Ref, plain int64) int64 {
	return int64(len(header(ref))) + (plain+overhead+2)/3*4 + int64(len(end))
}

func header(ref Ref) string {
	wrapped := ""
	if len(ref.Wrapped) > 0 {
		wrapped = toWrap + base64.StdEncoding.EncodeToString(ref.Wrapped)
	}
	return magic + version + toKind + ref.Kind + toID + ref.ID + wrapped + toData
}

// authenticated is everything that stands for the file beside its content,
// each part behind its length.
func authenticated(ref Ref, role string) []byte {
	var b []byte
	for _, part := range []string{label, version, role, ref.Kind, ref.ID, string(ref.Wrapped)} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// aead is AES-256-GCM with a random nonce in front: safe for 2^32 files under
// one key, a write each second for a century.
func (k Key) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher([]byte(k.value.Reveal()))
	if err != nil {
		return nil, ErrKey
	}
	return cipher.NewGCMWithRandomNonce(block)
}
