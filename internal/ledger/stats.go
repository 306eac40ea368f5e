//go:build linux

package ledger

// Stats tells what a ledger holds and what it did since it was opened.
type Stats struct {
	Sessions int
	Pending  int // tokens that wait to be spent

	Minted  uint64
	Spent   uint64
	Revoked uint64 // tokens that ended unspent: a higher generation, or the anchor exited

	Commits   uint64 // done
	Failed    uint64 // commits that were not
	LastError error  // of the last of those, nil if there was none
	// InDoubt says that the file may hold another state than memory does,
	// because a rename or the fsync after it failed. It holds until a commit
	// works.
	InDoubt bool

	Batches uint64 // requests are applied in batches, each with one commit at most
	Batched uint64 // requests in all batches
	Largest int    // batch
}

// Stats returns a snapshot.
func (l *Ledger) Stats() Stats {
	s := l.committed.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.stats
	x.Sessions, x.Pending = len(s.sessions), len(s.tokens)
	return x
}

// count adds a batch to the figures.
func (l *Ledger) count(batch []*request, results []result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Batches++
	l.stats.Batched += uint64(len(batch))
	l.stats.Largest = max(l.stats.Largest, len(batch))
	for i, r := range batch {
		l.stats.Revoked += uint64(results[i].revoked)
		switch {
		case results[i].err != nil:
		case r.op.action == mint:
			l.stats.Minted++
		case r.op.action == consume:
			l.stats.Spent++
		}
	}
}
