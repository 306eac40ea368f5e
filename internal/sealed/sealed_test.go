package sealed_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/sealed"
)

const (
	role    = "store"
	content = `{"box":{"kind":"oidc","refreshToken":"R-canary-0000000000"}}`
)

func refs(key sealed.Key) map[string]sealed.Ref {
	return map[string]sealed.Ref{
		"keyring": {Kind: "keyring", ID: key.ID()},
		"age":     {Kind: "age", ID: key.ID(), Wrapped: []byte("a wrapped key")},
	}
}

func sealAs(t *testing.T, ref sealed.Ref, as string, key sealed.Key, plain string) []byte {
	t.Helper()
	b, err := sealed.Seal(ref, as, key, []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatWasSealedOpens(t *testing.T) {
	key := sealed.NewKey()
	for name, ref := range refs(key) {
		for _, plain := range []string{"", "x", content, strings.Repeat("long ", 10000)} {
			t.Run(fmt.Sprint(name, len(plain)), func(t *testing.T) {
				b := sealAs(t, ref, role, key, plain)
				if !sealed.Is(b) || !json.Valid(b) {
					t.Errorf("no sealed file, or no JSON: %.80q", b)
				}
				if int64(len(b)) != sealed.Size(ref, int64(len(plain))) {
					t.Errorf("%d bytes, foretold were %d", len(b), sealed.Size(ref, int64(len(plain))))
				}
				if plain != "" && bytes.Contains(b, []byte(plain)) && len(plain) > 4 {
					t.Error("the content shows")
				}
				f, err := sealed.Parse(b)
				if err != nil {
					t.Fatal(err)
				}
				if f.Ref.Kind != ref.Kind || f.Ref.ID != ref.ID || !bytes.Equal(f.Ref.Wrapped, ref.Wrapped) {
					t.Errorf("the header is %+v, sealed was %+v", f.Ref, ref)
				}
				if got, err := f.Open(role, key); err != nil || string(got) != plain {
					t.Errorf("opened %q, %v", got, err)
				}
			})
		}
	}
}

func TestTheSameContentIsNeverSealedToTheSameBytes(t *testing.T) {
	key := sealed.NewKey()
	ref := refs(key)["keyring"]
	if bytes.Equal(sealAs(t, ref, role, key, content), sealAs(t, ref, role, key, content)) {
		t.Error("two files are equal: is the nonce random?")
	}
}

// Every single bit counts.
func TestASealedFileThatWasAlteredDoesNotOpen(t *testing.T) {
	key := sealed.NewKey()
	for name, ref := range refs(key) {
		t.Run(name, func(t *testing.T) {
			b := sealAs(t, ref, role, key, content)
			for i := range b {
				for bit := range 8 {
					altered := bytes.Clone(b)
					altered[i] ^= 1 << bit
					f, err := sealed.Parse(altered)
					if err == nil {
						_, err = f.Open(role, key)
					}
					if err == nil {
						t.Fatalf("bit %d of byte %d is flipped and the file opens: %.120q", bit, i, altered)
					}
					if strings.Contains(err.Error(), "canary") {
						t.Fatalf("the error shows the content: %v", err)
					}
				}
			}
			for n := range b {
				if _, err := sealed.Parse(b[:n]); err == nil {
					t.Errorf("the first %d bytes parse", n)
				}
			}
			if _, err := sealed.Parse(append(bytes.Clone(b), '\n')); !errors.Is(err, sealed.ErrFormat) {
				t.Errorf("bytes after the end: %v", err)
			}
		})
	}
}

func TestAFileOpensOnlyAsWhatItWasSealed(t *testing.T) {
	key := sealed.NewKey()
	b := sealAs(t, refs(key)["keyring"], "session\x00box", key, content)
	f, err := sealed.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, as := range []string{"store", "session\x00other", "", "session", "session\x00bo"} {
		if _, err := f.Open(as, key); !errors.Is(err, sealed.ErrAltered) {
			t.Errorf("as %q: %v", as, err)
		}
	}
}

func TestAWrongKeyIsToldFromAnAlteredFile(t *testing.T) {
	key, wrong := sealed.NewKey(), sealed.NewKey()
	f, err := sealed.Parse(sealAs(t, refs(key)["keyring"], role, key, content))
	if err != nil {
		t.Fatal(err)
	}
	for what, k := range map[string]sealed.Key{"another key": wrong, "no key": {}} {
		if _, err := f.Open(role, k); !errors.Is(err, sealed.ErrKey) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := sealed.Seal(refs(key)["keyring"], role, k, nil); !errors.Is(err, sealed.ErrKey) {
			t.Errorf("sealing with %s: %v", what, err)
		}
	}
}

func TestOnlyOneSpellingIsRead(t *testing.T) {
	key := sealed.NewKey()
	good := string(sealAs(t, refs(key)["age"], role, key, content))
	for name, bad := range map[string]string{
		"white space":          strings.Replace(good, `,{`, `, {`, 1),
		"a member twice":       strings.Replace(good, `,"id"`, `,"id":"","id"`, 1),
		"a member more":        strings.Replace(good, `,"id"`, `,"x":1,"id"`, 1),
		"an element more":      strings.Replace(good, `"]`, `",""]`, 1),
		"upper-case hex":       strings.Replace(good, key.ID(), strings.ToUpper("a"+key.ID()[1:]), 1),
		"a line break in data": strings.Replace(good, `"},"`, "\"},\"\n", 1),
		"an escape":            strings.Replace(good, `"age"`, `"\u0061ge"`, 1),
		"no kind":              strings.Replace(good, `"age"`, `""`, 1),
		"an empty wrapped key": strings.Replace(good, base64.StdEncoding.EncodeToString([]byte("a wrapped key")), "", 1),
		"no newline":           strings.TrimSuffix(good, "\n"),
		"a short id":           strings.Replace(good, key.ID(), key.ID()[1:], 1),
		"nothing":              "",
		"another file":         content,
		"only the magic":       `["spendonce-sealed",`,
	} {
		if _, err := sealed.Parse([]byte(bad)); !errors.Is(err, sealed.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	newer := strings.Replace(good, ",1,", ",2,", 1)
	if _, err := sealed.Parse([]byte(newer)); !errors.Is(err, sealed.ErrVersion) {
		t.Errorf("a newer version: %v", err)
	}
}

func TestAPlainFileIsNoSealedOne(t *testing.T) {
	for _, plain := range []string{
		"", "{}", content, `{"spendonce-sealed":{"kind":"static","token":"x"}}`, `["spendonce-sealed"]`, `["spendonce-sealed"`, "[\n\"spendonce-sealed\",1]",
	} {
		if sealed.Is([]byte(plain)) {
			t.Errorf("%q is taken for a sealed file", plain)
		}
	}
}

// A program from before there were sealed files looks for records in an
// object, and writes its own into one.
func TestASealedFileIsNoObject(t *testing.T) {
	key := sealed.NewKey()
	for name, ref := range refs(key) {
		var records map[string]any
		if err := json.Unmarshal(sealAs(t, ref, role, key, content), &records); err == nil {
			t.Errorf("%s: it reads as %v", name, records)
		}
	}
}

func TestAKeyIsNeverPrinted(t *testing.T) {
	key := sealed.NewKey()
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		said := fmt.Sprintf(format, key)
		if strings.Contains(said, key.Text().Reveal()) || len(said) > 100 {
			t.Errorf("%s prints %q", format, said)
		}
	}
	again, err := sealed.ParseKey(key.Text())
	if err != nil || again.ID() != key.ID() {
		t.Errorf("the key's text gives another key: %v", err)
	}
}

// Whatever is read is JSON that says the same to the standard library, and
// the one spelling of it.
func FuzzParse(f *testing.F) {
	key := sealed.NewKey()
	for _, ref := range refs(key) {
		b, err := sealed.Seal(ref, role, key, []byte(content))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`["spendonce-sealed",1,{"kind":"a","id":"00000000000000000000000000000000"},"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="]` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := sealed.Parse(b)
		if err != nil {
			return
		}
		var label string
		var version int
		var same struct {
			Kind, ID string
			Wrapped  []byte
		}
		var data []byte
		if err := json.Unmarshal(b, &[]any{&label, &version, &same, &data}); err != nil {
			t.Fatalf("accepted, and no JSON: %v", err)
		}
		if !sealed.Is(b) || label != "spendonce-sealed" || version != 1 || same.Kind != got.Ref.Kind || same.ID != got.Ref.ID || !bytes.Equal(same.Wrapped, got.Ref.Wrapped) {
			t.Fatalf("read %+v, the library says %q %d %+v", got.Ref, label, version, same)
		}
		if sealed.Size(got.Ref, int64(len(data)-28)) != int64(len(b)) {
			t.Fatal("a second spelling of the same content")
		}
		if _, err := got.Open(role, key); err == nil && !bytes.Contains(b, []byte(key.ID())) {
			t.Fatal("opened with a key that it does not name")
		}
	})
}

func FuzzSeal(f *testing.F) {
	f.Add("store", "keyring", []byte(nil), []byte(content))
	f.Add("session\x00box", "age", []byte("wrapped"), []byte{})
	f.Fuzz(func(t *testing.T, as, kind string, wrapped, plain []byte) {
		key := sealed.NewKey()
		b, err := sealed.Seal(sealed.Ref{Kind: kind, ID: key.ID(), Wrapped: wrapped}, as, key, plain)
		if err != nil {
			return // a kind that is none
		}
		file, err := sealed.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := file.Open(as, key); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%q, %v", got, err)
		}
	})
}
