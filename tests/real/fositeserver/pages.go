package fositeserver

import (
	"crypto/rand"
	"crypto/subtle"
	"html/template"
	"net/http"
	"net/url"
	"sync"

	"github.com/ory/fosite"

	"github.com/spendonce/spendonce/tests/real/person"
)

var account = person.Person{Username: "ada", Password: "correct horse battery staple"}

const cookieName = "as_session"

// visit is one browser on its way through an authorization request.
type visit struct {
	csrf    string
	request url.Values // the authorization request as it arrived
	subject string     // empty until the password was right
}

type visits struct {
	mu   *sync.Mutex
	byID map[string]visit
}

func newVisits() visits { return visits{mu: new(sync.Mutex), byID: map[string]visit{}} }

func (v visits) put(id string, to visit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byID[id] = to
}

func (v visits) get(r *http.Request) (id string, found visit, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", visit{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok = v.byID[cookie.Value]
	return cookie.Value, found, ok
}

func (v visits) end(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byID, id)
}

var pages = template.Must(template.New("pages").Parse(`
{{define "head"}}<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.}}</title></head><body><h1>{{.}}</h1>{{end}}

{{define "login"}}{{template "head" "Sign in"}}
{{with .Problem}}<p role="alert">{{.}}</p>{{end}}
<form method="post" action="/login">
<input type="hidden" name="csrf" value="{{.CSRF}}">
<label>Name <input name="username" autocomplete="username"></label>
<label>Password <input name="password" type="password" autocomplete="current-password"></label>
<button>Sign in</button>
</form></body></html>{{end}}

{{define "consent"}}{{template "head" "Allow access?"}}
<p>{{.Client}} asks for: {{.Scope}}</p>
<form method="post" action="/consent">
<input type="hidden" name="csrf" value="{{.CSRF}}">
<button name="decision" value="deny">Deny</button>
<button name="decision" value="allow">Allow</button>
</form></body></html>{{end}}
`))

type pageData struct {
	CSRF    string
	Problem string
	Client  string
	Scope   string
}

func show(w http.ResponseWriter, status int, page string, data pageData) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Frame-Options", "DENY")
	w.WriteHeader(status)
	_ = pages.ExecuteTemplate(w, page, data)
}

// authorize lets fosite judge the request before anybody is asked to sign in.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := s.provider.NewAuthorizeRequest(ctx, r)
	if err != nil {
		s.provider.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	id := rand.Text()
	s.visits.put(id, visit{csrf: rand.Text(), request: r.URL.Query()})
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: id, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}

func (s *Server) showLogin(w http.ResponseWriter, r *http.Request) {
	_, visit, ok := s.visits.get(r)
	if !ok {
		http.Error(w, "no sign-in was begun in this browser", http.StatusBadRequest)
		return
	}
	show(w, http.StatusOK, "login", pageData{CSRF: visit.csrf})
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	id, visit, ok := s.submitted(w, r)
	if !ok {
		return
	}
	username := r.PostFormValue("username")
	if _, err := s.store.Authenticate(r.Context(), username, r.PostFormValue("password")); err != nil {
		show(w, http.StatusUnauthorized, "login", pageData{CSRF: visit.csrf, Problem: "Wrong name or password."})
		return
	}
	visit.subject = username
	s.visits.put(id, visit)
	http.Redirect(w, r, consentPath, http.StatusSeeOther)
}

func (s *Server) showConsent(w http.ResponseWriter, r *http.Request) {
	_, visit, ok := s.visits.get(r)
	if !ok || visit.subject == "" {
		http.Error(w, "not signed in", http.StatusForbidden)
		return
	}
	show(w, http.StatusOK, "consent", pageData{
		CSRF:   visit.csrf,
		Client: visit.request.Get("client_id"),
		Scope:  visit.request.Get("scope"),
	})
}

func (s *Server) consent(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	id, visit, ok := s.submitted(w, r)
	if !ok {
		return
	}
	if visit.subject == "" {
		http.Error(w, "not signed in", http.StatusForbidden)
		return
	}
	s.visits.end(id)

	// The request is built again from what arrived at the start, so that
	// nothing a form adds can change what was asked for.
	original, err := http.NewRequestWithContext(ctx, http.MethodGet, s.issuer+authorizePath+"?"+visit.request.Encode(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	request, err := s.provider.NewAuthorizeRequest(ctx, original)
	if err != nil {
		s.provider.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	if r.PostFormValue("decision") != "allow" {
		s.provider.WriteAuthorizeError(ctx, w, request, fosite.ErrAccessDenied.WithHint("The account holder said no."))
		return
	}
	for _, scope := range request.GetRequestedScopes() {
		request.GrantScope(scope)
	}
	response, err := s.provider.NewAuthorizeResponse(ctx, request, &fosite.DefaultSession{
		Username: visit.subject,
		Subject:  visit.subject,
	})
	if err != nil {
		s.provider.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	s.provider.WriteAuthorizeResponse(ctx, w, request, response)
}

// submitted accepts a form only from the browser it was shown to.
func (s *Server) submitted(w http.ResponseWriter, r *http.Request) (string, visit, bool) {
	id, visit, ok := s.visits.get(r)
	if !ok || subtle.ConstantTimeCompare([]byte(visit.csrf), []byte(r.PostFormValue("csrf"))) != 1 {
		http.Error(w, "this form was not shown to this browser", http.StatusForbidden)
		return "", visit, false
	}
	return id, visit, true
}
