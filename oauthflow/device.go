package oauthflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

const grantDevice = "urn:ietf:params:oauth:grant-type:device_code"

var (
	// ErrNoDevice: the server has no device authorization endpoint.
	ErrNoDevice = errors.New("the server has no sign-in by device code: sign in with the browser, or with --paste")
	// ErrDeviceExpired: nobody approved while the code was good.
	ErrDeviceExpired = errors.New("the code ran out before anybody approved it: start the sign-in again")
	// ErrDeviceDenied: the person said no.
	ErrDeviceDenied = errors.New("the sign-in was refused on the page: start it again if that was a mistake")
)

// DevicePrompt is what a person needs to approve a device. All of it is
// printable ASCII, and the addresses are absolute http or https URLs without
// user information.
type DevicePrompt struct {
	VerificationURI         string
	VerificationURIComplete string // with the code in it; "": none
	UserCode                string // at most 64 bytes
	ExpiresAt               time.Time
}

// DeviceLogin signs a person in on another device (RFC 8628), for machines
// that have no browser.
//
// No lock should be held while it runs: it waits for a person.
type DeviceLogin struct {
	Requester Requester
	Server    Server
	Client    Client
	Scopes    []string
	Resource  string // RFC 8707, sent on both legs; empty: not sent

	// Prompt shows the person where to go. It is called once and must not
	// wait; what it shows is good until ExpiresAt.
	Prompt func(DevicePrompt)
	// Keep, if set, is given the result before Run returns. Its error is that
	// of the login.
	Keep func(ctx context.Context, res Result) error

	wait  func(context.Context, time.Duration) error // nil: a timer; tests drive it
	bound time.Duration                              // 0: pollBound; tests shrink it
}

// Run signs in, and returns when the tokens are there and kept, when the
// person or the server refused, when the code ran out, or when ctx ended. The
// server is never asked more often than it wants, and answers that fail to
// come make the pauses longer, not the sign-in fail.
//
// Errors of the server are [*Error]; those of the person are [ErrDeviceDenied]
// and [ErrDeviceExpired] within one.
func (l *DeviceLogin) Run(ctx context.Context) (Result, error) {
	if l.Prompt == nil {
		return Result{}, errors.New("signing in by device code: nobody is told the code")
	}
	grant, err := l.request(ctx)
	if err != nil {
		return Result{}, err
	}
	l.Prompt(grant.prompt)
	res := Result{Client: l.Client}
	if res.Tokens, err = l.poll(ctx, grant); err != nil {
		return Result{}, err
	}
	if !res.Tokens.IDToken.Empty() {
		res.Account, err = readAccount(res.Tokens.IDToken, l.Server.Issuer, l.Client.ID, secret.Secret{}, l.Requester.now())
		if err != nil {
			// The account is only shown, so the tokens are good without it.
			res.Tokens.Warnings = append(res.Tokens.Warnings, "the account is unknown: "+err.Error())
		}
	}
	if l.Keep != nil {
		if err := l.Keep(ctx, res); err != nil {
			return Result{}, err
		}
	}
	return res, nil
}

// request asks for the codes (RFC 8628 section 3.1).
func (l *DeviceLogin) request(ctx context.Context) (deviceGrant, error) {
	const op = "device authorization"
	refuse := func(err error) (deviceGrant, error) {
		return deviceGrant{}, &Error{op: op, Class: ClassWrongRequest, NotSent: true, Text: "not sent: " + err.Error(), cause: err}
	}
	if l.Server.DeviceAuthorizationEndpoint == "" || l.Server.Dialect == Hypaware {
		return refuse(ErrNoDevice)
	}
	endpoint, err := parseEndpoint("device authorization endpoint", l.Server.DeviceAuthorizationEndpoint)
	if err == nil {
		_, err = tokenEndpoint(l.Server)
	}
	if err == nil && l.Client.ID == "" {
		err = errors.New("there is no client id")
	}
	if err != nil {
		return refuse(err)
	}
	out := outgoing{op: op, method: http.MethodPost, url: endpoint, header: http.Header{}}
	form := out.authenticate(l.Server, l.Client, wanted(l.Scopes, l.Resource))
	out.header.Set("Content-Type", "application/x-www-form-urlencoded")
	out.body = strings.NewReader(encodeForm(form))
	now := l.Requester.now()
	a, e := l.Requester.exchange(ctx, out)
	if e != nil {
		return deviceGrant{}, e
	}
	b := readBody(a)
	grant, flaw := b.deviceGrant(now, out.sent)
	row := judgeRow(a.Status, b, flaw)
	if row == rowSuccess {
		return grant, nil
	}
	if row == rowRefused {
		row = rowElse // a bare 401 speaks of the client here, not of a grant
	}
	return deviceGrant{}, failure(op, a, b, row, flaw, now, out.sent)
}

