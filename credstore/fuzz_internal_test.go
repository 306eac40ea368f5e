package credstore

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// stores are files as they are found, good and bad.
var stores = []string{
	``, ` `, `{}`, ` { } `, `[]`, `null`, `"S"`, "\xef\xbb\xbf{}", `{"a":1}{}`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{"a":1,}`,
	`{"box":{"kind":"static","token":"S"}}`,
	`{"box":{"kind":"oidc","refreshToken":"R","accessJwt":"A","expiresAt":"2026-01-02T03:04:05.678Z","org":"acme","x":[1.50,{"y":null}]},"not a name":{"token":"T"}}`,
	`{"box":{"refreshToken":"R","accessJwt":"A"}}`, `{"box":{"kind":"oidc","accessJwt":""}}`, `{"box":{"kind":7,"token":"S"}}`,
	`{"\u0000":"\ud83d\ude00","\ud800":1}`, "{\"\xff\":1}", `{"b":1e999,"c":-0}`, `{"box":{"kind":"static","token":"S\u0000"}}`,
}

// What we accept as a store is one that everybody accepts; what is read of it
// survives writing, a change of one record leaves the others alone, and a
// record that is written is read back as it was.
func FuzzParseDocument(f *testing.F) {
	for _, s := range stores {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		doc, err := parseDocument(b)
		if err != nil {
			if d, ok := err.(*damage); !ok || d.offset < 0 || d.offset > int64(len(b)) { //nolint:errorlint // it is no wrapper
				t.Fatalf("the damage is at %v of %d bytes", err, len(b))
			}
			return
		}
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("accepted, and refused by encoding/json: %v", err)
		}
		same := func(what string, doc *document) {
			t.Helper()
			encoded, err := doc.encode()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			again, err := parseDocument(encoded)
			if err != nil {
				t.Fatalf("%s: what was written is damaged: %v", what, err)
			}
			if len(again.members) != len(doc.members) {
				t.Fatalf("%s: %d members, had %d", what, len(again.members), len(doc.members))
			}
			for i, m := range doc.members {
				if again.members[i].name != m.name || !bytes.Equal(compact(t, again.members[i].value), compact(t, m.value)) {
					t.Fatalf("%s: member %d has changed", what, i)
				}
			}
			got := map[string]json.RawMessage{}
			if err := json.Unmarshal(encoded, &got); err != nil || len(got) != len(doc.members) {
				t.Fatalf("%s: encoding/json reads %d of %d members: %v", what, len(got), len(doc.members), err)
			}
		}
		same("as it was read", doc)
		if len(want) != len(doc.members) {
			t.Fatalf("%d members, encoding/json reads %d", len(doc.members), len(want))
		}
		for _, m := range doc.members {
			r := readRecord(m.value)
			if r.Kind != KindUnknown {
				if back := readRecord(r.write(m.value)); !sameRecord(r, back) {
					t.Fatal("a record that was read and written is read as another")
				}
			}
			for _, next := range []Record{
				{Kind: KindStatic, Token: secret.New("S-new")},
				{Kind: KindOIDC, RefreshToken: secret.New("R-new"), AccessToken: secret.New("A-new"), ExpiresAt: time.UnixMilli(1767323045678).UTC()},
			} {
				changed := doc.clone()
				changed.set(m.name, next.write(m.value))
				same("with another record", changed)
				value, _ := changed.get(m.name)
				if next.Org = readRecord(value).Org; !sameRecord(readRecord(value), next) {
					t.Fatal("a record that was written is read as another")
				}
				for i, o := range doc.members {
					if o.name != m.name && !bytes.Equal(changed.members[i].value, o.value) {
						t.Fatal("a neighbour has changed")
					}
				}
			}
			without := doc.clone()
			without.remove(m.name)
			if _, there := without.get(m.name); there || len(without.members) != len(doc.members)-1 {
				t.Fatal("not removed")
			}
			if _, there := doc.get(m.name); !there {
				t.Fatal("the original has changed with its copy")
			}
		}
	})
}

func compact(t *testing.T, v []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sameRecord(a, b Record) bool {
	return a.Kind == b.Kind && a.Token.Equal(b.Token) && a.RefreshToken.Equal(b.RefreshToken) && a.AccessToken.Equal(b.AccessToken) &&
		a.ExpiresAt.UnixMilli() == b.ExpiresAt.UnixMilli() && a.Org == b.Org
}

// A session file that is accepted is a store's equal in form; what is read of
// it, known or not, survives writing.
func FuzzParseSession(f *testing.F) {
	for _, s := range []string{
		`{"version":1}`, `{"version":2}`, `{}`, `{"version":1,"x":[1]}`, `{"version":1,"Unknown":null}`, `{"version":1,"version":1}`,
		`{"version":1,"target":"box","url":"https://h","loginId":"L","pin":{"issuer":"i","clientSecret":"c","scope":["a"],"x-p":1},"refreshToken":"0123456789abcdef"}`,
		`{"version":1,"pending":{"loginId":"L","refreshToken":"0123456789abcdef","replaces":"","pin":{"x":1},"y":2}}`,
		`{"version":1,"notBefore":"2026-01-02T03:04:05Z","failures":3,"forced":["2026-01-02T03:04:05.6Z"],"lastOutcome":{"id":"o","class":"temporary","z":{}}}`,
		`{"version":1,"notBefore":"soon"}`, `{"version":1,"pin":{"clientSecret":7}}`, `{"version":1,"lifetimeSeconds":1e300}`, `{"version":1,"lifetimeSeconds":-1}`,
		`{"Version":1}`, `{"version":1.0}`, `{"version":"1"}`, `{"version":1,"pin":null,"pending":null}`,
	} {
		f.Add([]byte(s))
	}
	for _, s := range stores {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSession(b, "box")
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatal("accepted, and refused by encoding/json")
		}
		encoded, err := s.encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := parseSession(encoded, "box")
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, encoded)
		}
		twice, err := again.encode()
		if err != nil || !bytes.Equal(encoded, twice) {
			t.Fatalf("writing changes it: %v\n%s\n%s", err, encoded, twice)
		}
		// Nothing that we do not know is lost.
		var before, after map[string]any
		if json.Unmarshal(b, &before) != nil || json.Unmarshal(encoded, &after) != nil {
			t.Fatal("encoding/json does not read it")
		}
		for name, value := range before {
			if _, ours := known[name]; !ours && !reflect.DeepEqual(after[name], value) {
				t.Fatalf("the member %q was lost", name)
			}
		}
		// The decisions over it hold for any content.
		for _, r := range []Record{{}, {Kind: KindStatic, Token: secret.New("S")}, {Kind: KindOIDC, RefreshToken: secret.New("R"), AccessToken: secret.New("A")}} {
			if settled := s.settled(r); settled.Pending != nil {
				t.Fatal("a login is pending after it was settled")
			}
		}
	})
}

// known are the members of a session file that are ours, by name.
var known = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range []string{"version", "target", "url", "loginId", "pin", "pending", "unknownServer", "obtainedAt", "lifetimeSeconds",
		"refreshToken", "loginRequired", "notBefore", "failures", "forced", "lastOutcome"} {
		names[name] = true
	}
	return names
}()
