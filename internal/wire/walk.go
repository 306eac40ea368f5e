package wire

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// A walk goes over the tokens of one JSON text and gives every name and value
// as the bytes it was written with: the library judges the grammar, UTF-8,
// surrogates and duplicate names at any level, we judge the rest. Once the
// text turns out broken, all that follows is empty.
type walk struct {
	text   []byte
	in     bytes.Buffer
	dec    jsontext.Decoder
	broken bool
}

// walks are used again for the room that their decoder has for names, without
// which most of the time of reading a request goes into making it.
var walks = sync.Pool{New: func() any { return new(walk) }}

// startWalk begins at the start of text, which stays as it is until finish.
func startWalk(text []byte) *walk {
	w, _ := walks.Get().(*walk)
	w.reset(text)
	return w
}

// finish gives the walk up, and lets go of the text.
func (w *walk) finish() {
	w.reset(nil)
	walks.Put(w)
}

func (w *walk) reset(text []byte) {
	w.text, w.broken = text, false
	w.in = *bytes.NewBuffer(text) // of which the decoder makes no copy
	w.dec.Reset(&w.in)
}

// enter goes into the value that comes next if it is an object.
func (w *walk) enter() bool {
	if w.broken || w.dec.PeekKind() != jsontext.KindBeginObject {
		return false
	}
	return w.token()
}

// more reports whether the object has one more member, and leaves it if not.
func (w *walk) more() bool {
	if w.broken || w.dec.PeekKind() == jsontext.KindEndObject {
		w.token()
		return false
	}
	return true
}

// token steps over one brace.
func (w *walk) token() bool {
	if !w.broken {
		_, err := w.dec.ReadToken()
		w.broken = err != nil
	}
	return !w.broken
}

// raw reads the next name, or the next value with all that is in it, and
// returns its source; nil if there is none.
func (w *walk) raw() []byte {
	if w.broken {
		return nil
	}
	v, err := w.dec.ReadValue()
	if err != nil {
		w.broken = true
		return nil
	}
	// What the decoder returned holds until it is called again; the text that
	// it came from stays.
	end := int(w.dec.InputOffset())
	return w.text[end-len(v) : end]
}

// end reports whether the text is over, and was sound.
func (w *walk) end() bool {
	if w.broken {
		return false
	}
	_, err := w.dec.ReadToken()
	return errors.Is(err, io.EOF)
}

// unquote returns what the source of a JSON string says, and false if raw is the
// source of another value. The bytes are those of raw where nothing is escaped.
func unquote(raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	return s, err == nil
}

// integer returns the number whose source is raw, if it is written in digits
// alone, without sign, fraction or exponent, and at most MaxInteger. (JSON has
// no leading zeros.)
func integer(raw []byte) (uint64, bool) {
	if len(raw) == 0 || len(raw) > len("9007199254740991") {
		return 0, false
	}
	var n uint64
	for _, c := range raw {
		if c < '0' || '9' < c {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n <= MaxInteger
}

// digest returns the text of h_source or h_payload.
func digest(raw []byte) ([]byte, bool) {
	s, ok := unquote(raw)
	if !ok || len(s) == 0 || len(s) > maxDigest {
		return nil, false
	}
	for _, c := range s {
		if c <= ' ' || '~' < c {
			return nil, false
		}
	}
	return s, true
}
