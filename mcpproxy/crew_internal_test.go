package mcpproxy

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"weak"
)

func TestCallsRunAtOnceAndFewGoroutinesStayBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var work sync.WaitGroup
		c := newCrew()
		for range 2 {
			const calls = 3 * atRest
			running, end := make(chan struct{}, calls), make(chan struct{})
			for range calls {
				c.do(ctx, &work, func() {
					running <- struct{}{}
					<-end
				})
			}
			synctest.Wait()
			if len(running) != calls {
				t.Errorf("%d of %d calls run at once", len(running), calls)
			}
			close(end)
			synctest.Wait()
			if len(c.rest) != atRest {
				t.Errorf("%d goroutines wait for another call, want %d", len(c.rest), atRest)
			}
		}
		cancel()
		work.Wait()
	})
}

func TestAGoroutineAtRestHoldsNothingOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var work sync.WaitGroup
		c := newCrew()
		call := func(message *[1 << 20]byte) weak.Pointer[[1 << 20]byte] {
			c.do(ctx, &work, func() { clear(message[:]) })
			return weak.Make(message)
		}
		held := call(new([1 << 20]byte))
		synctest.Wait()
		runtime.GC()
		if len(c.rest) != 1 || held.Value() != nil {
			t.Errorf("%d at rest, and what the call was about is held: %v", len(c.rest), held.Value() != nil)
		}
		cancel()
		work.Wait()
	})
}

func TestWhatWasReadOfAStreamStaysWhenItsBufferServesAgain(t *testing.T) {
	first := newEventReader(strings.NewReader("id: 1\ndata: one\n\n"), 100, "")
	ev, err := first.next()
	first.release()
	second := newEventReader(strings.NewReader("id: 2\ndata: two\n\n"), 100, "")
	defer second.release()
	if _, err := second.next(); err != nil {
		t.Fatal(err)
	}
	if err != nil || string(ev.data) != "one" || first.lastID != "1" {
		t.Errorf("got %q at %q, %v", ev.data, first.lastID, err)
	}
}
