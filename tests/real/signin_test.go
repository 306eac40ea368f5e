package real_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spendonce/spendonce/tests/real/person"
)

// loginWay is how the person learns where to go.
type loginWay int

const (
	byBrowser loginWay = iota // the program starts $BROWSER with the address
	byPrinted                 // the program prints it
	byDevice                  // it prints one for another device
)

// walk is what somebody does at the address.
type walk func(ctx context.Context, address string) (person.Page, error)

func (u *user) loginArgs(way loginWay) []string {
	args := []string{"login", u.target,
		"--url", u.server.Resource(),
		"--issuer", u.server.Issuer(),
		"--client-id", u.server.ClientID(),
	}
	for _, scope := range u.server.Scopes() {
		args = append(args, "--scope", scope)
	}
	if way == byPrinted {
		args = append(args, "--no-browser")
	}
	return args
}

// login runs "login" and lets somebody walk the pages while it waits.
func (u *user) login(ctx context.Context, way loginWay, who person.Person) (result, person.Page) {
	u.t.Helper()
	return u.signIn(ctx, way, u.server, u.loginArgs(way), who.SignIn)
}

// signIn runs a login and has somebody go to the address that it shows.
func (m *machine) signIn(ctx context.Context, way loginWay, a authority, args []string, walk walk) (result, person.Page) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &running{machine: m, ctx: ctx, cmd: m.command(ctx, args...), args: args}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	var found <-chan string
	switch way {
	case byBrowser:
		var browser string
		browser, found = m.fakeBrowser(ctx)
		r.cmd.Env = append(r.cmd.Env, "BROWSER="+browser)
	case byPrinted:
		found = r.awaitPrinted(regexp.QuoteMeta(a.AuthorizationEndpoint()) + `\?\S+`)
	case byDevice:
		found = r.awaitPrinted(regexp.QuoteMeta(a.Issuer()) + `\S*\?user_code=\S+`)
	}

	if err := r.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan result, 1)
	failed := make(chan error, 1)
	go func() {
		got, err := r.end()
		if err != nil {
			failed <- err
			return
		}
		ended <- got
	}()

	var page person.Page
	select {
	case address := <-found:
		var err error
		if page, err = walk(ctx, address); err != nil {
			cancel()
			m.t.Fatalf("the person did not get through: %v (%v)", err, <-failed)
		}
	case got := <-ended:
		return got, page
	case err := <-failed:
		m.t.Fatal(err)
	}
	select {
	case got := <-ended:
		return got, page
	case err := <-failed:
		m.t.Fatal(err)
	}
	panic("not reached")
}

// mustLogin signs in, for tests that are about what comes after it.
func (u *user) mustLogin(ctx context.Context) {
	u.t.Helper()
	if r, _ := u.login(ctx, byPrinted, u.server.Account()); r.code != exitOK {
		u.t.Fatal(r)
	}
}

// fakeBrowser makes a program that passes its one argument on.
func (m *machine) fakeBrowser(ctx context.Context) (path string, urls <-chan string) {
	m.t.Helper()
	dir := m.t.TempDir()
	pipe := filepath.Join(dir, "urls")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		m.t.Fatal(err)
	}
	path = filepath.Join(dir, "browser")
	script := fmt.Sprintf("#!/bin/sh\n[ $# -eq 1 ] || { echo \"$# arguments\" >'%[1]s'; exit 1; }\nprintf '%%s\\n' \"$1\" >'%[1]s'\n", pipe)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		m.t.Fatal(err)
	}
	// Open for both, so that neither this nor the browser waits for the other.
	reader, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		if line, err := bufio.NewReader(reader).ReadString('\n'); err == nil {
			lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	context.AfterFunc(ctx, func() { _ = reader.Close() })
	return path, lines
}
