package mcpproxy

import (
	"context"
	"sync"
)

// atRest is how many goroutines wait for another call at most.
const atRest = 64

// crew runs calls, each in a goroutine of its own, but one that has run
// another before if there is one: net/http goes deep, and the stack of a new
// goroutine is copied several times on the way.
type crew struct {
	next chan func() // taken by who is at rest
	rest chan struct{}
}

func newCrew() crew {
	return crew{next: make(chan func()), rest: make(chan struct{}, atRest)}
}

// do runs a call; ctx ends who is at rest.
func (c crew) do(ctx context.Context, work *sync.WaitGroup, call func()) {
	select {
	case c.next <- call:
	default:
		work.Go(func() {
			for call != nil {
				call()
				call = nil // who is at rest holds no message
				call = c.another(ctx)
			}
		})
	}
}

// another waits for a call; nil: there are enough who do.
func (c crew) another(ctx context.Context) (call func()) {
	select {
	case c.rest <- struct{}{}:
		defer func() { <-c.rest }()
	default:
		return nil
	}
	select {
	case call = <-c.next:
	case <-ctx.Done():
	}
	return call
}
