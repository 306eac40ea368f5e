package challenge_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/challenge"
)

func TestChallengesAreReadAsServersWriteThem(t *testing.T) {
	type c = challenge.Challenge
	none := map[string]string{}
	for line, want := range map[string][]c{
		`Bearer`:               {{"bearer", none}},
		`BEARER Realm="x"`:     {{"bearer", map[string]string{"realm": "x"}}},
		`Bearer realm = "x" ,`: {{"bearer", map[string]string{"realm": "x"}}},
		`Bearer error="insufficient_scope", scope="a b", resource_metadata="https://h/.well-known/x?a,b=\"c"`: {
			{"bearer", map[string]string{"error": "insufficient_scope", "scope": "a b", "resource_metadata": `https://h/.well-known/x?a,b="c`}},
		},
		`Basic realm="a, Bearer x=\"y\"", Bearer scope=read`: {
			{"basic", map[string]string{"realm": `a, Bearer x="y"`}}, {"bearer", map[string]string{"scope": "read"}},
		},
		`Negotiate, Bearer error=invalid_token`:          {{"negotiate", none}, {"bearer", map[string]string{"error": "invalid_token"}}},
		`Negotiate YWJjZA==, Bearer error=invalid_token`: {{"negotiate", none}, {"bearer", map[string]string{"error": "invalid_token"}}},
		`Bearer error=first, error=second`:               {{"bearer", map[string]string{"error": "first"}}},
		`, ,Bearer a=b,, c=d`:                            {{"bearer", map[string]string{"a": "b", "c": "d"}}},
		`error="invalid_token"`:                          nil,
		`Bearer a="b`:                                    {{"bearer", none}},
		`Bearer a="b\`:                                   {{"bearer", none}},
		`Bearer a="b"c="d"`:                              {{"bearer", map[string]string{"a": "b"}}},
		`Bearer a=b; c=d`:                                {{"bearer", map[string]string{"a": "b"}}},
		"":                                               nil,
		"\x00\xff":                                       nil,
		`Bearer a="` + strings.Repeat("x", 20<<10) + `", b=c`: {{"bearer", none}},
	} {
		if got := challenge.Parse([]string{line}); !reflect.DeepEqual(got, want) {
			t.Errorf("%.80q is read as %.200v, want %v", line, got, want)
		}
	}
}

func TestTheBearerChallengeIsFoundAmongSeveralHeaders(t *testing.T) {
	got := challenge.Bearer([]string{`Basic realm="x"`, `DPoP algs="ES256", Bearer error="invalid_token"`})
	if got["error"] != "invalid_token" {
		t.Errorf("the parameters are %v", got)
	}
	if got := challenge.Bearer([]string{`Basic realm="Bearer"`}); got != nil {
		t.Errorf("a Bearer challenge was found where there is none: %v", got)
	}
}

func FuzzChallengesNeverPanicAndStayWithinTheirHeader(f *testing.F) {
	f.Add(`Bearer error="invalid_token", scope=a`)
	f.Add(`Negotiate YWJj==, Basic realm="a\"b"`)
	f.Fuzz(func(t *testing.T, line string) {
		total := 0
		for _, c := range challenge.Parse([]string{line}) {
			total += len(c.Scheme)
			for name, value := range c.Params {
				total += len(name) + len(value)
			}
		}
		if total > len(line) {
			t.Errorf("%q gave more than it holds", line)
		}
	})
}
