package spendoncetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"time"
)

const loginCookie = "spendonce_test_login"

// loginPage is a form without scripts. Its CSRF token is bound to a cookie of
// the browser and to this one request, so that nothing is kept for it.
func (s *TokenServer) loginPage(q *request, id string, a *authorization, problem string) *response {
	r := page(http.StatusOK, "Sign in")
	browser := s.browserCookie(q, r)
	r.body += problemLine(problem) + fmt.Sprintf(`<p>The program <b>%s</b> asks for access%s.</p>
<form method="post" action="%s">
<input type="hidden" name="request" value="%s">
<input type="hidden" name="csrf" value="%s">
%s</form>
</body></html>
`, html.EscapeString(a.client), scopeWords(a.scope), pathLogin, id, s.csrf(browser, id), personFields(a.hint))
	return r
}

func personFields(hint string) string {
	return `<p><label>User name <input name="username" autocomplete="username" value="` + html.EscapeString(hint) + `"></label></p>
<p><label>Password <input name="password" type="password" autocomplete="current-password"></label></p>
<p><button name="action" value="allow">Sign in</button> <button name="action" value="deny">Deny</button></p>
`
}

func scopeWords(scope string) string {
	if scope == "" {
		return ""
	}
	return " to <i>" + html.EscapeString(scope) + "</i>"
}

func problemLine(problem string) string {
	if problem == "" {
		return ""
	}
	return `<p role="alert">` + html.EscapeString(problem) + "</p>\n"
}

// page begins a page; the caller writes the rest of its body.
func page(status int, title string) *response {
	return &response{status: status, outcome: "page", contentType: "text/html; charset=utf-8",
		header: http.Header{
			"Content-Security-Policy": {"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"},
			"X-Content-Type-Options":  {"nosniff"},
			"Referrer-Policy":         {"no-referrer"},
		},
		body: `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>` + title + `</title></head><body>
<h1>` + title + "</h1>\n"}
}

func errorPage(problem string) *response {
	r := page(http.StatusBadRequest, "This request cannot be served")
	r.outcome = "refused"
	r.body += problemLine(problem) + "</body></html>\n"
	return r
}

// browserCookie names the browser, giving it a name with r if it has none.
func (s *TokenServer) browserCookie(q *request, r *response) string {
	if c, err := q.r.Cookie(loginCookie); err == nil && c.Value != "" {
		return c.Value
	}
	c := &http.Cookie{Name: loginCookie, Value: random(), Path: "/", HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: s.cfg.TLS != nil}
	r.header.Add("Set-Cookie", c.String())
	return c.Value
}

func (s *TokenServer) csrf(browser, id string) string {
	mac := hmac.New(sha256.New, s.csrfKey)
	fmt.Fprintf(mac, "%s|%s", browser, id)
	return hex.EncodeToString(mac.Sum(nil))
}

// sameBrowser checks that a form comes from the browser it was made for.
func (s *TokenServer) sameBrowser(q *request, id string) bool {
	c, err := q.r.Cookie(loginCookie)
	return err == nil && hmac.Equal([]byte(q.params.Get("csrf")), []byte(s.csrf(c.Value, id)))
}

// rightPassword checks and counts a person's name and password. mu is held.
func (s *TokenServer) rightPassword(q *request) bool {
	password, known := s.cfg.Users[q.params.Get("username")]
	right := subtle.ConstantTimeCompare([]byte(q.params.Get("password")), []byte(password)) == 1 && known
	s.update(func(c *Counters) {
		if right {
			c.Logins++
		} else {
			c.FailedLogins++
		}
	})
	return right
}

// login takes the form. The right password is the consent.
func (s *TokenServer) login(q *request) *response {
	if q.r.Method != http.MethodPost {
		return notAllowed(http.MethodPost)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := q.params.Get("request")
	a := s.pending[id]
	switch {
	case q.bad != "":
		return errorPage(q.bad)
	case !s.sameBrowser(q, id):
		return errorPage("the form does not come from the browser that asked for it")
	case a == nil || time.Now().After(a.expires):
		return errorPage("this sign-in is over; start it again from the program")
	}
	switch q.params.Get("action") {
	case "deny":
		delete(s.pending, id)
		s.update(func(c *Counters) { c.Denials++ })
		return s.redirect(a, "error", "access_denied", "error_description", "the user said no")
	case "allow", "": // "": the Enter key, in some browsers
	default:
		return errorPage("no button of this form says that")
	}
	account := q.params.Get("username")
	if !s.rightPassword(q) {
		a.hint = account
		r := s.loginPage(q, id, a, "User name or password is wrong.")
		r.outcome = "wrong password"
		return r
	}
	delete(s.pending, id)
	return s.redirect(a, "code", s.newCode(a, account, time.Now()))
}
