package logincmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

func TestABrowserIsUsedWhereThePersonWouldSeeIt(t *testing.T) {
	for name, c := range map[string]struct {
		around surroundings
		want   flow
		why    string // a part of it
		fails  bool
	}{
		"a desktop":                      {around: surroundings{goos: "linux", display: true}, want: byBrowser},
		"a Mac":                          {around: surroundings{goos: "darwin"}, want: byBrowser},
		"WSL":                            {around: surroundings{goos: "linux", wsl: true}, want: byBrowser},
		"BROWSER, whatever else":         {around: surroundings{goos: "linux", browser: true, ssh: true, container: true}, want: byBrowser},
		"no display, with a device flow": {around: surroundings{goos: "linux", deviceFlow: true, terminal: true}, want: byDevice, why: "no display"},
		"no display, at a terminal":      {around: surroundings{goos: "linux", terminal: true}, want: byPaste, why: "no display"},
		"no display, nobody there":       {around: surroundings{goos: "linux"}, why: "no display", fails: true},
		"SSH with a forwarded display":   {around: surroundings{goos: "linux", display: true, ssh: true, terminal: true}, want: byPaste, why: "SSH"},
		"a container with a display":     {around: surroundings{goos: "linux", display: true, container: true, deviceFlow: true}, want: byDevice, why: "container"},
		"a Mac over SSH, nobody there":   {around: surroundings{goos: "darwin", ssh: true}, why: "SSH", fails: true},
	} {
		got, why, ok := c.around.choose()
		if ok == c.fails || ok && got != c.want || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s: flow %d because %q, %v", name, got, why, ok)
		}
	}
}

func TestWhatIsAskedForNeverLosesWhatWasGranted(t *testing.T) {
	offers := func(scopes ...string) found { return found{server: oauthflow.Server{ScopesSupported: scopes}} }
	for name, c := range map[string]struct {
		asked, before []string
		other         bool // server than before
		found         found
		machine       bool
		want          string
	}{
		"nothing":                      {},
		"what the user names":          {asked: []string{"a", "b", "a"}, want: "a b"},
		"and a session to be renewed":  {asked: []string{"a"}, found: offers("a", "offline_access", "openid"), want: "a offline_access"},
		"what the service demands":     {found: found{challenge: []string{"c"}, offered: []string{"d"}}, want: "c"},
		"what the service knows":       {found: found{offered: []string{"d"}}, want: "d"},
		"a name and a longer session":  {found: offers("email", "openid", "offline_access", "profile"), want: "offline_access openid email"},
		"more than before":             {asked: []string{"a"}, before: []string{"b", "openid"}, want: "b openid a"},
		"the same again":               {before: []string{"b"}, found: found{challenge: []string{"c"}}, want: "b"},
		"nothing of another server":    {asked: []string{"a"}, before: []string{"b"}, other: true, want: "a"},
		"for a machine, its own alone": {asked: []string{"a"}, before: []string{"b"}, found: offers("offline_access", "openid"), machine: true, want: "a"},
	} {
		got := wanted(c.asked, c.before, !c.other, c.found, c.machine)
		if strings.Join(got, " ") != c.want || slices.Contains(got, "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestASessionIsOfAnotherServerIfEitherIssuerOrEndpointIsAnother(t *testing.T) {
	const endpoint = "https://as.example/token"
	made := credstore.Pin{Issuer: "https://as.example", TokenEndpoint: endpoint, ClientID: "abc", ClientSecret: secret.New("S")}
	for name, c := range map[string]struct {
		server oauthflow.Server
		want   bool
	}{
		"the same":               {oauthflow.Server{Issuer: "https://as.example", TokenEndpoint: endpoint}, true},
		"with a root slash":      {oauthflow.Server{Issuer: "https://as.example/", TokenEndpoint: endpoint}, true},
		"who names its endpoint": {oauthflow.Server{Issuer: "https://evil.example", TokenEndpoint: endpoint, DeviceAuthorizationEndpoint: "https://evil.example/"}, false},
		"another endpoint":       {oauthflow.Server{Issuer: "https://as.example", TokenEndpoint: "https://as.example/new"}, false},
		"no endpoint":            {oauthflow.Server{Issuer: "https://as.example"}, false},
	} {
		if got := sameServer(made, c.server); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAnotherProcessesLoginIsAdoptedOnlyIfItIsAllThatIsWanted(t *testing.T) {
	theirs := credstore.Known{URL: "https://api.example", Hosts: []string{"https://cdn.example"}, Pin: credstore.Pin{
		TokenEndpoint: "https://as.example/token", Scope: []string{"a", "b"}, Resource: "r", ClientID: "abc",
	}}
	all := plan{url: theirs.URL, hosts: theirs.Hosts, server: oauthflow.Server{TokenEndpoint: theirs.Pin.TokenEndpoint}, asked: []string{"b"}, resource: "r", clientID: "abc"}
	if !all.metBy(theirs) || !(plan{server: all.server, resource: "r"}).metBy(theirs) {
		t.Error("it is not adopted")
	}
	for name, change := range map[string]func(*plan){
		"url":      func(p *plan) { p.url = "https://api.example/v2" },
		"host":     func(p *plan) { p.hosts = []string{"https://cdn.example", "https://img.example"} },
		"server":   func(p *plan) { p.server.TokenEndpoint = "https://other.example/token" },
		"scope":    func(p *plan) { p.asked = []string{"c"} },
		"resource": func(p *plan) { p.resource = "" },
		"client":   func(p *plan) { p.clientID = "xyz" },
		"use":      func(p *plan) { p.tokenUse = credstore.UseIDToken },
	} {
		p := all
		if change(&p); p.metBy(theirs) {
			t.Errorf("another %s is adopted", name)
		}
	}
}

func TestAPasswordInAnAddressIsNotRepeated(t *testing.T) {
	configured := config.Target{URL: "https://api.example", Issuer: "https://as.example"}
	for _, f := range []loginFlags{{url: "https://u:canary@api.example"}, {issuer: "https://u:canary@as.example"}} {
		if _, err := merged(configured, f); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
}
