package requestcmd

import (
	"context"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"log/slog"
	"time"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/localproxy"
)

// talk is what a program that serves others says on standard error. Nobody
// waits for whoever reads that: what finds no room is dropped.
type talk struct {
	s     *streams.Streams
	lines chan func()
	ended chan struct{}
}

const talkRoom = 256

func newTalk(s *streams.Streams) *talk {
	t := &talk{s: s, lines: make(chan func(), talkRoom), ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		for say := range t.lines {
			if say == nil {
				return
			}
			say()
		}
	}()
	return t
}

func (t *talk) say(f func()) {
	select {
	case t.lines <- f:
	default:
	}
}

func (t *talk) warn(text string) { t.say(func() { t.s.Warn(credcmd.Printable(text)) }) }

// served tells of answers, nil if that was not asked for.
func (t *talk) served() func(localproxy.Served) {
	if !t.s.Verbose {
		return nil
	}
	log := slog.New(slog.NewJSONHandler(t.s.Err, nil))
	return func(a localproxy.Served) {
		t.say(func() {
			log.LogAttrs(context.Background(), slog.LevelInfo, "served",
				slog.String("method", a.Method), slog.Int("status", a.Status), slog.Int64("bytes", a.Sent), slog.Float64("ms", float64(a.Took.Microseconds())/1000))
		})
	}
}

// end prints the rest, if it is read.
func (t *talk) end() {
	t.say(nil)
	select {
	case <-t.ended:
	case <-time.After(100 * time.Millisecond):
	}
}
