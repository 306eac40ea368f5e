package oauthflow_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

var now = time.Date(2025, 11, 30, 12, 0, 0, 0, time.UTC)

const success = oauthflow.Class(-1)

func answer(status int, contentType, body string) oauthflow.Answer {
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return oauthflow.Answer{Status: status, Header: h, Body: []byte(body)}
}

// judge returns success and the tokens, or the class and the error.
func judge(t *testing.T, a oauthflow.Answer, d oauthflow.Dialect, sent ...secret.Secret) (oauthflow.Class, oauthflow.Tokens, *oauthflow.Error) {
	t.Helper()
	tokens, err := oauthflow.Judge(a, now, d, sent...)
	if err == nil {
		return success, tokens, nil
	}
	var e *oauthflow.Error
	if !errors.As(err, &e) {
		t.Fatalf("Judge returned a %T", err)
	}
	return e.Class, tokens, e
}

func TestTheFirstRowThatMatchesDecides(t *testing.T) {
	const (
		refused     = oauthflow.ClassRefused
		dead        = oauthflow.ClassClientDead
		temporary   = oauthflow.ClassTemporary
		wrong       = oauthflow.ClassWrongRequest
		html        = "<!DOCTYPE html><title>Wifi</title>"
		ok          = `{"access_token":"AT","token_type":"bearer"}`
		js, txt, ht = "application/json", "text/plain", "text/html"
		form        = "application/x-www-form-urlencoded"
	)
	for _, c := range []struct {
		status int
		typ    string
		body   string
		want   oauthflow.Class
	}{
		// Redirects come first, whatever they carry.
		{301, js, ok, temporary}, {302, ht, html, temporary}, {303, "", "", temporary},
		{307, js, `{"error":"invalid_grant"}`, temporary}, {308, js, `{"error":"invalid_client"}`, temporary},

		// The token that was sent is refused.
		{400, js, `{"error":"invalid_grant"}`, refused},
		{200, js, `{"error":"invalid_grant"}`, refused},
		{401, js, `{"error":"invalid_grant"}`, refused},
		{429, js, `{"error":"invalid_grant"}`, refused},
		{500, js, `{"error":"invalid_grant"}`, refused},
		{400, txt, `{"error":"invalid_grant"}`, refused},
		{400, form, `error=invalid_grant&error_description=gone`, refused},
		{200, js, `{"error":"bad_refresh_token"}`, refused},
		{200, form, `error=bad_refresh_token`, refused},
		{200, js, `{"error":"invalid_refresh_token"}`, refused},
		{200, js, `{"error":"invalid_grant","access_token":"AT"}`, refused},
		{401, js, `{}`, refused},
		{401, js, `{"message":"unauthorized"}`, refused},
		{401, js, `{"error":{"message":"unauthorized"}}`, refused},
		{401, js, `null`, refused},
		{401, ht, `{"message":"unauthorized"}`, refused},
		{401, txt, `Unauthorized`, refused},
		{401, js, `Unauthorized`, refused},
		{401, "", `Unauthorized`, refused},

		// 401 from something that does not speak for the server.
		{401, ht, html, temporary}, {401, js, html, temporary}, {401, txt, html, temporary},
		{401, ht, `Unauthorized`, temporary},
		{401, js, "", temporary}, {401, txt, " \n", temporary}, {401, txt, "\x00\x01\xff", temporary},

		// The client is dead, the session may live.
		{400, js, `{"error":"invalid_client"}`, dead},
		{401, js, `{"error":"invalid_client"}`, dead},
		{400, js, `{"error":"unauthorized_client"}`, dead},
		{200, js, `{"error":"incorrect_client_credentials"}`, dead},
		{503, js, `{"error":"invalid_client"}`, dead},

		// Temporary.
		{429, js, `{"error":"slow_down"}`, temporary},
		{429, "", "", temporary},
		{500, js, ok, temporary}, {503, ht, html, temporary},
		{502, js, `{"error":"invalid_request"}`, temporary},
		{400, js, `{"error":"temporarily_unavailable"}`, temporary},
		{200, js, `{"error":"temporarily_unavailable"}`, temporary},

		// Our request is wrong.
		{400, js, `{"error":"invalid_request"}`, wrong},
		{400, js, `{"error":"invalid_scope"}`, wrong},
		{400, js, `{"error":"invalid_target"}`, wrong},
		{400, js, `{"error":"bad_refresh_token"}`, wrong},
		{401, js, `{"error":"invalid_request"}`, wrong},
		{403, js, `{"error":"access_denied"}`, wrong},
		{200, js, `{"error":"whatever"}`, wrong},
		{200, js, `{"error":"whatever","access_token":"AT"}`, wrong},

		// Success.
		{200, js, ok, success}, {201, js, ok, success}, {200, txt, ok, success}, {200, ht, ok, success},
		{200, "", "\xef\xbb\xbf" + ok + "\n", success},
		{200, form, `access_token=AT&token_type=bearer&expires_in=3600`, success},
		{200, js, `access_token=AT`, success},
		{200, js, `{"error":"","access_token":"AT"}`, success},
		{200, js, `{"error":null,"access_token":"AT"}`, success},

		// Anything else.
		{200, js, `{}`, temporary}, {200, js, ``, temporary}, {200, ht, html, temporary}, {200, js, html, temporary},
		{200, js, `{"access_token":""}`, temporary}, {200, js, `{"access_token":null}`, temporary},
		{200, js, `{"access_token":17}`, temporary}, {200, js, `["access_token"]`, temporary},
		{200, js, `{"Access_Token":"AT"}`, temporary},
		{200, js, `{"access_token":"A T"}`, temporary}, {200, js, `{"access_token":"A\nT"}`, temporary},
		{200, js, `{"access_token":"Ä"}`, temporary}, {200, js, "{\"access_token\":\"\xff\"}", temporary},
		{200, js, `{"access_token":"AT","refresh_token":"R\u0000"}`, temporary},
		{200, js, `{"access_token":"AT"`, temporary}, {200, js, ok + ok, temporary},
		{403, ht, html, temporary}, {403, js, html, temporary}, {404, txt, "not found", temporary},
		{400, js, `{"message":"bad"}`, temporary}, {407, ht, html, temporary}, {204, "", "", temporary},
	} {
		name := fmt.Sprintf("%d %s %.40q", c.status, c.typ, c.body)
		got, tokens, e := judge(t, answer(c.status, c.typ, c.body), oauthflow.OAuth2)
		if got != c.want {
			t.Errorf("%s: class %v, want %v", name, got, c.want)
		}
		if got == success {
			if tokens.AccessToken.Reveal() != "AT" {
				t.Errorf("%s: access token not read", name)
			}
			continue
		}
		if e.Status != c.status || !strings.Contains(e.Text, fmt.Sprint(c.status)) {
			t.Errorf("%s: error %q does not name the status", name, e.Text)
		}
		if e.Broken || e.NotSent {
			t.Errorf("%s: an answer came, yet Broken=%v NotSent=%v", name, e.Broken, e.NotSent)
		}
	}
}

