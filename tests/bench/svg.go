package main

import (
	"fmt"
	"strings"
	"time"
)

// The picture, in pixels.
const (
	width      = 800
	left       = 16 // of the time line
	right      = 16
	rowHeight  = 8
	barHeight  = 6
	panelHead  = 30
	panelSpace = 14
	headHeight = 96
	footHeight = 30
)

// style has its own background: the page around an image does not tell it
// whether it is dark. Kinds differ in shape too, not only in colour.
const style = `
:root{color-scheme:light dark}
.bg{fill:#fff}.ink{fill:#1f2328}.dim{fill:#59636e}.grid{stroke:#d1d9e0}
.life{stroke:#8c959f}.ok{fill:#0969da}.bad{fill:#d1242f}.end{fill:#1a7f37}.dead{stroke:#d1242f}
@media (prefers-color-scheme:dark){
.bg{fill:#0d1117}.ink{fill:#f0f6fc}.dim{fill:#9198a1}.grid{stroke:#30363d}
.life{stroke:#6e7681}.ok{fill:#4493f8}.bad{fill:#ff6b62}.end{fill:#3fb950}.dead{stroke:#ff6b62}}
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
.title{font-size:17px;font-weight:600}.head{font-size:15px;font-weight:600}.small{font-size:12px}
.life{stroke-width:1.5}.dead{stroke-width:2;fill:none}`

// canvas collects the elements of an SVG.
type canvas struct {
	strings.Builder
	perMS float64
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) x(d time.Duration) float64 { return left + milliseconds(d)*c.perMS }

func (c *canvas) text(x, y float64, class, s string) {
	c.add(`<text x="%.0f" y="%.0f" class="%s">%s</text>`, x, y, class, s)
}

// draw makes the picture. It holds no text from outside this file.
func draw(panels []panel) []byte {
	var longest time.Duration
	for _, p := range panels {
		longest = max(longest, p.end())
	}
	step := tick(longest)
	span := longest.Truncate(step) + step
	c := &canvas{perMS: (width - left - right) / milliseconds(span)}
	panelHeight := panelHead + drawn*rowHeight
	height := headHeight + len(panels)*(panelHeight+panelSpace) + footHeight

	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`, width, height, width, height)
	c.add(`<title id="t">%d processes ask at once for a token that has expired</title>`, drawn)
	c.add(`<desc id="d">%s</desc>`, description(panels))
	c.add(`<style>%s</style>`, style)
	c.add(`<rect class="bg" width="%d" height="%d" rx="6"/>`, width, height)
	c.text(left, 28, "ink title", fmt.Sprintf("%d processes ask at once for a token that has expired", drawn))
	c.legend(56)

	bottom := float64(headHeight + len(panels)*(panelHeight+panelSpace) - panelSpace + 4)
	for t := time.Duration(0); t <= span; t += step {
		for i := range panels {
			y := headHeight + i*(panelHeight+panelSpace) + panelHead
			c.add(`<path class="grid" d="M%.1f %d v%d"/>`, c.x(t), y-4, drawn*rowHeight+6)
		}
		anchor := "middle"
		if t == 0 {
			anchor = "start"
		} else if t == span {
			anchor = "end"
		}
		c.add(`<text x="%.1f" y="%.0f" class="dim small" text-anchor="%s">%d ms</text>`, c.x(t), bottom+16, anchor, t.Milliseconds())
	}
	for i, p := range panels {
		c.panel(p, float64(headHeight+i*(panelHeight+panelSpace)))
	}
	c.add("</svg>")
	return []byte(c.String())
}

// tick is a round step that cuts the time line into a few pieces.
func tick(longest time.Duration) time.Duration {
	for _, ms := range []int{10, 20, 50, 100, 200, 500} {
		if step := time.Duration(ms) * time.Millisecond; longest/step < 8 {
			return step
		}
	}
	return time.Second
}

func (c *canvas) legend(y float64) {
	const second, below = width / 2, 20
	c.add(`<path class="life" d="M%d %.0f h34"/><circle class="end" cx="%d" cy="%.0f" r="3"/>`, left, y-4, left+34, y-4)
	c.text(left+46, y, "dim", "a process, from its start to its live token")
	c.cross(left+34, y-4+below)
	c.text(left+46, y+below, "dim", "it ends with none, or with a dead one")
	c.add(`<rect class="ok" x="%d" y="%.0f" width="34" height="%d" rx="1"/>`, second, y-4-barHeight/2, barHeight)
	c.text(second+46, y, "dim", "its token exchange at the server")
	c.bad(second, y-4+below, 34)
	c.text(second+46, y+below, "dim", "an exchange that is refused: spent before")
}

// bad is a refused exchange: another colour, and an open end.
func (c *canvas) bad(x, y, w float64) {
	w = max(w, 4)
	c.add(`<path class="bad" d="M%.1f %.1f h%.1f l-3 %d 3 %d h%.1f z"/>`, x, y-barHeight/2, w, barHeight/2, barHeight/2, -w)
}

func (c *canvas) cross(x, y float64) {
	c.add(`<path class="dead" d="M%.1f %.1f l6 6 m0 -6 l-6 6"/>`, x-3, y-3)
}

func (c *canvas) panel(p panel, top float64) {
	c.text(left, top+16, "ink head", p.title)
	c.add(`<text x="%d" y="%.0f" class="dim" text-anchor="end">%s</text>`, width-right, top+16, p.summary())
	for i, l := range p.lives {
		y := top + panelHead + float64(i*rowHeight) + rowHeight/2
		c.add(`<path class="life" d="M%.1f %.1f H%.1f"/>`, c.x(l.start), y, c.x(l.end))
		for _, e := range l.exchanges {
			x, w := c.x(e.start), c.x(e.end)-c.x(e.start)
			if e.refused {
				c.bad(x, y, w)
			} else {
				c.add(`<rect class="ok" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="1"/>`, x, y-barHeight/2, w, barHeight)
			}
		}
		if l.live {
			c.add(`<circle class="end" cx="%.1f" cy="%.1f" r="3"/>`, c.x(l.end), y)
		} else {
			c.cross(c.x(l.end), y)
		}
	}
}

// summary is what happened, in one line.
func (p panel) summary() string {
	sent := 0
	for _, l := range p.lives {
		sent += len(l.exchanges)
	}
	live := p.count(func(l life) bool { return l.live })
	s := fmt.Sprintf("%d exchanges, %d double spends", sent, p.doubleSpends)
	if sent == 1 && p.doubleSpends == 0 {
		s = "1 exchange, no double spend"
	}
	if live == 0 {
		return s + ", the server ends the session"
	}
	return s + fmt.Sprintf(", %d of %d have a live token", live, len(p.lives))
}

func description(panels []panel) string {
	var parts []string
	for _, p := range panels {
		parts = append(parts, fmt.Sprintf("%s%s: %s; the last process ends after %d ms.", strings.ToUpper(p.title[:1]), p.title[1:], p.summary(), p.end().Milliseconds()))
	}
	return strings.Join(parts, " ")
}
