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
	if t.loginIsRequired() {
		return
	}
	f := t.from.session
	t.can(vReadSession, f.pin, f.outcome, func(n *state, p *proc) {
		p.seenOutcome = f.outcome
		t.start(p)
	})
}

// loginIsRequired ends a process whose token is refused by the session file.
func (t *turn) loginIsRequired() bool {
	f, rt := t.from.session, t.p.rt
	if f.refused != rt || !t.keeps(HonourRefused) {
		return false
	}
	o := loginRequired
	if f.unknown {
		o = outcomeUnknown
	}
	t.can(vRefusedSeen, rt, 0, func(n *state, p *proc) { t.leave(p, o) })
	t.judgeRefusal(o)
	if t.from.server.valid>>rt&1 == 1 {
		t.breaks(ShutOut)
	}
	return true
}

// judgeRefusal judges what a process says of a token that it does not send.
func (t *turn) judgeRefusal(o outcome) {
	if o == loginRequired && t.from.server.rotated>>t.p.rt&1 == 1 && t.from.store.rt == t.p.rt {
		t.breaks(Misreported)
	}
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

// afterReread goes on to the session file.
func (t *turn) afterReread(p *proc) {
	p.pc = pcSession
	if t.role().source() {
		p.pc = pcSend
	}
}

// readSession finds the pin, or a reason to send nothing.
func (t *turn) readSession() {
	if t.loginIsRequired() {
		return
	}
	f, rt := t.from.session, t.p.rt
	if _, yes := t.newOutcome(); yes && f.outcomeRT == rt {
		t.can(vOutcomeSeen, rt, 0, func(n *state, p *proc) { t.leave(p, tookOutcome) })
		return
	}
	pin, what := f.pin, vPin
	if !t.keeps(PinAfterRecord) {
		pin, what = t.p.pin, vOldPin
	}
	if f.pending() && t.keeps(SettleBeforeSend) && t.keeps(PinAfterRecord) {
		t.can(vPendingSeen, pin, f.pendRT, func(n *state, p *proc) {
			p.pin, p.login, _ = t.settled(n, rt)
			p.pc = pcSessionAgain
		})
		return
	}
	t.judgePin(what, pin, f.login)
}

// readSessionAgain settles a pending login that is still there.
func (t *turn) readSessionAgain() {
	if !t.from.session.pending() {
		t.judgePin(vPendingGone, t.p.pin, t.p.login)
		return
	}
	t.can(vPendingSeen, t.from.session.pin, t.from.session.pendRT, func(n *state, p *proc) {
		p.pin, p.login = 0, 0
		if p.has(holdsS) || !t.keeps(SettleUnderLock) {
			p.pc = pcSettle
			return
		}
		t.seek(p, store, toSettle)
	})
}

// judgePin goes on with a pin that the user's configuration does not
// contradict, or with what that says if there is none.
func (t *turn) judgePin(what verb, pin, loginID uint8) {
	users := t.from.config.server
	switch {
	case pin == 0 && users != 0:
		pin, what = users, vFirstUse
	case pin == 0, users != 0 && pin != users:
		t.can(vNoPin, pin, 0, func(n *state, p *proc) { t.leave(p, noPin) })
		return
	}
	t.can(what, pin, 0, func(n *state, p *proc) {
		p.pin, p.login = pin, loginID
		t.pinned(n, p)
	})
}

// pinned goes on when the pin is known: to the proof of the commit, under the
// store lock, where an unpinned record is pinned too.
func (t *turn) pinned(n *state, p *proc) {
	unpinned := t.unpinned(n)
	switch {
	case p.has(holdsS) && unpinned:
		p.pc = pcProve
	case p.has(holdsS), !t.keeps(ProveFirst) && !unpinned:
		p.pc = pcMark
	default:
		t.seek(p, store, toProve)
	}
}

func (t *turn) unpinned(n *state) bool { return n.session.pin == 0 && t.keeps(PinBeforeSend) }

// prove pins a record that has no pin.
func (t *turn) prove() {
	t.can(vFirstPin, t.p.pin, 0, func(n *state, p *proc) {
		n.session.pin, n.session.there = p.pin, true
		p.pc = pcMark
		if p.goal == toProve {
			p.pc = pcRelease
		}
	})
}

// settled tells which pin and login a session file with pending means beside
// a store that holds rt.
func (t *turn) settled(n *state, rt uint8) (pin, loginID uint8, known bool) {
	f := n.session
	switch {
	case !f.pending(), found(rt) == noLogin, t.keeps(PendingNamesBoth) && rt == f.oldRT:
		return f.pin, f.login, true
	case rt == f.pendRT:
		return f.pendPin, n.server.familyOf(f.pendRT) + 1, true
	case t.keeps(PendingNamesBoth):
		return 0, f.login, false
	}
	return f.pin, f.login, true
}

// settleNow writes the session file as rt settles it.
func (t *turn) settleNow(n *state, rt uint8) {
	pin, loginID, known := t.settled(n, rt)
	if !known {
		return // nothing is sent until a login: pending says so as well
	}
	n.session.pin, n.session.login = pin, loginID
	n.session.pendPin, n.session.pendRT, n.session.oldRT = 0, 0, 0
}

func (t *turn) settle() {
	rt := t.from.store.rt
	pin, loginID, known := t.settled(t.from, rt)
	if !known {
		t.can(vNoPin, 0, 0, func(n *state, p *proc) { t.leave(p, noPin) })
		if t.from.server.valid>>rt&1 == 1 {
			t.breaks(ShutOut)
		}
		return
	}
	t.can(vSettleRead, rt, pin, func(n *state, p *proc) {
		p.pin, p.login = pin, loginID
		p.pc = pcSettleWrite
	})
}

// settleWrite is followed by a new reading of both files.
func (t *turn) settleWrite() {
	t.can(vSettleWrite, t.p.pin, 0, func(n *state, p *proc) {
		n.session.pin, n.session.login = p.pin, p.login
		n.session.there = true
		n.session.pendPin, n.session.pendRT, n.session.oldRT = 0, 0, 0
		p.pin, p.login = 0, 0
		p.pc = pcReread
		if p.goal == toSettle {
			p.pc = pcRelease
		}
	})
}

// marked tells that the guard's mark says k of the token that was read, and
// of its login.
func (t *turn) marked(k markKind) bool {
	m := t.from.mark
	return m.kind == k && m.rt == t.p.rt && (m.login == t.p.login || !t.keeps(MarkNamesLogin))
}

func (t *turn) writeMark() {
	rt := t.p.rt
	stop := func(what verb, o outcome) {
		t.can(what, rt, 0, func(n *state, p *proc) { t.leave(p, o) })
		t.judgeRefusal(o)
		// What a login is still about to store is not shut out yet.
		f, s := &t.from.session, &t.from.server
		if s.valid>>rt&1 == 1 && f.login == s.familyOf(rt)+1 && f.login == t.p.login {
			t.breaks(ShutOut)
		}
	}
	switch {
	case t.marked(markSpent) && t.keeps(HonourSpent):
		stop(vSpentSeen, spentFound)
	case t.marked(markRefused) && t.keeps(HonourRefused):
		stop(vRefusedMark, loginRequired)
	case t.marked(markUnknown) && t.keeps(HonourRefused):
		stop(vUnknownMark, outcomeUnknown)
	default:
		t.can(vMark, rt, 0, func(n *state, p *proc) {
			if t.marked(markSent) {
				p.flags |= unanswered
			}
			if t.keeps(WriteMark) {
				p.before = n.mark
				n.mark = mark{markSent, rt, p.login}
			}
			t.recheck(p)
		})
	}
}

// putBack undoes the mark of a send that did not happen.
func (t *turn) putBack(n *state, p *proc) {
	if t.keeps(WriteMark) && !p.has(resent) {
		n.mark = p.before
	}
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
		if p.has(resent) {
			// No second send; the first answer stands.
			t.notProcessed(n, p)
			return
		}
		t.putBack(n, p)
		if p.has(restarted) {
			t.leave(p, lockBusy)
			return
		}
		kept := *p
		t.leave(p, running)
		p.goal = toRestart
		p.flags |= restarted
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
	t.can(vOtherRecord, rt, 0, func(n *state, p *proc) {
		t.putBack(n, p)
		t.leave(p, found(rt))
	})
}
