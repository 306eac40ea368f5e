//go:build linux

package leasecmd

import (
	"bytes"
	"io"
	"testing"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// A broker that waited for whoever reads its standard error would be stopped by
// a paused terminal.
func TestAWarningNeverWaits(t *testing.T) {
	_, nobodyReads := io.Pipe()
	a := &App{Streams: &streams.Streams{Err: nobodyReads}}
	warn, flush := a.warnings()
	for range 1000 {
		warn("something is wrong")
	}
	flush()
}

func TestWarningsAreSaidInOrderBeforeTheEnd(t *testing.T) {
	var said bytes.Buffer
	a := &App{Streams: &streams.Streams{Err: &said}}
	warn, flush := a.warnings()
	warn("one")
	warn("two")
	flush()
	if got := said.String(); got != "spendonce: warning: one\nspendonce: warning: two\n" {
		t.Errorf("said %q", got)
	}
}
