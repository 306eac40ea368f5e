package credstore

import (
	"reflect"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

func wholeSession() *session {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.UTC)
	return &session{
		Version: 1, Target: "t", URL: "https://rs.example", LoginID: "L", UnknownServer: true,
		Pin: &Pin{
			Issuer: "i", AuthorizationEndpoint: "a", TokenEndpoint: "t", RevocationEndpoint: "r", RegistrationEndpoint: "g", ClientID: "c",
			ClientSecret: secret.New("s\"\\\u00e9"), ClientAuth: "client_secret_basic", RedirectURI: "u", Scope: []string{"x", "y"}, Resource: "rs", Dialect: "oauth2",
			Subject: "sub", Email: "e@example",
		},
		ObtainedAt: at, LifetimeSeconds: 3599.5, RefreshToken: "0123456789abcdef", LoginRequired: "refused", NotBefore: at, Failures: 3,
		Forced: []time.Time{at, at},
		LastOutcome: &Outcome{
			ID: "o", Time: at, RefreshToken: "0123456789abcdef", Class: ClassRefused, Unknown: true, Status: 400, Code: "invalid_grant", Text: "x", ServerDate: at,
		},
	}
}

// equal compares what the two ways read; a Secret is behind a pointer.
func equal(a, b *session) bool {
	return reflect.DeepEqual(a, b)
}

func TestTheQuickWayReadsAWholeSessionFile(t *testing.T) {
	b, err := wholeSession().encode()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := quickSession(b)
	if !ok || !equal(got, wholeSession()) {
		t.Fatalf("read %+v, %v", got, ok)
	}
}

func TestTheQuickWayLeavesSurprisesToTheCarefulOne(t *testing.T) {
	for _, b := range []string{
		``, `[]`, `{"version":1,"new":2}`, `{"version":"1"}`, `{"version":1,"pin":{"new":1}}`, `{"version":1,"pin":[]}`, `{"version":1.5}`,
		`{"version":1,"pending":{}}`, `{"version":1,"forced":{}}`, `{"version":1,"forced":[1]}`, `{"version":1,"notBefore":"soon"}`,
		`{"version":1,"unknownServer":1}`, `{"version":1,"lastOutcome":{"new":1}}`, `{"version":1}x`,
	} {
		if _, ok := quickSession([]byte(b)); ok {
			t.Errorf("%s was read", b)
		}
	}
}

// What the quick way accepts, the careful one reads alike.
func FuzzQuickSession(f *testing.F) {
	b, err := wholeSession().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1,"forced":[],"pin":{"scope":[]}}`))
	f.Add([]byte(`{"version":1,"obtainedAt":"2026-01-02T03:04:05+01:00","lifetimeSeconds":1e3,"failures":-0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		quick, ok := quickSession(b)
		if !ok {
			return
		}
		careful, err := carefulSession(b)
		if err != nil {
			t.Fatalf("only the quick way reads %q: %v", b, err)
		}
		one, err1 := quick.encode()
		two, err2 := careful.encode()
		if err1 != nil || err2 != nil || string(one) != string(two) {
			t.Fatalf("%q is read as %s and as %s", b, one, two)
		}
	})
}
