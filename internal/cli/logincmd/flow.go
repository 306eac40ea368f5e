package logincmd

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/term"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/oauthflow"
)

// flow is how the person, or the machine, signs in.
type flow int

const (
	byBrowser flow = iota
	byDevice       // RFC 8628
	byPaste
	byClient // RFC 6749 section 4.4
)

// surroundings is what the choice of a flow depends on.
type surroundings struct {
	goos       string
	browser    bool // $BROWSER names one
	ssh        bool
	container  bool
	display    bool
	wsl        bool
	terminal   bool // somebody can paste something
	deviceFlow bool // the server offers it
}

func lookAround(server oauthflow.Server, in any) surroundings {
	set := func(names ...string) bool {
		for _, n := range names {
			if os.Getenv(n) != "" {
				return true
			}
		}
		return false
	}
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	file, isFile := in.(*os.File)
	return surroundings{
		goos: runtime.GOOS, browser: set("BROWSER"), ssh: set("SSH_CONNECTION", "SSH_TTY"),
		container: set("container") || exists("/.dockerenv") || exists("/run/.containerenv"),
		display:   set("DISPLAY", "WAYLAND_DISPLAY"), wsl: set("WSL_DISTRO_NAME"),
		terminal: isFile && term.IsTerminal(int(file.Fd())), deviceFlow: server.DeviceAuthorizationEndpoint != "",
	}
}

// choose decides how to sign in where no flag does, and says why. ok is false
// if there is no way.
func (s surroundings) choose() (f flow, why string, ok bool) {
	switch {
	case s.browser: // whoever sets it knows better than we can guess
		return byBrowser, "", true
	case s.ssh:
		why = "this is an SSH session, so a browser here would not be before your eyes"
	case s.container:
		why = "this is a container, which no browser can come back to"
	case s.goos != "darwin" && !s.display && !s.wsl:
		why = "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)"
	default:
		return byBrowser, "", true
	}
	switch {
	case s.deviceFlow:
		return byDevice, why, true
	case s.terminal:
		return byPaste, why, true
	}
	return byBrowser, why, false
}

// choose follows the flags, or else the surroundings.
func (a *app) choose(f loginFlags, p plan) (flow, error) {
	switch {
	case f.clientCredentials:
		return byClient, nil
	case f.device && p.server.DeviceAuthorizationEndpoint == "":
		return 0, streams.Usage("%s offers no sign-in by device code: leave --device out, or use --paste", serverName(p.server))
	case f.device:
		return byDevice, nil
	case f.paste:
		return byPaste, nil
	case f.noBrowser:
		return byBrowser, nil
	}
	chosen, why, ok := lookAround(p.server, a.Streams.In).choose()
	if !ok {
		return 0, &streams.Exit{Code: 1, Err: fmt.Errorf(
			"nobody can be asked to sign in: %s, %s offers no sign-in by device code, and standard input is no terminal; run 'spendonce login' with --paste in a terminal, with --no-browser where a browser on this machine can open an address, or with --client-credentials or --token-file for a machine",
			why, serverName(p.server))}
	}
	if why != "" {
		how := "with a code on another device"
		if chosen == byPaste {
			how = "with a browser on another machine"
		}
		a.Say("Signing in %s: %s. (--device, --paste and --no-browser choose otherwise.)", how, why)
	}
	return chosen, nil
}

// run signs in.
func (l *login) run(ctx context.Context) error {
	p := l.plan
	switch l.flow {
	case byClient:
		t, err := p.requester.ClientCredentials(ctx, oauthflow.ClientCredentialsRequest{
			Server: p.server, Client: p.client, Scopes: p.scopes, Resource: p.resource,
		})
		if err != nil {
			return err
		}
		return l.keep(ctx, oauthflow.Result{Tokens: t, Client: p.client})
	case byDevice:
		client, err := l.deviceClient(ctx)
		if err != nil {
			return err
		}
		device := &oauthflow.DeviceLogin{
			Requester: p.requester, Server: p.server, Client: client.Client, Scopes: p.scopes, Resource: p.resource,
			Prompt: l.app.showDevice,
		}
		if client.AuthMethod != "" {
			device.Server.TokenAuthMethods = []string{client.AuthMethod}
		}
		device.Keep = func(ctx context.Context, res oauthflow.Result) error {
			res.AuthMethod = client.AuthMethod
			return l.keep(ctx, res)
		}
		_, err = device.Run(ctx)
		return err
	}
	browser := &oauthflow.BrowserLogin{
		Requester: p.requester, Server: p.server, Client: p.client, Scopes: p.scopes, Resource: p.resource,
		RedirectPort: p.port, Name: l.target, URLOut: l.app.Streams.Err, Keep: l.keep,
	}
	if p.register {
		browser.Register = l.register
	}
	if l.flow == byPaste {
		browser.Pasted = l.app.Streams.In
	}
	if l.flow == byPaste || p.noBrowser {
		browser.Open = func(context.Context, string) error { return nil }
	}
	_, err := browser.Run(ctx)
	return err
}

// showDevice tells the person what to do on another device.
func (a *app) showDevice(p oauthflow.DevicePrompt) {
	fmt.Fprintf(a.Streams.Err, "On any device, open\n\n  %s\n\nand enter the code\n\n  %s\n\n", p.VerificationURI, p.UserCode)
	if p.VerificationURIComplete != "" {
		fmt.Fprintf(a.Streams.Err, "or open this address, which has the code in it:\n\n  %s\n\n", p.VerificationURIComplete)
	}
}
