//go:build linux

package broker_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/lease"
)

// share is how much of a large test is run: the whole with SPENDONCE_SOAK=1,
// else what fits into the time that such a run has.
func share(soak, usual, underRace, short int) int {
	switch {
	case os.Getenv("SPENDONCE_SOAK") != "":
		return soak
	case testing.Short():
		return short
	case raceDetector:
		return underRace
	}
	return usual
}

// storm has so many clients consume a token at once.
func storm(o order) reply {
	var (
		mu     sync.Mutex
		counts = map[string]int{}
		begin  = make(chan struct{})
		all    sync.WaitGroup
	)
	client := clientOf(o)
	for range o.N {
		all.Go(func() {
			<-begin
			_, err := client.Consume(context.Background(), sessionOf(o), lease.NewSecret(o.Token))
			mu.Lock()
			defer mu.Unlock()
			counts[codeOf(err)]++
		})
	}
	close(begin)
	all.Wait()
	return reply{Counts: counts}
}

// K35, again and again: 64 clients in eight processes below the anchor.
func TestStormOneTokenIsSpentOnce(t *testing.T) {
	const processes, clients = 8, 8
	rounds := share(10_000, 1_000, 100, 20)
	at, c := newSite(t), newCast(t)
	at.serve()
	s, err := at.client().RegisterAnchor(t.Context(), 0) // this process
	if err != nil {
		t.Fatal(err)
	}
	var crowd []*actor
	for i := range processes {
		crowd = append(crowd, c.actor().below(i%3))
	}
	client := at.client()
	began := time.Now()
	for round := range rounds {
		token, err := client.Mint(t.Context(), s, aBinding)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, a := range crowd {
			o := session{at.socket, s.ID.Reveal(), 0}.order("storm")
			o.Token, o.N = token.Reveal(), clients
			if err := a.say(o); err != nil {
				t.Fatal(err)
			}
		}
		counts := map[string]int{}
		for _, a := range crowd {
			r, err := a.hear()
			if err != nil {
				t.Fatal(err)
			}
			for code, n := range r.Counts {
				counts[code] += n
			}
		}
		if len(counts) != 2 || counts[ok] != 1 || counts["TOKEN_REPLAY"] != processes*clients-1 {
			t.Fatalf("round %d: %v", round, counts)
		}
	}
	took := time.Since(began)
	st := at.status()
	if st.Spent != uint64(rounds) || st.Pending != 0 {
		t.Errorf("%d tokens were spent and %d are pending", st.Spent, st.Pending)
	}
	t.Logf("%d rounds of %d clients in %.1f s, %.2f ms each; %d answers, the slowest of the last %d after %d us",
		rounds, processes*clients, took.Seconds(), took.Seconds()*1000/float64(rounds), sum(st.Answers), st.Latency.Of, st.Latency.MostMicros)
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
