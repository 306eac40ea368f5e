package chromium

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// Complaint is one of the browser.
type Complaint struct {
	URL  string // of what it is about, or of the page that was shown
	Text string
}

// Asked are the URLs that pages asked for, redirects among them.
func (b *Browser) Asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

// Elsewhere are the requests that would have gone to another machine.
func (b *Browser) Elsewhere() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.elsewhere)
}

// Complaints are what stands in the console: messages, exceptions, and what
// the browser blocked or objects to.
func (b *Browser) Complaints() []Complaint {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}

// AnswerOf is the last response of a URL.
func (b *Browser) AnswerOf(url string) (Answer, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range slices.Backward(b.answers) {
		if a.URL == url {
			return a, true
		}
	}
	return Answer{}, false
}

// note must not wait: the browser's next message comes after it.
func (b *Browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.DocumentURL, "chrome-error:") { // its page has pictures of its own
			b.asked = append(b.asked, e.Request.URL)
		}
	case *network.EventResponseReceived:
		a := Answer{URL: e.Response.URL, Status: int(e.Response.Status), Header: http.Header{}}
		for name, value := range e.Response.Headers {
			a.Header.Set(name, fmt.Sprint(value))
		}
		b.answers = append(b.answers, a)
	case *page.EventFrameNavigated:
		if e.Frame.ParentID == "" {
			b.at = e.Frame.URL
		}
		if e.Frame.ParentID == "" && e.Type == page.NavigationTypeBackForwardCacheRestore {
			b.arrive() // nothing is loaded
		} else if e.Frame.ParentID == "" {
			b.moving = true
		}
	case *page.EventLoadEventFired:
		if b.moving {
			b.arrive()
		}
	case *log.EventEntryAdded:
		b.complain(e.Entry.URL, fmt.Sprintf("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text))
	case *runtime.EventConsoleAPICalled:
		b.complain("", fmt.Sprintf("console.%s", e.Type))
	case *runtime.EventExceptionThrown:
		b.complain("", "exception: "+e.ExceptionDetails.Text)
	case *audits.EventIssueAdded:
		b.complain("", "issue: "+describe(e.Issue))
	}
}

// complain is called with mu held.
func (b *Browser) complain(url, text string) {
	b.complaints = append(b.complaints, Complaint{URL: cmp.Or(url, b.at), Text: text})
}

// arrive is called with mu held.
func (b *Browser) arrive() {
	b.moving = false
	select {
	case b.loaded <- struct{}{}:
	default:
	}
}

func describe(issue *audits.InspectorIssue) string {
	what := string(issue.Code)
	if d := issue.Details; d != nil && d.GenericIssueDetails != nil {
		what += " " + string(d.GenericIssueDetails.ErrorType)
	}
	if d := issue.Details; d != nil && d.ContentSecurityPolicyIssueDetails != nil {
		what += fmt.Sprintf(" %s blocked %q", d.ContentSecurityPolicyIssueDetails.ViolatedDirective, d.ContentSecurityPolicyIssueDetails.BlockedURL)
	}
	return what
}
