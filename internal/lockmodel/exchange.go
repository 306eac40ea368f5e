package lockmodel

// send spends the token, and is where most promises are judged.
func (t *turn) send() {
	rt := t.p.rt
	bit := uint8(1) << rt
	issuer := t.servers[t.from.server.familyOf(rt)]
	to := t.p.pin
	if t.role().source() {
		to = issuer // its own configuration; not ours to judge
	}
	var broken Kinds
	if to != issuer {
		broken |= 1 << WrongServer
	}
	if guard := guardFlag(t.sendLock()); t.hasGuards(t.i) && (!t.p.has(guard) || !t.p.has(reread)) {
		broken |= 1 << Unguarded
	}
	if !t.role().source() {
		broken |= t.resends(rt)
		if t.p.has(gone) && t.moved() {
			broken |= 1 << BlindSend
		}
	}
	sends := func(what verb, a answer, change func(*server) uint8) {
		t.can(what, rt, to, func(n *state, p *proc) {
			p.sent, p.answer, p.pc = rt, a, pcAnswer
			p.before = mark{}
			p.flags &^= gone
			n.config.used = t.Edits > 0
			if change != nil {
				p.got = change(&n.server)
			}
		})
		t.out[len(t.out)-1].kinds |= broken
	}
	again := t.ReuseGrace && t.from.server.rotated&bit != 0
	if to != issuer || t.from.server.valid&bit == 0 && !again {
		sends(vSendRefused, refusal, nil)
		if t.LostAnswers {
			sends(vSendUnprocessed, unprocessed, nil)
		}
		return
	}
	sends(vSend, newToken, func(s *server) uint8 {
		s.valid &^= bit
		s.rotated |= bit
		return s.mint(s.familyOf(rt))
	})
	if !t.LostAnswers {
		return
	}
	sends(vSendLost, lostAnswer, func(s *server) uint8 {
		s.valid &^= bit
		s.rotated |= bit
		return 0
	})
	sends(vSendBroken, lostAnswer, nil)
	sends(vSendUnprocessed, unprocessed, nil)
	sends(vSendRefused, refusal, func(s *server) uint8 { s.valid &^= bit; return 0 })
}

// moved tells that the record is another one, or a lock file not ours.
func (t *turn) moved() bool {
	for l := range t.from.locks {
		if t.p.has(holdFlag(uint8(l))) && t.from.locks[l].owner != t.me {
			return true
		}
	}
	return t.from.store.rt != t.p.rt
}

// sendLock is the lock whose guard covers the sends of this process.
func (t *turn) sendLock() uint8 {
	if t.role() == RefreshStore && !t.keeps(TakeBothLocks) {
		return store
	}
	return target
}

// resends judges a send by the fate of everybody else's send of that token.
func (t *turn) resends(rt uint8) (broken Kinds) {
	for j := range t.Procs {
		q := &t.from.procs[j]
		if j == t.i || q.sent != rt || q.has(dead) {
			continue
		}
		if !q.over() {
			broken |= 1 << DoubleSend
			continue
		}
		switch q.outcome {
		case loginRequired, outcomeUnknown, refusedUnmarked:
			m := t.from.mark
			onRecord := t.from.session.refused == rt || m.rt == rt && (m.kind == markRefused || m.kind == markUnknown) ||
				t.p.before.rt == rt && (t.p.before.kind == markRefused || t.p.before.kind == markUnknown)
			switch {
			case onRecord:
				broken |= 1 << ResendRefused
			case q.outcome == refusedUnmarked:
				broken |= 1 << ResendUnmarkedRefusal
			default:
				broken |= 1 << ResendUnnoted
			}
		case unsaved:
			broken |= 1 << ResendSpent
		case unsavedUnmarked:
			broken |= 1 << ResendUnmarked
		default:
			broken |= 1 << DoubleSend
		}
	}
	return broken
}

