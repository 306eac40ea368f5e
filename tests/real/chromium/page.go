package chromium

import (
	"context"
	"errors"
	"fmt"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Open goes to an address, as if it had been typed in.
func (b *Browser) Open(address string) error { return b.do(chromedp.Navigate(address)) }

// Leave goes to an address as a link on the page would.
func (b *Browser) Leave(address string) error {
	return b.load(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.assign(%q)", address))(ctx, t)
		return err
	}))
}

// Reload, Back and Forward are the buttons of a browser. A page that says that
// nothing can be loaded is as good as any.
func (b *Browser) Reload() error {
	return b.move(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.Reload, page.ReloadParams{})
		return err
	})
}

// Back goes to the page before.
func (b *Browser) Back() error { return b.turn(-1) }

// Forward goes to the page after.
func (b *Browser) Forward() error { return b.turn(1) }

func (b *Browser) turn(by int64) error {
	return b.move(func(ctx context.Context, t *chromedp.Target) error {
		history, err := cdp.Call(ctx, t, page.GetNavigationHistory, cdp.Empty{})
		if err != nil {
			return err
		}
		to := history.CurrentIndex + by
		if to < 0 || to >= int64(len(history.Entries)) {
			return errors.New("there is no such page in the history")
		}
		_, err = cdp.Call(ctx, t, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: history.Entries[to].ID})
		return err
	})
}

// move waits for the page that a step leads to, be it from memory, which loads
// nothing, or one that says that there is none.
func (b *Browser) move(step func(context.Context, *chromedp.Target) error) error {
	select {
	case <-b.loaded:
	default:
	}
	return b.do(chromedp.Func(step), chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		select {
		case <-b.loaded:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("waiting for a page: %w", ctx.Err())
		}
	}))
}

// Type enters text into the field of that name.
func (b *Browser) Type(field, text string) error {
	return b.do(chromedp.SendKeys(chromedp.CSS(`input[name="`+field+`"]`), text))
}

// Press clicks the button with that label, and waits for the page that it
// leads to.
func (b *Browser) Press(label string) error {
	return b.load(chromedp.Click(chromedp.Search(`//button[normalize-space()="` + label + `"]`)))
}

// Has reports whether the page has the field.
func (b *Browser) Has(field string) (bool, error) {
	return run(b, chromedp.Evaluate[bool](fmt.Sprintf("document.querySelector('input[name=%q]') !== null", field)))
}

func (b *Browser) load(step chromedp.Action[chromedp.Void]) error {
	_, err := run(b, func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.RunResponse(ctx, step)
		return chromedp.Void{}, err
	})
	return err
}

// Scheme is a colour scheme of a system.
type Scheme string

// The two that pages know.
const (
	Light Scheme = "light"
	Dark  Scheme = "dark"
)

// Show makes the tab as wide and as high as given, in pixels of a page, each
// of them scale pixels of a screen, on a system of that scheme.
func (b *Browser) Show(scheme Scheme, width, height int64, scale float64) error {
	return b.do(
		chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: string(scheme)}},
			})
			return err
		}))
}

// Picture is what the tab shows, as PNG.
func (b *Browser) Picture() ([]byte, error) { return run(b, chromedp.CaptureScreenshot()) }

// Look is a page as a person meets it.
type Look struct {
	URL      string  `json:"url"`
	Title    string  `json:"title"`
	Language string  `json:"language"`
	Text     string  `json:"text"`     // what can be read, with single spaces
	Headings int     `json:"headings"` // of the first rank
	Wide     float64 `json:"wide"`     // pixels that stand out to the right
	Ground   float64 `json:"ground"`   // luminance behind everything, 0 to 1
	Contrast float64 `json:"contrast"` // the worst of any text (WCAG 2, 1 to 21)
	Faintest string  `json:"faintest"` // that text
	Drawings int     `json:"drawings"` // pictures that are drawn
}

// look runs in the page, which may run nothing itself.
const look = `(() => {
  const channels = c => c.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = channels(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return luminance(c);
    }
    return NaN; // nobody said, so that the browser decides
  };
  let contrast = 21, faintest = "";
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].filter(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!own.length) continue;
    const pair = [luminance(channels(getComputedStyle(e).color)), behind(e)].sort((a, b) => a - b);
    const ratio = (pair[1] + 0.05) / (pair[0] + 0.05);
    if (!(ratio >= contrast)) { contrast = ratio || 0; faintest = own[0].data.trim(); }
  }
  return {
    url: location.href, title: document.title, language: document.documentElement.lang,
    text: document.body.innerText.replace(/\s+/g, " ").trim(),
    headings: document.querySelectorAll("h1").length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    ground: behind(document.body) || 0, contrast, faintest,
    drawings: [...document.querySelectorAll("svg")].filter(e => e.getBoundingClientRect().width > 0).length,
  };
})()`

// Look reads the page that the tab shows.
func (b *Browser) Look() (Look, error) { return run(b, chromedp.Evaluate[Look](look)) }
