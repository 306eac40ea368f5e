//go:build linux

package broker

import (
	"slices"
	"sync"
	"time"

	"github.com/spendonce/spendonce/internal/wire"
)

// history remembers the last decisions, for 'lease status'.
type history struct {
	mu       sync.Mutex
	counts   map[wire.Code]uint64
	micros   [1024]int64 // of the last decisions, a ring
	decided  uint64
	refusals [16]decision // the last ones, a ring
	refused  uint64
}

func newHistory() *history { return &history{counts: map[wire.Code]uint64{}} }

func (h *history) note(d *decision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[d.code]++
	h.micros[h.decided%uint64(len(h.micros))] = d.took.Microseconds()
	h.decided++
	if d.code != codeOK {
		h.refusals[h.refused%uint64(len(h.refusals))] = *d
		h.refused++
	}
}

// Latency is how long the last decisions took, at most 1,024 of them, from
// accept to the answer; waiting for the disk is in it.
type Latency struct {
	Of           int   `json:"of"`
	MedianMicros int64 `json:"median_us"`
	P99Micros    int64 `json:"p99_us"`
	MostMicros   int64 `json:"max_us"`
}

func (h *history) latency() Latency {
	h.mu.Lock()
	n := int(min(h.decided, uint64(len(h.micros))))
	taken := slices.Clone(h.micros[:n])
	h.mu.Unlock()
	if n == 0 {
		return Latency{}
	}
	slices.Sort(taken)
	return Latency{n, taken[n/2], taken[n*99/100], taken[n-1]}
}

// last returns the last refusals, the newest first.
func (h *history) last() []Refused {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Refused
	for i := range min(h.refused, uint64(len(h.refusals))) {
		d := h.refusals[(h.refused-1-i)%uint64(len(h.refusals))]
		out = append(out, Refused{
			Time: d.time.UTC().Truncate(time.Millisecond), Action: string(d.action), Code: string(d.code), Reason: d.reason,
			PID: d.pid, UID: d.uid, Session: d.session, Chain: hops(d.chain),
		})
	}
	return out
}

func (h *history) codes() map[string]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]uint64, len(h.counts))
	for code, n := range h.counts {
		out[string(code)] = n
	}
	return out
}
