package credstore

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
)

// quickSession reads a session file as this version writes it, without
// reflection: the first use of that costs a process that only waits more than
// everything else it does. Whatever is not quite so (a member more, another
// type) is left to the careful way, which says what is wrong and keeps what it
// does not know.
func quickSession(b []byte) (*session, bool) {
	s := &session{}
	r := quickReader{}
	r.object(b, func(name string, v jsontext.Value) bool {
		switch name {
		case "version":
			s.Version = r.integer(v)
		case "target":
			s.Target = r.text(v)
		case "url":
			s.URL = r.text(v)
		case "hosts":
			s.Hosts = []string{}
			r.list(v, func(v jsontext.Value) { s.Hosts = append(s.Hosts, r.text(v)) })
		case "loginId":
			s.LoginID = r.text(v)
		case "pin":
			s.Pin = &Pin{}
			r.pin(v, s.Pin)
		case "unknownServer":
			s.UnknownServer = r.boolean(v)
		case "moving":
			s.Moving = r.boolean(v)
		case "obtainedAt":
			s.ObtainedAt = r.time(v)
		case "lifetimeSeconds":
			s.LifetimeSeconds = r.number(v)
		case "refreshToken":
			s.RefreshToken = r.text(v)
		case "loginRequired":
			s.LoginRequired = r.text(v)
		case "notBefore":
			s.NotBefore = r.time(v)
		case "failures":
			s.Failures = r.integer(v)
		case "forced":
			s.Forced = []time.Time{}
			r.list(v, func(v jsontext.Value) { s.Forced = append(s.Forced, r.time(v)) })
		case "lastOutcome":
			s.LastOutcome = &Outcome{}
			r.outcome(v, s.LastOutcome)
		default:
			return false
		}
		return true
	})
	return s, !r.bad
}

// quickReader goes bad at the first surprise.
type quickReader struct{ bad bool }

func (r *quickReader) expect(ok bool) {
	if !ok {
		r.bad = true
	}
}

func (r *quickReader) pin(v jsontext.Value, p *Pin) {
	members := map[string]*string{
		"issuer": &p.Issuer, "authorizationEndpoint": &p.AuthorizationEndpoint, "tokenEndpoint": &p.TokenEndpoint,
		"revocationEndpoint": &p.RevocationEndpoint, "registrationEndpoint": &p.RegistrationEndpoint, "clientId": &p.ClientID,
		"clientAuth": &p.ClientAuth, "redirectUri": &p.RedirectURI, "resource": &p.Resource, "dialect": &p.Dialect,
		"subject": &p.Subject, "email": &p.Email, "grant": &p.Grant, "tokenUse": &p.TokenUse,
	}
	r.object(v, func(name string, v jsontext.Value) bool {
		switch to := members[name]; {
		case to != nil:
			*to = r.text(v)
		case name == "clientSecret":
			p.ClientSecret = secret.New(r.text(v))
		case name == "registered":
			p.Registered = r.boolean(v)
		case name == "scope":
			p.Scope = []string{}
			r.list(v, func(v jsontext.Value) { p.Scope = append(p.Scope, r.text(v)) })
		default:
			return false
		}
		return true
	})
}

func (r *quickReader) outcome(v jsontext.Value, o *Outcome) {
	r.object(v, func(name string, v jsontext.Value) bool {
		switch name {
		case "id":
			o.ID = r.text(v)
		case "time":
			o.Time = r.time(v)
		case "refreshToken":
			o.RefreshToken = r.text(v)
		case "class":
			o.Class = Class(r.text(v))
		case "outcomeUnknown":
			o.Unknown = r.boolean(v)
		case "status":
			o.Status = r.integer(v)
		case "code":
			o.Code = r.text(v)
		case "text":
			o.Text = r.text(v)
		case "serverDate":
			o.ServerDate = r.time(v)
		default:
			return false
		}
		return true
	})
}

// object calls member for each member, which returns false if it does not
// know it.
func (r *quickReader) object(b []byte, member func(name string, v jsontext.Value) bool) {
	doc, err := parseDocument(b)
	if err != nil {
		r.bad = true
		return
	}
	for _, m := range doc.members {
		if !member(m.name, m.value) {
			r.bad = true
		}
		if r.bad {
			return
		}
	}
}

func (r *quickReader) list(v jsontext.Value, item func(jsontext.Value)) {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := d.ReadToken(); err != nil || v.Kind() != '[' {
		r.bad = true
		return
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			r.bad = true
			return
		}
		item(v)
	}
}

func (r *quickReader) text(v jsontext.Value) string {
	s, err := jsontext.AppendUnquote(nil, v)
	r.expect(err == nil && v.Kind() == '"')
	return string(s)
}

func (r *quickReader) boolean(v jsontext.Value) bool {
	r.expect(v.Kind() == 't' || v.Kind() == 'f')
	return v.Kind() == 't'
}

func (r *quickReader) time(v jsontext.Value) time.Time {
	text := r.text(v)
	t, err := time.Parse(time.RFC3339, text)
	// Parse also takes an hour of one digit and a comma.
	r.expect(err == nil && len(text) >= 20 && text[13] == ':' && strings.IndexByte(".Z+-", text[19]) >= 0)
	return t
}

func (r *quickReader) number(v jsontext.Value) float64 {
	n, err := strconv.ParseFloat(string(v), 64)
	r.expect(err == nil && v.Kind() == '0')
	return n
}

func (r *quickReader) integer(v jsontext.Value) int {
	n, err := strconv.Atoi(string(v))
	r.expect(err == nil && v.Kind() == '0')
	return n
}
