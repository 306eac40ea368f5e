package durable

import (
	"context"
	"errors"
	"time"
)

// Watch is not available on this system: who waits polls.
type Watch struct{}

// Events that a [Watch] can wait for.
const (
	Replaced uint32 = 1 << iota
	Removed
	Let
)

// NewWatch fails with [errors.ErrUnsupported].
func (d Disk) NewWatch() (*Watch, error) { return nil, errors.ErrUnsupported }

// Add fails.
func (*Watch) Add(string, uint32) error { return errors.ErrUnsupported }

// Wait fails.
func (*Watch) Wait(context.Context, time.Duration) error { return errors.ErrUnsupported }

// Close does nothing.
func (*Watch) Close() {}
