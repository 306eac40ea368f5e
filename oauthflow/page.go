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
	status      int
	title, text string
}

var (
	pageAlready     = page{http.StatusConflict, "Already received", "This sign-in was answered before. You can close this window."}
	pageStray       = page{http.StatusBadRequest, "Not the expected answer", "This does not belong to the sign-in that is going on. Use the address that the terminal shows."}
	pageNotFound    = page{http.StatusNotFound, "Nothing here", "This address only receives the answer of a sign-in."}
	pageMethod      = page{http.StatusMethodNotAllowed, "Not like this", "This address only receives the answer of a sign-in."}
	pageMisdirected = page{http.StatusMisdirectedRequest, "Wrong host", "This address only receives the answer of a sign-in."}
	pageTooLong     = page{http.StatusRequestURITooLong, "Address too long", "This address only receives the answer of a sign-in."}
)

// endPage says how a login ended: to what and as whom the person is signed in
// now, or what went wrong.
func endPage(name string, a Account, err error) page {
	const bound = 400 // of an error that a server words
	if err != nil {
		words := err.Error()
		if e, ok := errors.AsType[*Error](err); ok && e.op == "sign-in" {
			words = e.Text // the title has said what it was
		}
		text := newRedactor(nil).clean(words, bound)
		return page{http.StatusOK, "Sign-in did not succeed", sentence(text) + " You can close this window; the terminal says how to go on."}
	}
	text := "Signed in"
	if name != "" {
		text += " to " + name
	}
	if who := cmp.Or(a.Email, a.Subject); who != "" {
		text += " as " + who
	}
	return page{http.StatusOK, "Signed in", text + ". You can close this window."}
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

const pageStyle = `:root{color-scheme:light dark}` +
	`body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto 0;padding:0 1.5rem}` +
	`h1{font-size:1.4rem;margin:0 0 .5rem}`

func (p page) write(w http.ResponseWriter, headOnly bool) {
	body := "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
		"<title>" + html.EscapeString(p.title) + " - spendonce</title>\n<style>" + pageStyle + "</style>\n</head>\n" +
		"<body>\n<main>\n<h1>" + html.EscapeString(p.title) + "</h1>\n<p>" + html.EscapeString(p.text) + "</p>\n</main>\n</body>\n</html>\n"
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
		_, _ = w.Write([]byte(body))
	}
}