func (t *turn) receive() {
	switch t.p.answer {
	case newToken:
		t.can(vReceive, t.p.got, 0, func(n *state, p *proc) {
			p.answer = noAnswer
			p.pc = pcCompare
			if t.role() == Refresh && t.keeps(CommitTakesStoreLock) {
				t.seek(p, store, toCommit)
			} else {
				p.on, p.goal = store, toCommit
			}
		})
	case lostAnswer:
		t.can(vNoAnswer, 0, 0, func(n *state, p *proc) { t.fail(p, temporary) })
		t.again(vResend, unanswered)
	case unprocessed:
		t.can(vUnprocessed, 0, 0, func(n *state, p *proc) {
			if t.role().source() {
				t.fail(p, temporary)
				return
			}
			t.notProcessed(n, p)
		})
		t.again(vResendSure, 0)
	case refusal:
		t.refused()
	}
}

// again begins the second send of this hold.
func (t *turn) again(what verb, f flag) {
	if t.p.has(resent) || t.role().source() {
		return
	}
	if t.moved() {
		f |= gone
	}
	t.can(what, 0, 0, func(n *state, p *proc) {
		p.answer, p.sent = noAnswer, 0
		p.flags |= resent | f
		p.pc = pcSend
		if t.keeps(RecheckSecond) {
			t.recheck(p)
		}
	})
}

// notProcessed clears the mark for an answer which shows that the token was
// not spent. It says nothing about sends that got no answer.
func (t *turn) notProcessed(n *state, p *proc) {
	if !p.has(unanswered) || !t.keeps(KeepFoundMark) {
		n.mark = mark{}
	}
	t.fail(p, temporary)
}

// refused marks the token at once.
func (t *turn) refused() {
	rt := t.p.rt
	if t.role().source() {
		t.can(vRefused, rt, 0, func(n *state, p *proc) {
			o := loginRequired
			if n.store.rt != rt {
				o = found(n.store.rt)
			}
			t.leave(p, o)
		})
		return
	}
	o, m := loginRequired, mark{markRefused, rt, t.p.login}
	if t.p.has(unanswered) {
		o = outcomeUnknown
		if t.keeps(UnknownMark) {
			m.kind = markUnknown
		}
	}
	if !t.keeps(RefusedMark) {
		m = t.from.mark
	}
	t.can(vRefused, rt, uint8(m.kind), func(n *state, p *proc) {
		n.mark = m
		t.fail(p, o)
	})
	if t.p.pin == t.servers[t.from.server.familyOf(rt)] {
		t.judgeRefusal(o)
	}
	if t.from.diskFaults > 0 && t.keeps(RefusedMark) {
		t.can(vRefusedFails, rt, 0, func(n *state, p *proc) {
			n.diskFaults--
			t.fail(p, o)
			p.flags |= unwritten
		})
	}
}

// fail goes on to write down an exchange that brought no token.
func (t *turn) fail(p *proc, o outcome) {
	p.answer = noAnswer
	if o == temporary {
		p.sent = 0
	}
	switch {
	case t.role().source():
		t.leave(p, o)
		return
	case t.role() == Refresh:
		t.seek(p, store, toNote)
	default:
		p.on, p.goal, p.pc = store, toNote, pcNote
	}
	p.outcome = o
}

// noted is the outcome of a failed exchange as the judge remembers it.
func (p *proc) noted() outcome {
	if p.has(unwritten) && p.outcome != temporary {
		return refusedUnmarked
	}
	return p.outcome
}

// note writes a failure into the session file.
func (t *turn) note() {
	if rt := t.from.store.rt; rt != t.p.rt {
		t.can(vChanged, rt, 0, func(n *state, p *proc) { t.leave(p, found(rt)) })
		return
	}
	t.can(vNote, t.p.rt, 0, func(n *state, p *proc) {
		t.settleNow(n, p.rt)
		f := &n.session
		f.there = true
		f.outcome++
		f.outcomeRT = p.rt
		switch {
		case p.outcome != temporary:
			f.refused, f.unknown = p.rt, p.outcome == outcomeUnknown
		case f.refused == 0 || f.refused == p.rt:
		case t.keeps(RefusedOfOne):
			f.refused, f.unknown = 0, false
		default:
			f.refused = p.rt
		}
		t.leave(p, p.noted())
	})
}
