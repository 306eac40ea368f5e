package oauthflow

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// errNoOpener: nothing on this machine shows URLs.
var errNoOpener = errors.New("no browser could be started")

// OpenBrowser shows url with $BROWSER, else xdg-open (Linux) or open (macOS).
// $BROWSER is a list of programs separated by colons; one with a %s in it is
// a program and its arguments. The URL is always one argument of its own
// program call, and no shell sees it.
//
// The program gets neither our terminal nor our streams. As long as it runs
// and ctx lives, OpenBrowser waits; the program itself is never ended, for it
// may be the person's browser. One that fails while ctx lives is followed by
// the next of the list.
func OpenBrowser(ctx context.Context, url string) error {
	for _, argv := range openers(os.Getenv("BROWSER"), runtime.GOOS, url) {
		if err := ctx.Err(); err != nil {
			return err
		}
		cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
		// Its own session: an interrupt meant for us does not close a browser.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if cmd.Start() != nil {
			continue
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }() // reaps it, whenever that is
		select {
		case err := <-ended:
			if err == nil {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errNoOpener
}

// openers lists the commands to try.
func openers(browser, goos, url string) [][]string {
	var list [][]string
	for _, alternative := range strings.Split(browser, ":") {
		switch {
		case strings.TrimSpace(alternative) == "":
		case !strings.Contains(alternative, "%s"):
			list = append(list, []string{alternative, url})
		default:
			argv := strings.Fields(alternative)
			for i := range argv[1:] {
				argv[i+1] = strings.ReplaceAll(argv[i+1], "%s", url)
			}
			list = append(list, argv)
		}
	}
	switch {
	case list != nil: // the person's choice, even if it fails
		return list
	case goos == "darwin":
		return [][]string{{"open", url}}
	}
	return [][]string{{"xdg-open", url}}
}
