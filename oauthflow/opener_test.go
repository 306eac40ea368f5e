package oauthflow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/oauthflow"
)

func TestTheOpenerIsTheOneThePersonChose(t *testing.T) {
	const u = "https://as.example/a?x=%s&y=1"
	for _, c := range []struct {
		browser, goos string
		want          [][]string
	}{
		{"", "linux", [][]string{{"xdg-open", u}}},
		{"", "darwin", [][]string{{"open", u}}},
		{"firefox", "linux", [][]string{{"firefox", u}}},
		{"/opt/my browser/run", "linux", [][]string{{"/opt/my browser/run", u}}},
		{"firefox:/bin/false::w3m", "linux", [][]string{{"firefox", u}, {"/bin/false", u}, {"w3m", u}}},
		{"chromium --app=%s --x", "darwin", [][]string{{"chromium", "--app=" + u, "--x"}}},
		{"firefox %s:w3m", "linux", [][]string{{"firefox", u}, {"w3m", u}}},
		{": :", "linux", [][]string{{"xdg-open", u}}},
	} {
		if got := oauthflow.Openers(c.browser, c.goos, u); !reflect.DeepEqual(got, c.want) {
			t.Errorf("BROWSER=%q: %q, want %q", c.browser, got, c.want)
		}
	}
}

// script makes a program for $BROWSER.
func script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// loginBeside runs a login whose opener is the system's, and answers it from
// the printed address alone. It returns that address.
func loginBeside(t *testing.T, before func()) string {
	t.Helper()
	a := newAuthorizer(t)
	l := a.login()
	// Everything that a shell would act on.
	l.Server.AuthorizationEndpoint = a.URL + "/auth;touch x?a=$(id)&b=`id`&c='|%22>x&d=%0a-e"
	printed := make(address, 1)
	l.URLOut = printed
	answered := make(chan string, 1)
	go func() {
		u := <-printed
		before()
		q := query(t, u)
		a.asked <- q
		_ = body(t, hit(t, "GET", q.Get("redirect_uri")+"?code="+theCode+"&state="+q.Get("state")))
		answered <- u
	}()
	if _, err := l.Run(deadline(t)); err != nil {
		t.Errorf("the login failed: %v", err)
	}
	return <-answered
}

func TestALoginNeedsNoOpener(t *testing.T) {
	for name, browser := range map[string]string{
		"none": "", "failing": "/bin/false", "missing": "/nonexistent/browser", "several": "nope:/bin/false:/dev/null", "odd": "%s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			t.Setenv("BROWSER", browser)
			loginBeside(t, func() {})
		})
	}
}

func TestAnOpenerThatNeverReturnsHoldsNothingUp(t *testing.T) {
	dir := t.TempDir()
	fifo, pidFile := filepath.Join(dir, "fifo"), filepath.Join(dir, "pid")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", script(t, "hang", fmt.Sprintf("echo $$ >%s.new && mv %s.new %s\necho ready >%s\nexec sleep 600\n", pidFile, pidFile, pidFile, fifo)))
	loginBeside(t, func() { _, _ = os.ReadFile(fifo) }) // until it runs
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("the login ended somebody's browser: %v", err)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("it shares our session: %d, %v", sid, err)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

func TestTheOpenerGetsOneArgumentAndNothingOfOurs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	dir := t.TempDir()
	fifo, out := filepath.Join(dir, "fifo"), filepath.Join(dir, "out")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	browser := script(t, "show", fmt.Sprintf(`
in=$(readlink /proc/$$/fd/0); to=$(readlink /proc/$$/fd/1); err=$(readlink /proc/$$/fd/2)
printf '%%s\n' $# "$1" "$in" "$to" "$err" >%s
echo done >%s
`, out, fifo))
	// The first of the list fails, so the second is taken.
	t.Setenv("BROWSER", "/bin/false:"+browser)
	u := loginBeside(t, func() { _, _ = os.ReadFile(fifo) })
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if want := []string{"1", u, os.DevNull, os.DevNull, os.DevNull}; !reflect.DeepEqual(lines, want) {
		t.Errorf("it got %q, want %q", lines, want)
	}
	if strings.ContainsAny(u, " \n\"'`$|<>") {
		t.Errorf("the address holds bytes for a shell: %q", u)
	}
	if left, _ := filepath.Glob("x"); left != nil {
		t.Error("a shell has run")
	}
}
