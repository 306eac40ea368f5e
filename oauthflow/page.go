package oauthflow

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html"
	"net/http"
	"strconv"
	"strings"
)

// page is one answer of the callback server. It holds nothing of the request
// but, in the page of the right answer, the account or the error in our words.
type page struct {
	status     int
	mark       mark
	title, who string // the heading, and as whom
	text, next string // what there is to say, and to do
}

// mark is what tells the pages apart before a word is read.
type mark struct{ class, path string }

var (
	markGood  = mark{"good", "M7 12.5l3.5 3.5L17 9"}
	markBad   = mark{"bad", "M8.5 8.5l7 7m0-7l-7 7"}
	markStray = mark{"stray", "M12 6.5v6.5m0 3.8v.2"}
)

const (
	onlyAnswers = "This address only receives the answer of a sign-in."
	mayClose    = "You can close this window."
)

var (
	pageAlready     = stray(http.StatusConflict, "Already received", "This sign-in was answered before.", mayClose)
	pageStray       = stray(http.StatusBadRequest, "Not the expected answer", "This does not belong to the sign-in that is going on.", "Use the address that the terminal shows.")
	pageNotFound    = stray(http.StatusNotFound, "Nothing here", onlyAnswers, mayClose)
	pageMethod      = stray(http.StatusMethodNotAllowed, "Not like this", onlyAnswers, mayClose)
	pageMisdirected = stray(http.StatusMisdirectedRequest, "Wrong host", onlyAnswers, mayClose)
	pageTooLong     = stray(http.StatusRequestURITooLong, "Address too long", onlyAnswers, mayClose)
)

func stray(status int, title, text, next string) page {
	return page{status: status, mark: markStray, title: title, text: text, next: next}
}

// endPage says how a login ended: to what and as whom the person is signed in
// now, or what went wrong.
func endPage(name string, a Account, err error) page {
	const bound = 400 // of an error that a server words
	if err != nil {
		words := err.Error()
		if e, ok := errors.AsType[*Error](err); ok && e.op == "sign-in" {
			words = e.Text // the title has said what it was
		}
		return page{status: http.StatusOK, mark: markBad, title: "Sign-in did not succeed",
			text: sentence(newRedactor(nil).clean(words, bound)), next: mayClose + " The terminal says how to go on."}
	}
	p := page{status: http.StatusOK, mark: markGood, title: "Signed in", next: mayClose}
	if name != "" {
		p.title += " to " + name
	}
	if who := cmp.Or(a.Email, a.Subject); who != "" {
		p.who = "as " + who
	}
	return p
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// pageStyle names every colour, and one for each of the two schemes: what a
// browser would take for its own is not known to contrast with ours.
const pageStyle = `:root{color-scheme:light dark;--ground:#f4f5f7;--card:#fff;--line:#d8dde3;--ink:#1b2027;--dim:#57606b;--good:#1a7f37;--bad:#c0272d;--stray:#57606b}` +
	`@media(prefers-color-scheme:dark){:root{--ground:#0e1217;--card:#171c23;--line:#2d343d;--ink:#e9ecf0;--dim:#9ba5b1;--good:#4ac26b;--bad:#ff7b72;--stray:#9ba5b1}}` +
	`*{box-sizing:border-box}` +
	`body{margin:0;min-height:100vh;padding:1.5rem 1rem;display:grid;place-items:center;background:var(--ground);color:var(--ink);font:1rem/1.5 system-ui,sans-serif}` +
	`main{width:100%;max-width:27rem;padding:2.5rem 2rem 1.25rem;background:var(--card);border:1px solid var(--line);border-radius:1rem;text-align:center;text-wrap:balance;overflow-wrap:anywhere}` +
	`svg{display:block;width:3.5rem;height:3.5rem;margin:0 auto 1.25rem}` +
	`path{fill:none;stroke:var(--card);stroke-width:2.2;stroke-linecap:round;stroke-linejoin:round}` +
	`.good circle{fill:var(--good)}.bad circle{fill:var(--bad)}.stray circle{fill:var(--stray)}` +
	`h1{margin:0;font-size:1.5rem;font-weight:600;line-height:1.3}` +
	`small{display:block;margin-top:.375rem;font-size:1rem;font-weight:400}` +
	`p{margin:.75rem 0 0}` +
	`.next{margin-top:1.75rem;padding-top:1.125rem;border-top:1px solid var(--line);color:var(--dim);font-size:.9375rem}`

// body is the page in HTML: no script, nothing from elsewhere, and a heading
// that is the whole news for who hears it read.
func (p page) body() string {
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
		"<title>" + html.EscapeString(p.title) + " - spendonce</title>\n<style>" + pageStyle + "</style>\n</head>\n" +
		"<body>\n<main>\n" +
		"<svg class=\"" + p.mark.class + "\" viewBox=\"0 0 24 24\" aria-hidden=\"true\"><circle cx=\"12\" cy=\"12\" r=\"12\"/><path d=\"" + p.mark.path + "\"/></svg>\n" +
		"<h1>" + html.EscapeString(p.title))
	if p.who != "" {
		b.WriteString(" <small>" + html.EscapeString(p.who) + "</small>")
	}
	b.WriteString("</h1>\n")
	if p.text != "" {
		b.WriteString("<p>" + html.EscapeString(p.text) + "</p>\n")
	}
	b.WriteString("<p class=\"next\">" + html.EscapeString(p.next) + "</p>\n</main>\n</body>\n</html>\n")
	return b.String()
}

func (p page) write(w http.ResponseWriter, headOnly bool) {
	body := p.body()
	style := sha256.Sum256([]byte(pageStyle))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(style[:])+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.status == http.StatusMethodNotAllowed {
		h.Set("Allow", http.MethodGet)
	}
	w.WriteHeader(p.status)
	if !headOnly {
		_, _ = w.Write([]byte(body)) //nolint:gosec // body escapes what it shows
	}
}
