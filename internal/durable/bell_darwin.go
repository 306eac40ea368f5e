package durable

import (
	"context"
	"errors"
	"time"
)

// Bell is not available on this system: who waits polls.
type Bell struct{}

// HangBell fails with [errors.ErrUnsupported].
func (d *Dir) HangBell(string) (*Bell, error) { return nil, errors.ErrUnsupported }

// HearBell fails with [errors.ErrUnsupported].
func (d *Dir) HearBell(string) (*Bell, error) { return nil, errors.ErrUnsupported }

// Wait fails.
func (*Bell) Wait(context.Context, time.Duration) error { return errors.ErrUnsupported }

// Ring does nothing.
func (*Bell) Ring() {}
