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
	}
	sends := func(what verb, a answer, change func(*server) uint8) {
		t.can(what, rt, to, func(n *state, p *proc) {
			p.sent, p.answer, p.pc = rt, a, pcAnswer
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
			sends(vSendLater, tryLater, nil)
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
	sends(vSendLater, tryLater, nil)
	sends(vSendRefused, refusal, func(s *server) uint8 { s.valid &^= bit; return 0 })
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
		case loginRequired, outcomeUnknown:
			if t.from.session.refused == rt {
				broken |= 1 << ResendRefused
			} else {
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
	rt := t.p.rt
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
		if !t.p.has(resent) && !t.role().source() {
			t.can(vResend, 0, 0, func(n *state, p *proc) {
				p.answer, p.sent = noAnswer, 0
				p.flags |= resent
				t.recheck(p)
			})
		}
	case tryLater:
		t.can(vLater, 0, 0, func(n *state, p *proc) {
			// The answer says nothing about sends before ours.
			known := p.has(foundMark|resent) && t.keeps(KeepFoundMark)
			if !known && !t.role().source() {
				n.mark = mark{}
			}
			t.fail(p, temporary)
		})
	case refusal:
		t.can(vRefused, t.from.store.rt, 0, func(n *state, p *proc) {
			if n.store.rt != rt {
				t.leave(p, found(n.store.rt))
				return
			}
			o := loginRequired
			if p.has(foundMark | resent) {
				o = outcomeUnknown
			}
			if !t.keeps(NoteBeforeClear) && !t.role().source() {
				n.mark = mark{}
			}
			if t.RefusedMark && !t.role().source() {
				n.mark = mark{markRefused, rt}
			}
			t.fail(p, o)
		})
		wrong := t.from.server.rotated>>rt&1 == 1 && t.from.store.rt == rt
		if wrong && !t.p.has(foundMark|resent) && !t.role().source() && t.p.pin == t.servers[t.from.server.familyOf(rt)] {
			t.breaks(Misreported)
		}
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

func (t *turn) note() {
	t.can(vNote, t.p.rt, 0, func(n *state, p *proc) {
		f := &n.session
		if f.there && found(n.store.rt) != noLogin {
			f.outcome++
			f.outcomeRT = p.rt
			if p.outcome != temporary {
				f.refused = p.rt
				n.mark = mark{} // the refusal is on record now
			}
		}
		t.leave(p, p.outcome)
	})
}
