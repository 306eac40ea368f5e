package spendoncetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"
)

// ErrUnknownUserCode is what answering an unknown device request gives.
var ErrUnknownUserCode = errors.New("no device request waits under that user code")

const deviceLife = 10 * time.Minute

// device is a device authorization request (RFC 8628).
type device struct {
	client   string
	scope    string
	resource []string
	userCode string
	expires  time.Time
	interval time.Duration
	lastPoll time.Time
	account  string // once approved
	denied   bool
}

func (d *device) waits(now time.Time) bool {
	return d.account == "" && !d.denied && now.Before(d.expires)
}

func (s *TokenServer) deviceAuthorization(q *request) *response {
	if bad := s.checkForm(q); bad != nil {
		return bad
	}
	s.fetchClient(q, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	client, bad := s.authenticate(q)
	if bad != nil {
		return bad
	}
	if client.ID == "" {
		return invalidClient(q, "the client did not say who it is")
	}
	if !client.mayUse(grantDevice) {
		return oauthError(400, "unauthorized_client", "the client is not registered for the device grant")
	}
	if bad := s.refuseTarget(q, nil); bad != nil {
		return bad
	}
	now := time.Now()
	for key, d := range s.devices {
		if now.After(d.expires.Add(deviceLife)) {
			delete(s.devices, key)
		}
	}
	letters := rand.Text()
	d := &device{client: client.ID, scope: q.params.Get("scope"), resource: q.params["resource"], userCode: letters[:4] + "-" + letters[4:8],
		expires: now.Add(deviceLife), interval: s.cfg.DeviceInterval}
	value := "dc_" + random()
	s.devices[digestOf(value)] = d
	s.update(func(c *Counters) { c.DeviceRequests++ })
	verify := s.base + pathVerify
	return jsonResponse(200, map[string]any{"device_code": value, "user_code": d.userCode,
		"verification_uri": verify, "verification_uri_complete": verify + "?user_code=" + d.userCode,
		"expires_in": secondsLeft(d.expires, now), "interval": int64((d.interval + time.Second - 1) / time.Second)})
}

// redeemDevice answers a poll. mu is held.
func (s *TokenServer) redeemDevice(q *request, client Client, now time.Time) (*pair, *response) {
	key := digestOf(q.params.Get("device_code"))
	d := s.devices[key]
	switch {
	case client.ID == "":
		return nil, invalidClient(q, "the client did not say who it is")
	case d == nil || d.client != client.ID:
		return nil, oauthError(400, "invalid_grant", "the device code is not known")
	case d.denied:
		return nil, oauthError(400, "access_denied", "the user said no")
	case d.account == "" && now.After(d.expires):
		return nil, oauthError(400, "expired_token", "nobody approved in time")
	case d.account == "":
		early := !d.lastPoll.IsZero() && now.Sub(d.lastPoll) < d.interval*9/10
		d.lastPoll = now
		if early {
			d.interval += 5 * time.Second
			return nil, oauthError(400, "slow_down", "polled before the interval had passed")
		}
		return nil, oauthError(400, "authorization_pending", "nobody has approved yet")
	}
	if bad := s.refuseTarget(q, d.resource); bad != nil {
		return nil, bad
	}
	delete(s.devices, key)
	return s.signIn(&family{account: d.account, client: d.client, scope: d.scope, resource: d.resource, authTime: now}, now), nil
}

// ApproveDevice lets account sign in the device that shows userCode.
func (s *TokenServer) ApproveDevice(userCode, account string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.waitingDevice(userCode)
	if d == nil || account == "" {
		return ErrUnknownUserCode
	}
	d.account = account
	s.update(func(c *Counters) { c.Logins++ })
	return nil
}

// DenyDevice refuses the device that shows userCode.
func (s *TokenServer) DenyDevice(userCode string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.waitingDevice(userCode)
	if d == nil {
		return ErrUnknownUserCode
	}
	d.denied = true
	s.update(func(c *Counters) { c.Denials++ })
	return nil
}

// waitingDevice forgives case and a missing hyphen, as people type.
func (s *TokenServer) waitingDevice(userCode string) *device {
	plain := func(code string) string {
		return strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(code), "-", ""))
	}
	for _, d := range s.devices {
		if d.waits(time.Now()) && plain(d.userCode) == plain(userCode) {
			return d
		}
	}
	return nil
}

// verify is the page where a person enters the user code.
func (s *TokenServer) verify(q *request) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	userCode := q.params.Get("user_code")
	switch {
	case q.bad != "":
		return errorPage(q.bad)
	case q.r.Method != http.MethodPost:
		return s.verifyPage(q, userCode, "")
	case !s.sameBrowser(q, pathVerify):
		return errorPage("the form does not come from the browser that asked for it")
	}
	d := s.waitingDevice(userCode)
	if d == nil {
		return s.verifyPage(q, userCode, "No device waits under that code.")
	}
	done := page(http.StatusOK, "Done")
	if q.params.Get("action") == "deny" {
		d.denied = true
		s.update(func(c *Counters) { c.Denials++ })
		done.body += "<p>The device was refused.</p></body></html>\n"
		return done
	}
	if !s.rightPassword(q) {
		return s.verifyPage(q, userCode, "User name or password is wrong.")
	}
	d.account = q.params.Get("username")
	done.body += "<p>The device is signed in.</p></body></html>\n"
	return done
}

func (s *TokenServer) verifyPage(q *request, userCode, problem string) *response {
	r := page(http.StatusOK, "Sign in a device")
	browser := s.browserCookie(q, r)
	r.body += problemLine(problem) + fmt.Sprintf(`<form method="post" action="%s">
<input type="hidden" name="csrf" value="%s">
<p><label>Code on the device <input name="user_code" value="%s"></label></p>
%s</form>
</body></html>
`, pathVerify, s.csrf(browser, pathVerify), html.EscapeString(userCode), personFields(""))
	return r
}
