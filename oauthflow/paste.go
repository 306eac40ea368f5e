package oauthflow

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// ErrNoAnswer: the input for a pasted answer ended without one.
var ErrNoAnswer = errors.New("nothing was pasted that answers this sign-in: start it again, and paste the whole address at which the browser ended")

// maxPasted bounds one pasted line, in bytes.
const maxPasted = 64 << 10

// readPasted reads lines until one settles the login. What it says of the
// others holds nothing of them: a pasted line is a secret.
func (c *callback) readPasted(in io.Reader, out io.Writer, want expected) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxPasted)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		if result := judgeAnswer(queryOf(line), want); result != nil {
			c.settle(*result, false)
			return nil
		}
		_, _ = fmt.Fprintln(out, "That is not the answer of this sign-in. Paste the whole address, with code= and state= in it:")
	}
	if c.settled.Load() {
		return nil // the browser was quicker
	}
	return ErrNoAnswer
}

// queryOf finds the query of a pasted address; a query alone is one, too.
func queryOf(line string) string {
	if u, err := url.Parse(line); err == nil && u.Scheme != "" && u.RawQuery != "" {
		return u.RawQuery
	}
	return strings.TrimPrefix(line, "?")
}
