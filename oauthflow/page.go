package oauthflow

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
)

// page is one answer of the callback server: fixed words, nothing of the
// request.
type page struct {
	status      int
	title, text string
}

var (
	pageDone        = page{http.StatusOK, "Answer received", "You can close this window. The terminal shows how the sign-in ended."}
	pageFailed      = page{http.StatusOK, "Sign-in did not succeed", "You can close this window. The terminal says what happened."}
	pageAlready     = page{http.StatusConflict, "Already received", "This sign-in was answered before. You can close this window."}
	pageStray       = page{http.StatusBadRequest, "Not the expected answer", "This does not belong to the sign-in that is going on. Use the address that the terminal shows."}
	pageNotFound    = page{http.StatusNotFound, "Nothing here", "This address only receives the answer of a sign-in."}
	pageMethod      = page{http.StatusMethodNotAllowed, "Not like this", "This address only receives the answer of a sign-in."}
	pageMisdirected = page{http.StatusMisdirectedRequest, "Wrong host", "This address only receives the answer of a sign-in."}
	pageTooLong     = page{http.StatusRequestURITooLong, "Address too long", "This address only receives the answer of a sign-in."}
)

const pageStyle = `:root{color-scheme:light dark}` +
	`body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto 0;padding:0 1.5rem}` +
	`h1{font-size:1.4rem;margin:0 0 .5rem}`

func (p page) write(w http.ResponseWriter, headOnly bool) {
	body := "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
		"<title>" + p.title + " - spendonce</title>\n<style>" + pageStyle + "</style>\n</head>\n" +
		"<body>\n<main>\n<h1>" + p.title + "</h1>\n<p>" + p.text + "</p>\n</main>\n</body>\n</html>\n"
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
