package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/secret"
)

const canary = "canary-7f3a"

func TestNoPrintingShowsTheValue(t *testing.T) {
	s := secret.New(canary)
	inner := struct{ hidden secret.Secret }{s}
	outer := struct {
		Shown   secret.Secret
		Pointer *secret.Secret
		Slice   []secret.Secret
	}{s, &s, []secret.Secret{s}}

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%T", "%08.3f", "%!"} {
		for _, v := range []any{s, &s, inner, outer, &outer, []any{s}, map[string]secret.Secret{"k": s}} {
			fmt.Fprintf(&out, verb, v)
		}
	}
	if b, err := json.Marshal(outer); err != nil {
		t.Fatal(err)
	} else {
		out.Write(b)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("m", "s", s, "outer", outer, "inner", inner)
	}
	fmt.Fprint(&out, fmt.Errorf("wrapping %v: %w", s, fmt.Errorf("%s", s)))

	got := out.String()
	hexed := fmt.Sprintf("%x", canary)
	for _, bad := range []string{canary, hexed, strings.ToUpper(hexed)} {
		if strings.Contains(got, bad) {
			t.Fatalf("a printing shows the secret as %q", bad)
		}
	}
	if !strings.Contains(got, "[redacted]") {
		t.Fatal("nothing was printed: the test sees nothing")
	}
}

func TestOnlyRevealGivesTheValue(t *testing.T) {
	if got := secret.New(canary).Reveal(); got != canary {
		t.Fatalf("Reveal = %q", got)
	}
	var zero secret.Secret
	if zero.Reveal() != "" || !zero.Empty() || zero.Fingerprint() != "" {
		t.Fatal("the zero value is not the empty secret")
	}
}

func TestEqualComparesValues(t *testing.T) {
	a, b := secret.New("x"+canary), secret.New("x"+canary)
	if !a.Equal(b) || a.Equal(secret.New("y")) || a.Equal(secret.Secret{}) || !secret.New("").Equal(secret.Secret{}) {
		t.Fatal("Equal does not compare values")
	}
}

func TestARedactedValueIsNeverReadBack(t *testing.T) {
	var s secret.Secret
	if err := json.Unmarshal([]byte(`"[redacted]"`), &s); err == nil {
		t.Fatal("a secret was decoded from its redaction")
	}
}

func TestFingerprintIsSixteenHexDigitsOfSHA256(t *testing.T) {
	// printf abc | sha256sum
	if got := secret.New("abc").Fingerprint(); got != "ba7816bf8f01cfea" {
		t.Fatalf("Fingerprint = %q", got)
	}
}
