package mcpproxy

import (
	"context"
	"fmt"
	"io"
)

// output writes messages to the client, each as a line of its own and in one
// piece. A reader that is slow holds up who writes.
type output struct {
	w    io.Writer
	turn chan struct{} // one slot
	fail func(error)   // is told of the first error
	err  error         // of a write; guarded by turn
}

func newOutput(w io.Writer, fail func(error)) *output {
	return &output{w: w, turn: make(chan struct{}, 1), fail: fail}
}

// write may use the space behind raw.
func (o *output) write(ctx context.Context, raw []byte) error {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.turn }()
	if o.err != nil {
		return o.err
	}
	if _, err := o.w.Write(append(oneLine(raw), '\n')); err != nil {
		o.err = fmt.Errorf("the client does not read any more: %w", err)
		o.fail(o.err)
	}
	return o.err
}
