package lockmodel

// seek begins to acquire lock l. A guard that is held already is kept.
func (t *turn) seek(p *proc, l uint8, g goal) {
	p.on, p.goal = l, g
	p.pc = pcGuard
	if p.has(guardFlag(l)) || !t.hasGuards(t.i) {
		p.pc = pcCreate
	}
}

// guard polls the guard with LOCK_NB.
func (t *turn) guard() {
	l, holder := t.p.on, t.from.guards[t.p.on][t.machine(t.i)]
	if holder == 0 {
		t.can(vGuard, 0, 0, func(n *state, p *proc) {
			n.guards[l][t.machine(t.i)] = t.me
			p.flags |= guardFlag(l)
			p.pc = pcCreate
			if p.goal == toRefresh {
				p.flags &^= reread
			}
			if l == target && !t.keeps(KeepMark) {
				n.mark = mark{}
			}
		})
		return
	}
	t.poll()
	if t.Clock == Paced && !t.stuck(t.from, holder) {
		return
	}
	if !t.keeps(KeepToGuard) {
		t.can(vUnguarded, holder, 0, func(n *state, p *proc) {
			n.locks[l] = lockFile{}
			p.pc = pcCreate
		})
		return
	}
	if !t.keeps(NoBreakBehindGuard) && t.from.locks[l].owner != 0 {
		robbed := t.robs(l)
		t.can(vBreakBehind, holder, 0, func(n *state, p *proc) { n.locks[l] = lockFile{} })
		if robbed {
			t.breaks(Robbed)
		}
	}
	t.can(vGiveUpGuard, holder, 0, t.giveUp)
}

// create tries O_EXCL, or looks at the file that is in the way.
func (t *turn) create() {
	l := t.p.on
	f := t.from.locks[l]
	if f.owner == 0 {
		t.can(vCreate, 0, 0, func(n *state, p *proc) {
			n.locks[l] = lockFile{owner: t.me, content: empty}
			p.pc = pcWrite
		})
		return
	}
	t.poll()
	if what, yes := t.mayBreak(f); yes && t.AtomicBreak {
		t.breakFile()
	} else if yes {
		t.can(what, f.owner, 0, func(n *state, p *proc) { p.pc = pcBreak })
	}
	if t.Clock == Free {
		t.can(vGiveUpFile, f.owner, 0, t.giveUp)
	}
}

// mayBreak judges a lock file that is in the way.
func (t *turn) mayBreak(f lockFile) (verb, bool) {
	if t.role().source() {
		return vSeeOld, t.aged(t.from, f)
	}
	if t.p.has(guardFlag(t.p.on)) {
		sameBoot := t.machine(int(f.owner-1)) == t.machine(t.i)
		switch {
		case f.content == guarded && (sameBoot || !t.keeps(ForeignBootUnmarked)) && t.keeps(MarkedIsDead):
			return vSeeMarked, true
		case f.content == empty && !t.keeps(EmptyWaitsForAge),
			f.content == plain && !t.keeps(UnmarkedWaitsForAge):
			return vSeeOld, true
		}
	}
	return vSeeOld, t.aged(t.from, f) && t.unchanged(t.from, f)
}

// robs tells whether an unlink would hit the lock file of a running process.
// A stopped one is not counted: the rules concede it.
func (t *turn) robs(l uint8) bool {
	o := t.from.locks[l].owner
	return o != 0 && o != t.me && !t.from.procs[o-1].idle()
}

func (t *turn) breakFile() {
	l := t.p.on
	robbed := t.robs(l) && !t.role().source()
	what := vBreak
	if !t.keeps(GrantByCreate) {
		what = vBreakGrant
	}
	t.can(what, t.from.locks[l].owner, 0, func(n *state, p *proc) {
		n.locks[l] = lockFile{}
		p.pc = pcCreate
		if what == vBreakGrant {
			p.pc = pcWrite
		}
	})
	if robbed {
		t.breaks(Robbed)
	}
}

// write puts nonce and mark into the created file, which may be unlinked by
// now; the writer cannot tell.
func (t *turn) write() {
	l := t.p.on
	c := plain
	if t.p.has(guardFlag(l)) {
		c = guarded
	}
	another := false
	for j := range t.Procs {
		q := &t.from.procs[j]
		another = another || j != t.i && !q.has(dead) && q.has(holdFlag(l))
	}
	t.can(vWrite, uint8(c), 0, func(n *state, p *proc) {
		if n.locks[l].owner == t.me || !t.keeps(GrantByCreate) {
			n.locks[l].owner, n.locks[l].content = t.me, c
		}
		p.flags |= holdFlag(l)
		t.acquired(n, p, l)
	})
	if another {
		t.breaks(TwoHolders)
	}
}

