package real_test

import (
	"bytes"
	"flag"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/spendonce/spendonce/tests/real/chromium"
)

var update = flag.Bool("update", false, "take the picture docs/landing-page.png again")

// pictureBound keeps it light enough for the README.
const pictureBound = 60_000

func TestThePictureInTheDocumentsIsOfThePageOfToday(t *testing.T) {
	ctx := testContext(t)
	v, b := visit(t, strictSite(t)), startBrowser(t)
	args := []string{"login", v.target, "--url", v.site.url}
	r, page := v.signIn(ctx, byBrowser, v.site, args, inBrowser(b, v.site.Account(), "Sign in"))
	if r.code != exitOK {
		t.Fatalf("%v\nthe browser shows %q", r, page.Body)
	}
	if err := b.Show(chromium.Light, 640, 400, 2); err != nil {
		t.Fatal(err)
	}
	taken, err := b.Picture()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", "docs", "landing-page.png")
	if *update {
		if err := os.WriteFile(path, taken, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) > pictureBound {
		t.Errorf("the picture has %d bytes, and may have %d", len(kept), pictureBound)
	}
	// Letters differ with the fonts of a machine; the page around them does not.
	if d := difference(t, kept, taken); d > 0.02 {
		t.Errorf("the picture differs from the page by %.1f %% (go test ./real -run Picture -update)", 100*d)
	}
}

// difference is the mean one between the colours of two pictures, 0 to 1.
func difference(t *testing.T, a, b []byte) float64 {
	t.Helper()
	one, other := decode(t, a), decode(t, b)
	if one.Bounds() != other.Bounds() {
		t.Fatalf("the pictures measure %v and %v", one.Bounds(), other.Bounds())
	}
	sum, n := 0, 0
	for y := range one.Bounds().Dy() {
		for x := range one.Bounds().Dx() {
			r, g, b, _ := one.At(x, y).RGBA()
			s, h, c, _ := other.At(x, y).RGBA()
			for _, d := range []int{int(r) - int(s), int(g) - int(h), int(b) - int(c)} {
				sum, n = sum+max(d, -d), n+1
			}
		}
	}
	return float64(sum) / float64(n) / 0xffff
}

func decode(t *testing.T, data []byte) image.Image {
	t.Helper()
	i, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return i
}
