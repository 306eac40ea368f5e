package mcpproxy

import (
	"bytes"
	"testing"
)

func TestALineEndsAtTheFirstOfItsTwoEndsHoweverFarItIs(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 5000} {
		before := bytes.Repeat([]byte("x"), n)
		for _, end := range []string{"\n", "\r", "\r\n", "\n\r", "\nx\r", "\rx\n"} {
			if got := lineEnd(append(bytes.Clone(before), end...)); got != n {
				t.Errorf("after %d bytes, before %q: %d", n, end, got)
			}
		}
		if got := lineEnd(before); got != -1 {
			t.Errorf("in %d bytes: %d", n, got)
		}
	}
}
