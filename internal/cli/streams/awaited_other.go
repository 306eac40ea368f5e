//go:build !linux

package streams

import "io"

// Awaited returns in as it is: here its Read keeps a thread.
func Awaited(in io.Reader) io.Reader { return in }
