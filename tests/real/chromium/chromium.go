// Package chromium is the browser of a login: headless Chromium as Debian
// packages it, driven over the DevTools protocol, with scripts switched off and
// a profile that is new and empty each time.
//
// It remembers what a page asked for, what it was answered and what the browser
// had to complain about. Whatever Chromium itself sends to another machine goes
// to a proxy that counts it and passes nothing on; requests to loopback
// addresses never use a proxy.
package chromium

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// Answer is one response that a page, or a part of it, came with.
type Answer struct {
	URL    string
	Status int
	Header http.Header
}

// Browser is one Chromium with one tab. Close it.
type Browser struct {
	ctx    context.Context
	quit   func() error // ends the processes, once
	dir    string       // all that it writes is below
	marker string       // in the environment of all its processes
	proxy  *httptest.Server
	loaded chan struct{} // has one when a page was, after moving

	mu         sync.Mutex
	moving     bool
	asked      []string
	answers    []Answer
	at         string // the page
	complaints []Complaint
	elsewhere  []string
}

// Start starts Chromium, which lives no longer than ctx.
func Start(ctx context.Context) (*Browser, error) {
	// Not a directory of the test's, whose name may be too long for a socket.
	dir, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, err
	}
	b := &Browser{dir: dir, marker: "SPENDONCE_TEST_BROWSER=" + rand.Text(), loaded: make(chan struct{}, 1)}
	b.proxy = httptest.NewServer(http.HandlerFunc(b.refuse))
	allocator, release := chromedp.NewExecAllocator(ctx,
		chromedp.ExecPath("chromium"),
		chromedp.Flag("headless", true),
		chromedp.NoSandbox, // root has none, and every page is ours
		chromedp.DisableGPU,
		chromedp.NoFirstRun,
		chromedp.NoDefaultBrowserCheck,
		chromedp.UserDataDir(b.Profile()),
		chromedp.ProxyServer(b.proxy.URL),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-breakpad", true),
		chromedp.Flag("disable-extensions", true),
		chromedp.Flag("disable-default-apps", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("disable-client-side-phishing-detection", true),
		chromedp.Flag("disable-component-extensions-with-background-pages", true),
		chromedp.Flag("disable-features", "AutofillServerCommunication,PasswordLeakDetection,OptimizationHints,MediaRouter"),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("password-store", "basic"),
		chromedp.NoInheritEnv,
		chromedp.Env("PATH="+os.Getenv("PATH"), "HOME="+dir, "TMPDIR="+dir, "XDG_RUNTIME_DIR="+dir, "LC_ALL=C.UTF-8", b.marker),
	)
	tab, closeTab := chromedp.NewContext(allocator, chromedp.WithListener(b.note))
	b.ctx = tab
	b.quit = sync.OnceValue(func() error {
		var err error
		if chromedp.FromContext(tab).Target != nil { // else it never started
			bounded, cancel := context.WithTimeout(tab, patience)
			defer cancel()
			err = chromedp.Cancel(bounded)
		}
		closeTab()
		release() // waits
		b.proxy.Close()
		return errors.Join(err, awaitNone(b.marker, b.dir))
	})
	if err := b.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting chromium: %w", err), b.Close())
	}
	return b, nil
}

// prepare runs before any page is opened.
func (b *Browser) prepare() error {
	return b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, network.Enable, network.EnableParams{}); err != nil {
			return err
		}
		if _, err := cdp.Call(ctx, t, log.Enable, cdp.Empty{}); err != nil {
			return err
		}
		if _, err := cdp.Call(ctx, t, audits.Enable, cdp.Empty{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

// patience bounds one step of the browser. None is expected to come near.
const patience = 30 * time.Second

func (b *Browser) do(steps ...chromedp.Action[chromedp.Void]) error {
	_, err := run(b, chromedp.Steps(steps...))
	return err
}

func run[T any](b *Browser, a chromedp.Action[T]) (T, error) {
	ctx := b.ctx
	if chromedp.FromContext(ctx).Target != nil {
		// The first run starts the browser, which lives as long as its context.
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = bounded
	}
	return chromedp.Run(ctx, a)
}

// Quit ends Chromium, and waits until none of its processes is left. One that
// stays is an error, and is killed. The profile stays.
func (b *Browser) Quit() error { return b.quit() }

// Close is Quit, and removes all that was written.
func (b *Browser) Close() error { return errors.Join(b.quit(), os.RemoveAll(b.dir)) }

// Profile is where the browser keeps what it keeps.
func (b *Browser) Profile() string { return filepath.Join(b.dir, "profile") }

// errands are what Chromium asks of its makers for itself, whatever the flags.
// They end at the proxy like everything else. A page that asks for one of them
// would be seen asking.
var errands = []string{
	"accounts.google.com", "clients2.google.com", "update.googleapis.com",
	"content-autofill.googleapis.com", "passwordsleakcheck-pa.googleapis.com",
}

// refuse is the proxy.
func (b *Browser) refuse(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if host := (&url.URL{Host: r.Host}).Hostname(); !slices.Contains(errands, host) {
		b.elsewhere = append(b.elsewhere, r.Method+" "+host)
	}
	http.Error(w, "there is no other machine", http.StatusForbidden)
}
