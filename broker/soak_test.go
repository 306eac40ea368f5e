//go:build linux

package broker_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/spendonce/spendonce/broker"
)

const (
	loadSocketVariable   = "BROKER_TEST_LOAD"
	loadDurationVariable = "BROKER_TEST_LOAD_FOR"
)

// Anchors come and go, tokens are minted, consumed and revoked, clients are
// slow, vanish and talk rubbish. In the end the broker has what it had before,
// and nobody got a wrong answer.
func TestSoakMixedLoad(t *testing.T) {
	long := 20 * time.Second
	switch {
	case os.Getenv("SPENDONCE_SOAK") != "":
		long = time.Hour
	case testing.Short():
		long = time.Second
	}
	at := newSite(t)
	at.serve(within(500*time.Millisecond), func(c *broker.Config) { c.AuditLimit = 64 << 10 })
	at.underLoad(long / 10) // so that all that is made once has been made
	before := at.settled(holdings{})
	at.underLoad(long)
	after := at.settled(before)
	if after.descriptors > before.descriptors || after.goroutines > before.goroutines || after.heap > before.heap+2<<20 {
		t.Errorf("the broker had %+v, and has %+v", before, after)
	}
	st := at.status()
	t.Logf("%v; %d minted, %d spent, %d revoked, %d commits; %+v before and %+v after", st.Answers, st.Minted, st.Spent, st.Revoked, st.Commits, before, after)
	if st.Pending != 0 || len(st.Sessions) != 0 || st.Minted != st.Spent+st.Revoked {
		t.Errorf("the broker keeps %d tokens and %d sessions", st.Pending, len(st.Sessions))
	}
	if at.warned() != "" {
		t.Errorf("the warnings are %s", at.warned())
	}
}

// underLoad runs the load in another process, so that this one has nothing but
// the broker.
func (s *site) underLoad(long time.Duration) {
	s.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(environment("load"), loadSocketVariable+"="+s.socket, loadDurationVariable+"="+long.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("the load ends with %v: %s", err, out)
	}
}

// holdings are what a broker must give back.
type holdings struct {
	descriptors, goroutines int
	heap                    uint64
}

// settled waits until the broker has let go what it had for its clients, or
// no more than before.
func (s *site) settled(before holdings) (now holdings) {
	s.t.Helper()
	eventually(s.t, func() bool { return len(s.status().Sessions) == 0 })
	last := holdings{}
	eventually(s.t, func() bool {
		last = now
		runtime.GC()
		runtime.GC() // what a pool held is gone after the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now = holdings{descriptors(s.t), runtime.NumGoroutine(), m.HeapAlloc}
		if before.goroutines > 0 {
			return now.descriptors <= before.descriptors && now.goroutines <= before.goroutines
		}
		return now.descriptors == last.descriptors && now.goroutines == last.goroutines
	})
	return now
}
