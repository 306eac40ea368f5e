package streams

import "strings"

// Printable keeps names from a shared file and words from a server from
// steering the terminal: control characters, of both ranges, and those that
// turn the direction of writing become question marks. Line breaks stay, for
// some errors have more than one.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r < 0x20, r >= 0x7f && r < 0xa0,
			r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '?'
		}
		return r
	}, s)
}