// poll asks for the tokens until there is something else to say than to wait
// (RFC 8628 sections 3.4 and 3.5).
func (l *DeviceLogin) poll(ctx context.Context, grant deviceGrant) (Tokens, error) {
	wait := l.wait
	if wait == nil {
		wait = sleep
	}
	form := append([]field{{"grant_type", grantDevice}, {"device_code", grant.code.Reveal()}}, wanted(nil, l.Resource)...)
	p := pace{interval: grant.interval, pause: grant.interval}
	for lost := false; ; {
		// By the wall clock, which goes on while the machine sleeps.
		left := grant.prompt.ExpiresAt.Sub(l.Requester.now().Round(0))
		if err := wait(ctx, min(p.pause, left)); err != nil {
			return Tokens{}, fmt.Errorf("waiting for the approval: %w", err)
		}
		if !l.Requester.now().Round(0).Before(grant.prompt.ExpiresAt) {
			return Tokens{}, deviceError(&Error{Code: "expired_token"})
		}
		bounded, cancel := context.WithTimeout(ctx, cmp.Or(l.bound, pollBound))
		t, err := l.Requester.token(bounded, l.Server, l.Client, form, grant.code)
		cancel()
		var e *Error
		if !errors.As(err, &e) {
			return t, err
		}
		if ctx.Err() != nil {
			return Tokens{}, fmt.Errorf("waiting for the approval: %w", ctx.Err())
		}
		var again bool
		if p, again = p.after(e); again {
			lost = lost || e.Broken
			continue
		}
		if e = deviceError(e); lost && e.Code == "invalid_grant" {
			e.Text += "; the answer with the tokens may have been lost before: start the sign-in again"
		}
		return Tokens{}, e
	}
}

// deviceError gives the two ends that a person brings about their own words.
func deviceError(e *Error) *Error {
	switch e.Code {
	case "access_denied":
		e.cause = ErrDeviceDenied
	case "expired_token":
		e.cause = ErrDeviceExpired
	default:
		return e
	}
	e.op, e.Class, e.Text = "device sign-in", ClassRefused, e.cause.Error()
	return e
}

const (
	// pollBound is how long one answer may take.
	pollBound = 30 * time.Second
	// slowDown is what each slow_down adds to the interval.
	slowDown = 5 * time.Second
	// maxPause is the longest pause that failures make, if the interval is no
	// longer.
	maxPause = time.Minute
)

// pace is how often the server is asked: every interval, but after failures
// in growing pauses.
type pace struct{ interval, pause time.Duration }

// after says when to ask again after an error, if at all.
func (p pace) after(e *Error) (_ pace, again bool) {
	switch {
	case e.Code == "authorization_pending":
		p.pause = p.interval
	case e.Code == "slow_down":
		p.interval += slowDown
		p.pause = p.interval
	case e.Code == "access_denied" || e.Code == "expired_token":
		return p, false
	case e.Class == ClassTemporary:
		p.pause = max(min(2*p.pause, maxPause), p.interval, e.RetryAfter)
	default:
		return p, false
	}
	return p, true
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// deviceGrant is the answer to a device authorization request.
type deviceGrant struct {
	code     secret.Secret
	prompt   DevicePrompt
	interval time.Duration
}

// Bounds of what a server may say. It is bad manners at most to wait too short
// a time, and the server's own loss; what is left out has its default from RFC
// 8628, or ours.
const (
	defaultInterval = 5 * time.Second
	minInterval     = 50 * time.Millisecond
	maxInterval     = time.Hour
	defaultCodeLife = 10 * time.Minute
	maxCodeLife     = 24 * time.Hour
)

// deviceGrant reads RFC 8628 section 3.2. flaw says why there is none.
func (b body) deviceGrant(now time.Time, sent []secret.Secret) (g deviceGrant, flaw string) {
	code := b.text("device_code")
	g.prompt = DevicePrompt{
		VerificationURI:         cmp.Or(b.text("verification_uri"), b.text("verification_url")), // the latter in drafts, and at Google
		VerificationURIComplete: cmp.Or(b.text("verification_uri_complete"), b.text("verification_url_complete")),
		UserCode:                b.text("user_code"),
	}
	switch {
	case !validToken(code) || len(code) > 8192:
		return deviceGrant{}, "no device code"
	case g.prompt.UserCode == "" || len(g.prompt.UserCode) > 64 || strings.Trim(g.prompt.UserCode, " ") == "" || printable(g.prompt.UserCode) != g.prompt.UserCode:
		return deviceGrant{}, "no user code that could be shown"
	case !showable(g.prompt.VerificationURI):
		return deviceGrant{}, "no address that a person could open"
	case !showable(g.prompt.VerificationURIComplete):
		g.prompt.VerificationURIComplete = ""
	}
	g.code = secret.New(code)
	red := newRedactor(append([]secret.Secret{g.code}, sent...))
	if red.finds(g.prompt.UserCode) || red.finds(g.prompt.VerificationURI) || red.finds(g.prompt.VerificationURIComplete) {
		return deviceGrant{}, "a secret where a person would see it"
	}
	life := b.seconds("expires_in", defaultCodeLife, 0, maxCodeLife)
	g.prompt.ExpiresAt = now.Round(0).Add(life)
	g.interval = b.seconds("interval", defaultInterval, minInterval, maxInterval)
	return g, ""
}

// seconds reads a duration; zero, and what is no number, count as left out.
func (b body) seconds(name string, absent, least, most time.Duration) time.Duration {
	text, _ := numberText(b.members[name])
	n, ok := number(text)
	if !ok || n <= 0 {
		return absent
	}
	return max(least, time.Duration(min(n, most.Seconds())*float64(time.Second)))
}

// showable admits what is safe to print and to open.
func showable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		validToken(address) && len(address) <= 2048
}