func TestAnAnswerThatWasCutOffIsNotInterpreted(t *testing.T) {
	for _, status := range []int{200, 400, 401} {
		a := answer(status, "application/json", `{"error":"invalid_grant","access_token":"AT"}`)
		a.Truncated = true
		if got, _, _ := judge(t, a, oauthflow.OAuth2); got != oauthflow.ClassTemporary {
			t.Errorf("status %d: class %v", status, got)
		}
	}
}

func TestWhatIsOmittedEmptyOrNullStaysAsItWas(t *testing.T) {
	for _, rest := range []string{``, `,"refresh_token":"","scope":"","org":""`, `,"refresh_token":null,"scope":null,"org":null`} {
		for d, name := range map[oauthflow.Dialect]string{"": "access_token", oauthflow.Hypaware: "access_jwt"} {
			class, got, _ := judge(t, answer(200, "", `{"`+name+`":"AT"`+rest+`}`), d)
			if class != success || !got.RefreshToken.Empty() || got.Scope != "" || got.Org != "" || len(got.Warnings) > 0 {
				t.Errorf("%s %q: class %v, tokens %+v", d, rest, class, got)
			}
		}
	}
	_, got, _ := judge(t, answer(200, "", `{"access_token":"AT","refresh_token":"R2","scope":" a  b ","id_token":"I"}`), "")
	if got.RefreshToken.Reveal() != "R2" || got.Scope != "a b" || got.IDToken.Reveal() != "I" {
		t.Errorf("given members were not taken: %+v", got)
	}
	_, got, _ = judge(t, answer(200, "", `{"access_token":"AT","scope":["a","b"],"refresh_token":7}`), "")
	if got.Scope != "a b" || !got.RefreshToken.Empty() || len(got.Warnings) != 1 {
		t.Errorf("odd members: %+v", got)
	}
}

