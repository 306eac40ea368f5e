package lockmodel

// mint is the exchange of a login, which happens before any lock.
func (t *turn) mint() {
	rt := t.from.server.next
	if t.SameToken {
		if rt = firstRT; t.from.server.valid>>rt&1 == 1 {
			return
		}
	}
	t.can(vMint, rt, 0, func(n *state, p *proc) {
		if t.SameToken {
			p.got = n.server.renew(rt, t.family[t.i])
			for i := range n.procs {
				if n.procs[i].sent == rt {
					n.procs[i].sent = 0 // that was the old token's life
				}
			}
		} else {
			p.got = n.server.mint(t.family[t.i])
		}
		t.seek(p, store, toWrite)
	})
}

// snapshot reads what a login, a logout or a static write replaces.
func (t *turn) snapshot() {
	rt := t.from.store.rt
	if rt == noRecord && (t.role() == Logout || t.role() == SourceLogout) {
		t.can(vNothingThere, 0, 0, func(n *state, p *proc) { t.leave(p, done) })
		return
	}
	pin, loginID, known := t.settled(t.from, rt)
	if !t.keeps(SettleBeforeLogin) {
		pin, loginID = t.from.session.pin, t.from.session.login
	}
	if !known {
		pin, loginID = 0, 0
	}
	t.can(vSnapshot, rt, pin, func(n *state, p *proc) {
		p.rt, p.seenVersion = rt, n.store.version
		switch r := t.role(); {
		case r == LoginA || r == LoginB:
			p.pin, p.login = pin, loginID
			p.pc = pcPending
			if !t.keeps(PendingAtLogin) {
				p.pc = pcWritePin
			}
		case (r == Logout || r == Static) && !t.keeps(RecordBeforeSession):
			p.pc = pcEndSession
		default:
			t.beforeRename(p)
		}
	})
}

func (t *turn) newPin() uint8 { return t.servers[t.family[t.i]] }

func (t *turn) writePending() {
	t.can(vWritePending, t.p.pin, t.p.got, func(n *state, p *proc) {
		f := &n.session
		f.there = true
		f.pin, f.login = p.pin, p.login
		f.pendPin, f.pendRT = t.newPin(), p.got
		if t.keeps(PendingNamesBoth) {
			f.oldRT = p.rt
		}
		p.pin, p.login = 0, 0
		t.beforeRename(p)
	})
}

// writePin is the last file of a login, or, without pending, the first.
func (t *turn) writePin() {
	t.can(vWritePin, t.newPin(), 0, func(n *state, p *proc) {
		f := &n.session
		*f = sessionFile{there: true, pin: t.newPin(), login: t.family[t.i] + 1, outcome: f.outcome, outcomeRT: f.outcomeRT}
		if t.keeps(PendingAtLogin) {
			t.leave(p, done)
			return
		}
		p.pin, p.login = 0, 0
		t.beforeRename(p)
	})
}

// renamed goes on when the store is replaced.
func (t *turn) renamed(n *state, p *proc) {
	switch r := t.role(); {
	case (r == LoginA || r == LoginB) && t.keeps(PendingAtLogin):
		p.pc = pcWritePin
	case (r == Logout || r == Static) && t.keeps(RecordBeforeSession):
		p.pc = pcEndSession
	case (r == Refresh || r == RefreshStore) && (n.session.pending() || n.session.pin == 0):
		p.pc = pcCommitNote
	default:
		t.leave(p, done)
	}
}

// endSession is what a logout or a static write does to the session file.
func (t *turn) endSession() {
	what := vDropSession
	if t.role() == Static {
		what = vResetSession
	}
	t.can(what, 0, 0, func(n *state, p *proc) {
		s := sessionFile{}
		if t.role() == Static && n.session.there {
			s = sessionFile{there: true, login: staticLogin}
		}
		n.session = s
		if t.keeps(RecordBeforeSession) {
			t.leave(p, done)
			return
		}
		t.beforeRename(p)
	})
}
