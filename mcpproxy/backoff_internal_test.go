package mcpproxy

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAServerThatAsksForNoPauseIsLeftAloneAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff{base: time.Second}
		began := time.Now()
		for range 10 {
			b.sleep(t.Context(), time.Millisecond)
		}
		if took := time.Since(began); took < 9*time.Second {
			t.Errorf("ten attempts that bring nothing took %s", took)
		}
		b.n = 0
		began = time.Now()
		if b.sleep(t.Context(), 3*time.Second); time.Since(began) < 3*time.Second {
			t.Error("the server's own wish is not heeded")
		}
	})
}