func TestTheLifetimeIsReadWithCare(t *testing.T) {
	hour := now.Add(time.Hour)
	for _, c := range []struct {
		member  string
		want    time.Time
		life    time.Duration
		warning bool
	}{
		{`"expires_in":3600`, hour, time.Hour, false},
		{`"expires_in":"3600"`, hour, time.Hour, false},
		{`"expires_in":3.6e3`, hour, time.Hour, false},
		{`"expires_in":3599.5`, now.Add(3599 * time.Second), 3599 * time.Second, false},
		{`"expires_in":0`, now, 0, false},
		{`"expires_in":"0"`, now, 0, false},
		{`"expires_in":0.9`, now, 0, false},
		{`"x":0`, time.Time{}, 0, false},
		{`"expires_in":null`, time.Time{}, 0, false},
		{`"expires_in":""`, time.Time{}, 0, false},
		{`"expires_in":"3600abc"`, time.Time{}, 0, true},
		{`"expires_in":"soon"`, time.Time{}, 0, true},
		{`"expires_in":"NaN"`, time.Time{}, 0, true},
		{`"expires_in":"Inf"`, time.Time{}, 0, true},
		{`"expires_in":"0x10"`, time.Time{}, 0, true},
		{`"expires_in":"1_000"`, time.Time{}, 0, true},
		{`"expires_in":-1`, time.Time{}, 0, true},
		{`"expires_in":"-1"`, time.Time{}, 0, true},
		{`"expires_in":1e18`, time.Time{}, 0, true},
		{`"expires_in":1e999`, time.Time{}, 0, true},
		{`"expires_in":-1e999`, time.Time{}, 0, true},
		{`"expires_in":1764504000`, time.Time{}, 0, true}, // a point in time, not a duration
		{`"expires_in":true`, time.Time{}, 0, true},
		{`"expires_in":{"s":1}`, time.Time{}, 0, true},
		{`"expires_in":[3600]`, time.Time{}, 0, true},
	} {
		class, got, _ := judge(t, answer(200, "", `{"access_token":"AT",`+c.member+`}`), "")
		if class != success || !got.ExpiresAt.Equal(c.want) || got.Lifetime != c.life || (len(got.Warnings) > 0) != c.warning {
			t.Errorf("%s: class %v, expires %v (want %v), lifetime %v, warnings %q", c.member, class, got.ExpiresAt, c.want, got.Lifetime, got.Warnings)
		}
	}
}

func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestAnUnknownLifetimeFallsBackToTheJWT(t *testing.T) {
	exp := fmt.Sprint(now.Add(time.Hour).Unix())
	for _, c := range []struct {
		token string
		known bool
	}{
		{jwt(`{"exp":` + exp + `}`), true},
		{jwt(`{"exp":"` + exp + `"}`), true},
		{jwt(`{"exp":` + exp + `.25}`), true},
		{jwt(`{"exp":1e18}`), false}, {jwt(`{"exp":-5}`), false}, {jwt(`{"exp":0}`), false},
		{jwt(`{"exp":null}`), false}, {jwt(`{}`), false}, {jwt(`[]`), false}, {jwt(`{"exp":`), false}, {jwt(``), false},
		{"a.b", false}, {"..", false}, {"a.!!.c", false}, {"a.b.c.d.e", false}, {"opaque", false},
	} {
		for _, member := range []string{`"x":1`, `"expires_in":-1`, `"expires_in":null`} {
			_, got, _ := judge(t, answer(200, "", `{"access_token":"`+c.token+`",`+member+`}`), "")
			if want := c.known; !got.ExpiresAt.IsZero() != want || want && !got.ExpiresAt.Equal(now.Add(time.Hour)) {
				t.Errorf("token %s with %s: expires %v", c.token, member, got.ExpiresAt)
			}
		}
	}
	_, got, _ := judge(t, answer(200, "", `{"access_token":"`+jwt(`{"exp":`+exp+`}`)+`","expires_in":60}`), "")
	if !got.ExpiresAt.Equal(now.Add(time.Minute)) {
		t.Errorf("expires_in is known, yet the JWT decided: %v", got.ExpiresAt)
	}
}

