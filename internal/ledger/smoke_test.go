//go:build linux

package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
)

func TestATokenIsSpentOnce(t *testing.T) {
	dir, err := durable.Disk{}.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for range 2 {
		l, err := ledger.Open(dir, ledger.Config{BootID: "01234567-89ab-cdef-0123-456789abcdef"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Register(time.Time{}, ledger.Anchor{PID: 7, StartTime: 9}, 0, 0, 3)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := l.Mint(time.Time{}, s.ID, 3, ledger.Binding{HSource: "a", HPayload: "\"\\<", SchemaVersion: 1})
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Consume(time.Time{}, s.ID, 3, tok)
		if err != nil || b.HPayload != "\"\\<" {
			t.Fatal(b, err)
		}
		if _, err := l.Consume(time.Time{}, s.ID, 3, tok); !errors.Is(err, ledger.ErrTokenReplay) {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
