package lockmodel

// start goes for the first lock of a refresh.
func (t *turn) start(p *proc) {
	l := uint8(target)
	if t.role().source() || t.role() == RefreshStore && !(t.keeps(TakeBothLocks) && t.keeps(TargetFirst)) {
		l = store
	}
	t.seek(p, l, toRefresh)
}

func (t *turn) pinFirst() {
	t.can(vReadSession, t.from.session.pin, t.from.session.outcome, func(n *state, p *proc) {
		p.pin, p.login = n.session.pin, n.session.login
		p.pc = pcArrive
	})
}

func (t *turn) arrive() {
	t.can(vRead, t.from.store.rt, 0, func(n *state, p *proc) {
		p.rt = n.store.rt
		switch {
		case found(p.rt) == noLogin:
			t.leave(p, noLogin)
		case t.role().source():
			t.start(p)
		default:
			p.pc = pcArriveSession
		}
	})
}

func (t *turn) arriveSession() {
	f := t.from.session
	if f.refused == t.p.rt && t.keeps(HonourRefused) {
		t.can(vRefusedSeen, t.p.rt, 0, func(n *state, p *proc) { t.leave(p, loginRequired) })
		return
	}
	t.can(vReadSession, f.pin, f.outcome, func(n *state, p *proc) {
		p.seenOutcome = f.outcome
		t.start(p)
	})
}

func (t *turn) rereadStore() {
	rt := t.from.store.rt
	if rt != t.p.rt {
		t.can(vReread, rt, 0, func(n *state, p *proc) { t.leave(p, found(rt)) })
		if !t.DecideAnew || found(rt) == noLogin {
			return
		}
	}
	t.can(vReread, rt, 0, func(n *state, p *proc) {
		p.rt = rt
		p.flags |= reread
		t.afterReread(p)
	})
}

// afterReread goes on to the session file: under the store lock, which also
// proves the commit, or in the variants without.
func (t *turn) afterReread(p *proc) {
	switch {
	case t.role().source():
		p.pc = pcSend
	case t.role() == RefreshStore || !t.keeps(ProveFirst) || !t.keeps(SettleUnderLock):
		p.pc = pcSession
	default:
		t.seek(p, store, toProve)
	}
}

// readSession finds the pin, or a reason to send nothing.
func (t *turn) readSession() {
	f, rt := t.from.session, t.p.rt
	if f.refused == rt && t.keeps(HonourRefused) {
		t.can(vRefusedSeen, rt, 0, func(n *state, p *proc) { t.leave(p, loginRequired) })
		return
	}
	if _, yes := t.newOutcome(); yes && f.outcomeRT == rt {
		t.can(vOutcomeSeen, rt, 0, func(n *state, p *proc) { t.leave(p, tookOutcome) })
		return
	}
	pin, what := f.pin, vPin
	if !t.keeps(PinAfterRecord) {
		pin, what = t.p.pin, vOldPin
	}
	locked := t.p.has(holdsS) || !t.keeps(SettleUnderLock)
	switch {
	case f.pending() && t.keeps(SettleBeforeSend) && t.keeps(PinAfterRecord):
		t.can(vPendingSeen, pin, f.pendRT, func(n *state, p *proc) {
			p.pc = pcSettle
			if !locked {
				t.seek(p, store, toProve)
			}
		})
	case pin == 0 && t.UserFile != 0:
		t.can(vFirstUse, t.UserFile, 0, func(n *state, p *proc) {
			p.pin, p.login = t.UserFile, 0
			p.pc = pcSettleWrite
			if !locked {
				t.seek(p, store, toProve)
			}
		})
	case pin == 0, t.UserFile != 0 && pin != t.UserFile:
		t.can(vNoPin, pin, 0, func(n *state, p *proc) { t.leave(p, noPin) })
	default:
		t.can(what, pin, 0, func(n *state, p *proc) {
			p.pin, p.login = pin, f.login
			t.pinned(p)
		})
	}
}