// acquired goes on to what the lock was wanted for.
func (t *turn) acquired(n *state, p *proc, l uint8) {
	switch {
	case p.goal == toWrite:
		p.pc = pcSnapshot
	case p.goal == toCommit:
		p.pc = pcCompare
	case p.goal == toNote:
		p.pc = pcNote
	case p.goal == toSettle:
		p.pc = pcSettle
	case p.goal == toProve:
		p.pc = pcRelease
		if t.unpinned(n) {
			p.pc = pcProve
		}
	case l == target && t.role() == RefreshStore && !p.has(holdsS):
		t.seek(p, store, toRefresh)
	case l == store && t.role() == RefreshStore && !p.has(holdsT) && t.keeps(TakeBothLocks):
		t.seek(p, target, toRefresh) // the wrong order
	case !t.keeps(RereadUnderLock):
		t.afterReread(p)
	default:
		p.pc = pcReread
	}
}

// poll is what a waiter for a refresh does meanwhile: it adopts.
func (t *turn) poll() {
	if t.role() != Refresh && t.role() != RefreshStore || t.p.goal != toRefresh && t.p.goal != toSettle && t.p.goal != toProve {
		return
	}
	if rt := t.from.store.rt; rt != t.p.rt {
		t.can(vPollStore, rt, 0, func(n *state, p *proc) { t.leave(p, found(rt)) })
	}
	if about, yes := t.newOutcome(); yes {
		t.can(vPollSession, about, t.p.rt, func(n *state, p *proc) { t.leave(p, tookOutcome) })
		if about != t.p.rt {
			t.breaks(WrongOutcome)
		}
	}
}

// newOutcome tells whether an exchange has ended that this process may take.
func (t *turn) newOutcome() (about uint8, yes bool) {
	f := &t.from.session
	yes = f.there && f.outcome != t.p.seenOutcome && f.outcomeRT != 0 &&
		(f.outcomeRT == t.p.rt || !t.keeps(OutcomeOfSameToken))
	return f.outcomeRT, yes
}

// found is the outcome of one who finds rt instead of the token it knew.
func found(rt uint8) outcome {
	if rt == noRecord || rt == staticRT {
		return noLogin
	}
	return adopted
}

// giveUp ends a wait.
func (t *turn) giveUp(n *state, p *proc) {
	switch {
	case p.goal == toCommit && t.keeps(SpentOnGiveUp):
		p.pc = pcSpent
	case p.goal == toCommit:
		t.leave(p, unsaved)
	case p.goal == toNote:
		t.leave(p, p.noted())
	default:
		t.leave(p, lockBusy)
	}
}

// leave releases everything and ends with o.
func (t *turn) leave(p *proc, o outcome) {
	flags := p.flags & (hasGuardT | hasGuardS | holdsT | holdsS | overtaken)
	got := p.got
	if flags&overtaken == 0 {
		got = 0
	}
	on := uint8(target)
	if flags&(hasGuardS|holdsS) != 0 {
		on = store
	}
	*p = proc{flags: flags, pc: pcRelease, goal: toLeave, on: on, rt: p.rt, got: got, sent: p.sent, outcome: o}
	t.skipRelease(p)
}

// skipRelease goes past the parts of a release that there is nothing to do for.
func (t *turn) skipRelease(p *proc) {
	for p.pc == pcRelease && !p.has(holdFlag(p.on)) {
		if p.has(guardFlag(p.on)) {
			p.pc = pcDropGuard
			return
		}
		t.released(p)
	}
}

// released goes on after lock p.on is given back.
func (t *turn) released(p *proc) {
	switch {
	case p.on == store && p.goal == toSettle:
		p.on, p.pc = target, pcReread
	case p.on == store && p.goal == toProve:
		p.on, p.pc = target, pcMark
	case p.on == store && p.flags&(holdsT|hasGuardT) != 0:
		p.on, p.pc = target, pcRelease
		t.skipRelease(p)
	case p.goal == toRestart:
		t.start(p)
	case p.has(overtaken):
		p.pc = pcRevoke
	default:
		p.end()
	}
}

func (t *turn) release() {
	l := t.p.on
	if !t.keeps(GuardAfterUnlink) && t.p.has(guardFlag(l)) {
		t.can(vDropGuard, 0, 0, func(n *state, p *proc) {
			n.guards[l][t.machine(t.i)] = 0
			p.flags &^= guardFlag(l)
		})
		return
	}
	if t.from.locks[l].owner == t.me || !t.keeps(NonceBeforeUnlink) {
		t.can(vReleaseOurs, 0, 0, func(n *state, p *proc) { p.pc = pcUnlink })
		return
	}
	t.can(vReleaseGone, 0, 0, func(n *state, p *proc) {
		p.flags &^= holdFlag(l)
		t.skipRelease(p)
	})
}

func (t *turn) unlink() {
	l := t.p.on
	robbed := t.robs(l) && !t.role().source()
	t.can(vUnlink, t.from.locks[l].owner, 0, func(n *state, p *proc) {
		n.locks[l] = lockFile{}
		p.flags &^= holdFlag(l)
		p.pc = pcRelease
		t.skipRelease(p)
	})
	if robbed {
		t.breaks(RobbedAtRelease)
	}
}

func (t *turn) dropGuard() {
	l := t.p.on
	t.can(vDropGuard, 0, 0, func(n *state, p *proc) {
		n.guards[l][t.machine(t.i)] = 0
		p.flags &^= guardFlag(l)
		p.pc = pcRelease
		t.skipRelease(p)
	})
}
