package streams_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

func TestNothingThatIsSaidSteersTheTerminal(t *testing.T) {
	const evil = "a\x1b[31m\u009b2J\rb\x07\u202ec\u2066d\u200fe\x7f"
	const want = "a?[31m?2J?b??c?d?e?"
	if got := streams.Printable(evil + "\nü"); got != want+"\nü" {
		t.Errorf("%q", got)
	}
	var said bytes.Buffer
	(&streams.Streams{Err: &said}).Warn(evil)
	if !strings.Contains(said.String(), want) {
		t.Errorf("the warning is %q", said.String())
	}
}