// pinned goes on when the pin is known.
func (t *turn) pinned(p *proc) {
	p.pc = pcMark
	if t.role() == Refresh && p.has(holdsS) {
		p.on, p.goal, p.pc = store, toProve, pcRelease
	}
}

// settled tells which pin and login a session file with pending means beside
// a store that holds rt.
func (t *turn) settled(n *state, rt uint8) (pin, login uint8, known bool) {
	f := n.session
	switch {
	case !f.pending():
		return f.pin, f.login, true
	case rt == f.pendRT:
		return f.pendPin, n.server.familyOf(f.pendRT) + 1, true
	}
	return f.pin, f.login, !t.BothPrints || rt == f.oldRT
}

func (t *turn) settle() {
	rt := t.from.store.rt
	pin, login, known := t.settled(t.from, rt)
	if !known {
		t.can(vNoPin, 0, 0, func(n *state, p *proc) { t.leave(p, noPin) })
		return
	}
	t.can(vSettleRead, rt, pin, func(n *state, p *proc) {
		p.pin, p.login = pin, login
		p.pc = pcSettleWrite
	})
}

func (t *turn) settleWrite() {
	t.can(vSettleWrite, t.p.pin, 0, func(n *state, p *proc) {
		n.session.pin, n.session.login = p.pin, p.login
		n.session.there = true
		n.session.pendPin, n.session.pendRT, n.session.oldRT = 0, 0, 0
		if p.pin == 0 {
			t.leave(p, noPin)
			return
		}
		t.pinned(p)
	})
}

func (t *turn) writeMark() {
	rt := t.p.rt
	f := t.from.mark
	if f == (mark{markRefused, rt}) {
		t.can(vRefusedMark, rt, 0, func(n *state, p *proc) { t.leave(p, loginRequired) })
		return
	}
	if f == (mark{markSpent, rt}) && t.keeps(HonourSpent) {
		t.can(vSpentSeen, rt, 0, func(n *state, p *proc) { t.leave(p, spentFound) })
		return
	}
	t.can(vMark, rt, 0, func(n *state, p *proc) {
		if f == (mark{markSent, rt}) {
			p.flags |= foundMark
		}
		if t.keeps(WriteMark) {
			n.mark = mark{markSent, rt}
		}
		t.recheck(p)
	})
}

// recheck begins the checks before a send.
func (t *turn) recheck(p *proc) {
	p.on = target
	if t.role() == RefreshStore && !t.keeps(TakeBothLocks) {
		p.on = store
	}
	switch {
	case t.keeps(RecheckLock):
		p.pc = pcCheckLock
	case t.keeps(RecheckRecord):
		p.pc = pcCheckRecord
	default:
		p.pc = pcSend
	}
}

func (t *turn) checkLock() {
	l := t.p.on
	if t.from.locks[l].owner == t.me {
		t.can(vOurs, 0, 0, func(n *state, p *proc) {
			p.pc = pcCheckRecord
			if l == target && t.role() == RefreshStore {
				p.on, p.pc = store, pcCheckLock
			} else if !t.keeps(RecheckRecord) {
				p.pc = pcSend
			}
		})
		return
	}
	t.can(vGone, 0, 0, func(n *state, p *proc) {
		if p.has(restarted) {
			t.leave(p, lockBusy)
			return
		}
		kept := *p
		t.leave(p, running)
		if p.over() {
			p.flags = 0
			t.start(p)
		} else {
			p.goal = toRestart
		}
		p.flags |= restarted | kept.flags&(resent|foundMark)
		p.rt, p.seenOutcome = kept.rt, kept.seenOutcome
	})
}

func (t *turn) checkRecord() {
	rt := t.from.store.rt
	if rt == t.p.rt {
		t.can(vSameRecord, rt, 0, func(n *state, p *proc) {
			p.flags |= reread
			p.pc = pcSend
		})
		return
	}
	t.can(vOtherRecord, rt, 0, func(n *state, p *proc) { t.leave(p, found(rt)) })
}
