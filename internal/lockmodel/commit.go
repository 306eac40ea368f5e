package lockmodel

// compare is the first half of the commit's compare-and-swap.
func (t *turn) compare() {
	rt := t.from.store.rt
	same := rt == t.p.rt || !t.keeps(CompareAndSwap) || rt == noRecord && !t.keeps(LeaveRemoved)
	if !same {
		t.can(vDecline, rt, 0, func(n *state, p *proc) {
			if t.role().source() {
				t.leave(p, newerStays)
				return
			}
			p.pc = pcDecline
		})
		return
	}
	t.can(vCompare, rt, 0, func(n *state, p *proc) {
		p.seenVersion = n.store.version
		if t.keeps(SettleBeforeCommit) && n.session.pending() && !t.role().source() {
			p.pc = pcCommitSettle
			return
		}
		t.beforeRename(p)
	})
}

// commitSettle keeps a pending login's two fingerprints exhaustive.
func (t *turn) commitSettle() {
	pin, _, _ := t.settled(t.from, t.p.rt)
	t.can(vSettleWrite, pin, 0, func(n *state, p *proc) {
		t.settleNow(n, p.rt)
		t.beforeRename(p)
	})
	if t.from.diskFaults > 0 {
		t.can(vSettleFails, 0, 0, func(n *state, p *proc) {
			n.diskFaults--
			t.beforeRename(p)
		})
	}
}

// commitNote is the session file after the rename, where that tells more than
// the store: it settles by the token that was sent, and pins.
func (t *turn) commitNote() {
	t.can(vSettleWrite, t.p.pin, 0, func(n *state, p *proc) {
		t.settleNow(n, p.rt)
		if n.session.pin == 0 {
			n.session.pin = p.pin
		}
		n.session.there = true
		t.leave(p, done)
	})
}

// decline asks whether the newer state is another refresh's of this login, or
// leaves the new token to nobody.
func (t *turn) decline() {
	rt := t.from.store.rt
	_, login, _ := t.settled(t.from, rt)
	other := rt == noRecord || t.p.login != 0 && login != 0 && login != t.p.login
	if other && t.keeps(RevokeOvertaken) || !t.keeps(RevokeOnlyOtherLogin) {
		t.can(vOtherLogin, t.p.got, 0, func(n *state, p *proc) {
			p.flags |= overtaken
			t.leave(p, newerStays)
		})
		return
	}
	t.can(vKeep, t.p.got, 0, func(n *state, p *proc) { t.leave(p, newerStays) })
	s := &t.from.server
	if s.valid>>t.p.got&1 == 1 && (found(rt) == noLogin || s.familyOf(rt) != s.familyOf(t.p.got)) {
		t.breaks(Orphaned)
	}
}

// revoke ends the whole login that the new token belongs to, when all locks
// are released.
func (t *turn) revoke() {
	family := t.from.server.familyOf(t.p.got)
	t.can(vRevoke, t.p.got, 0, func(n *state, p *proc) {
		for rt := uint8(firstRT); rt < n.server.next; rt++ {
			if n.server.familyOf(rt) == family {
				n.server.valid &^= 1 << rt
			}
		}
		p.end()
	})
	if rt := t.from.store.rt; found(rt) == adopted && t.from.server.familyOf(rt) == family {
		t.breaks(RevokedLiving)
	}
}

// beforeRename chooses the next check.
func (t *turn) beforeRename(p *proc) {
	p.on = store
	switch {
	case t.role().source():
		p.pc = pcRename
	case t.keeps(OwnBeforeRename) && p.has(holdsS):
		p.pc = pcOwn
	case t.keeps(SameBeforeRename):
		p.pc = pcSame
	default:
		p.pc = pcRename
	}
}

func (t *turn) ownBeforeRename() {
	if t.from.locks[store].owner == t.me {
		t.can(vOurs, 0, 0, func(n *state, p *proc) {
			p.pc = pcRename
			if t.keeps(SameBeforeRename) {
				p.pc = pcSame
			}
		})
		return
	}
	t.can(vGone, 0, 0, func(n *state, p *proc) {
		p.flags &^= holdsS
		p.seenVersion = 0
		t.seek(p, store, p.goal)
	})
}

func (t *turn) sameBeforeRename() {
	if t.from.store.version == t.p.seenVersion {
		t.can(vSameFile, 0, 0, func(n *state, p *proc) { p.pc = pcRename })
		return
	}
	t.can(vOtherFile, 0, 0, func(n *state, p *proc) {
		p.seenVersion = 0
		p.pc = pcSnapshot
		if t.role().refreshes() {
			p.pc = pcCompare
		}
	})
}

// rename replaces the store, and is where lost updates are judged.
func (t *turn) rename() {
	old := t.from.store
	rt, kind := t.p.got, rotation
	switch r := t.role(); {
	case r.signsIn():
		kind = login
	case r == Static:
		rt, kind = staticRT, login
	case !r.refreshes():
		rt, kind = noRecord, removal
	}
	var broken Kinds
	if kind == rotation && old.rt != t.p.rt {
		switch {
		case old.rt == noRecord:
			broken |= 1 << Resurrected
		case old.rt == staticRT, t.from.server.familyOf(old.rt) != t.from.server.familyOf(t.p.rt):
			broken |= 1 << LostLogin
		default:
			broken |= 1 << LostRotation
		}
	} else if old.version != t.p.seenVersion {
		broken |= 1 << StaleWrite
	}
	if t.hasGuards(t.i) && !t.p.has(hasGuardS) {
		broken |= 1 << Unguarded
	}
	t.can(vRename, rt, old.rt, func(n *state, p *proc) {
		n.store = storeFile{rt: rt, version: old.version + 1, last: kind}
		p.seenVersion = 0
		if kind == rotation && !t.role().source() && n.mark.rt == p.rt {
			n.mark = mark{}
		}
		t.renamed(n, p)
	})
	t.out[len(t.out)-1].kinds |= broken
	if kind == rotation && !t.role().source() && t.from.diskFaults > 0 {
		t.can(vRenameFails, rt, old.rt, func(n *state, p *proc) {
			n.diskFaults--
			p.pc = pcSpent
		})
	}
}

// spent says that an exchange is lost, so that nobody repeats it.
func (t *turn) spent() {
	rt := t.p.rt
	t.can(vSpent, rt, 0, func(n *state, p *proc) {
		n.mark = mark{markSpent, rt, p.login}
		t.leave(p, unsaved)
	})
	if t.from.diskFaults > 0 {
		t.can(vSpentFails, rt, 0, func(n *state, p *proc) {
			n.diskFaults--
			t.leave(p, unsavedUnmarked)
		})
	}
}