func TestTheHypawareDialectHasItsOwnWords(t *testing.T) {
	hour := now.Add(time.Hour)
	for _, c := range []struct {
		body    string
		want    time.Time
		warning bool
	}{
		{fmt.Sprintf(`"expires_at":%d`, hour.Unix()), hour, false},
		{fmt.Sprintf(`"expires_at":"%d"`, hour.Unix()), hour, false},
		{`"expires_at":"2025-11-30T13:00:00Z"`, hour, false},
		{`"expires_at":"2025-11-30T15:00:00.000+02:00"`, hour, false},
		{`"expires_at":"2025-11-30T11:00:00Z"`, now.Add(-time.Hour), false},
		{`"expires_at":null`, time.Time{}, false},
		{`"expires_at":""`, time.Time{}, false},
		{`"expires_at":0`, time.Time{}, true},
		{`"expires_at":-1`, time.Time{}, true},
		{`"expires_at":1e18`, time.Time{}, true},
		{`"expires_at":1764507600000`, time.Time{}, true}, // milliseconds
		{`"expires_at":"tomorrow"`, time.Time{}, true},
		{`"expires_at":"9999-12-31T23:59:59Z"`, time.Time{}, true},
		{`"expires_at":{}`, time.Time{}, true},
		{`"expires_in":60`, time.Time{}, false}, // a word of the other dialect
	} {
		class, got, _ := judge(t, answer(200, "", `{"access_jwt":"AT","refresh_token":"R","org":"acme",`+c.body+`}`), oauthflow.Hypaware)
		if class != success || !got.ExpiresAt.Equal(c.want) || (len(got.Warnings) > 0) != c.warning {
			t.Errorf("%s: class %v, expires %v, warnings %q", c.body, class, got.ExpiresAt, got.Warnings)
		}
		if got.RefreshToken.Reveal() != "R" || got.Org != "acme" {
			t.Errorf("%s: refresh token or org not read", c.body)
		}
	}
	if class, _, _ := judge(t, answer(200, "", `{"access_token":"AT"}`), oauthflow.Hypaware); class != oauthflow.ClassTemporary {
		t.Errorf("access_token in the hypaware dialect: class %v", class)
	}
	if class, _, _ := judge(t, answer(200, "", `{"access_jwt":"AT"}`), oauthflow.OAuth2); class != oauthflow.ClassTemporary {
		t.Errorf("access_jwt in OAuth 2: class %v", class)
	}
}

func TestRetryAfterIsReadAndCapped(t *testing.T) {
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"7", "", 7 * time.Second}, {" 7 ", "", 7 * time.Second}, {"0", "", 0}, {"-7", "", 0}, {"", "", 0}, {"soon", "", 0},
		{"86400", "", 300 * time.Second}, {"99999999999999999999", "", 300 * time.Second},
		{date(7 * time.Second), "", 7 * time.Second},
		{date(24 * time.Hour), "", 300 * time.Second},
		{date(-time.Hour), "", 0},
		{date(time.Hour + 7*time.Second), date(time.Hour), 7 * time.Second}, // the server's clock is an hour ahead
	} {
		a := answer(429, "", "")
		a.Header.Set("Retry-After", c.value)
		if c.date != "" {
			a.Header.Set("Date", c.date)
		}
		_, _, e := judge(t, a, "")
		if e.RetryAfter != c.want {
			t.Errorf("Retry-After %q: %v, want %v", c.value, e.RetryAfter, c.want)
		}
		if c.date != "" && e.ServerDate.IsZero() {
			t.Errorf("the server's date was not read")
		}
	}
}
