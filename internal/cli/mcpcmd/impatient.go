package mcpcmd

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"
)

// impatient writes what finds a reader soon, and drops the rest: a client that
// does not read what is said on standard error must not hold up what it reads.
type impatient struct {
	w    io.Writer
	slot chan struct{} // one: who has it writes
	late atomic.Bool   // what is being written does not come to an end
}

// readSoon is how long a line is waited for that nobody reads; those after it
// are not.
const readSoon = 100 * time.Millisecond

func newImpatient(w io.Writer) *impatient { return &impatient{w: w, slot: make(chan struct{}, 1)} }

// Write never fails.
func (i *impatient) Write(line []byte) (int, error) {
	late := time.NewTimer(readSoon)
	defer late.Stop()
	if i.late.Load() {
		late.Reset(0)
	}
	select {
	case i.slot <- struct{}{}:
	case <-late.C:
		return len(line), nil
	}
	written := make(chan struct{})
	go func(line []byte) {
		_, _ = i.w.Write(line)
		i.late.Store(false)
		<-i.slot
		close(written)
	}(bytes.Clone(line))
	select {
	case <-written:
	case <-late.C:
		i.late.Store(true)
	}
	return len(line), nil
}
