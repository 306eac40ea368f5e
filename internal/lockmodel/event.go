package lockmodel

import (
	"fmt"
	"strings"
)

// event is one step as it is told: who did what, to which lock, and two
// numbers whose meaning its sentence gives.
type event struct {
	who  uint8
	what verb
	lock uint8
	a, b uint8
}

type verb uint8

const (
	vCrash verb = iota
	vStop
	vClock
	vEdit
	vRead
	vReadSession
	vMint
	vGuard
	vGiveUpGuard
	vGiveUpFile
	vUnguarded
	vBreakBehind
	vCreate
	vWrite
	vSeeMarked
	vSeeOld
	vBreak
	vBreakGrant
	vPollStore
	vPollSession
	vReread
	vSpentSeen
	vRefusedMark
	vUnknownMark
	vRefusedSeen
	vOutcomeSeen
	vPin
	vOldPin
	vNoPin
	vFirstUse
	vFirstPin
	vPendingSeen
	vPendingGone
	vSettleRead
	vSettleWrite
	vSettleFails
	vMark
	vOurs
	vGone
	vSameRecord
	vOtherRecord
	vSend
	vSendLost
	vSendBroken
	vSendUnprocessed
	vSendRefused
	vReceive
	vNoAnswer
	vResend
	vResendSure
	vUnprocessed
	vRefused
	vRefusedFails
	vNote
	vChanged
	vCompare
	vDecline
	vOtherLogin
	vRevoke
	vKeep
	vSameFile
	vOtherFile
	vRename
	vRenameFails
	vSpent
	vSpentFails
	vSnapshot
	vNothingThere
	vWritePending
	vWritePin
	vDropSession
	vResetSession
	vReleaseOurs
	vReleaseGone
	vUnlink
	vDropGuard
)

// In a sentence L is the lock, A and B are refresh tokens, P is the process
// a-1, S the server a C the content a of a lock file
// and M the mark b.
var sentences = [...]string{
	vCrash:           "CRASHES (kernel locks vanish, files stay)",
	vStop:            "IS STOPPED for ever",
	vClock:           "the wall clock steps forward: every lock file looks old",
	vEdit:            "the user's file names {SA} now",
	vRead:            "reads the store: {A}",
	vReadSession:     "reads the session file: pin {SA}, outcome id {b}",
	vMint:            "signs in and receives {A}",
	vGuard:           "flock({L}.guard): granted",
	vGiveUpGuard:     "flock({L}.guard): held by {P} for too long, gives up",
	vGiveUpFile:      "waits for {L}: {P}'s file, backstop, gives up",
	vUnguarded:       "flock({L}.guard): held by {P}, goes on WITHOUT the guard and unlinks {L}",
	vBreakBehind:     "flock({L}.guard): held by {P}, unlinks {L} BEHIND it",
	vCreate:          "open({L}, O_EXCL): created",
	vWrite:           "writes {L}: {C}; holds it",
	vSeeMarked:       "reads {L}: {P}'s, marked; the guard is mine, so its writer is dead",
	vSeeOld:          "reads {L}: {P}'s, judged abandoned",
	vBreak:           "unlink({L}), to break it: was {P}'s",
	vBreakGrant:      "unlink({L}), to break it: was {P}'s, and TAKES it as granted",
	vPollStore:       "waiting, reads the store: {A}, adopts it",
	vPollSession:     "waiting, reads the session file: an exchange of {A} ended, takes its outcome for {B}",
	vReread:          "under the lock reads the store: {A}",
	vSpentSeen:       "finds the mark 'spent' for {A}: sends nothing",
	vRefusedMark:     "finds the mark 'refused' for {A}: sends nothing",
	vUnknownMark:     "finds the mark 'unknown' for {A}: sends nothing",
	vRefusedSeen:     "reads the session file: login required for {A}, sends nothing",
	vOutcomeSeen:     "reads the session file: an exchange of {A} ended meanwhile, takes its outcome",
	vPin:             "reads the session file: pin {SA}",
	vOldPin:          "keeps the pin {SA} that it read before the record",
	vNoPin:           "reads the session file: no usable pin, sends nothing",
	vFirstUse:        "reads the session file: no pin yet, the user's file says {SA}",
	vFirstPin:        "renames the session file: pin {SA}, the first",
	vPendingSeen:     "reads the session file: pin {SA}, pending for {B}",
	vPendingGone:     "reads the session file again: nothing pending, keeps pin {SA}",
	vSettleRead:      "settles pending: the store holds {A}, so the pin is {SB}",
	vSettleWrite:     "renames the session file: pin {SA} alone",
	vSettleFails:     "cannot write the session file, goes on",
	vMark:            "reads the mark in T.guard, writes 'sent' for {A}",
	vOurs:            "re-check: {L} is mine",
	vGone:            "re-check: {L} is not mine any more",
	vSameRecord:      "re-check: the record is still {A}",
	vOtherRecord:     "re-check: the record is {A} now, sends nothing",
	vSend:            "SENDS {A} to {SB}: rotated, answer on its way",
	vSendLost:        "SENDS {A} to {SB}: rotated, answer lost",
	vSendBroken:      "SENDS {A} to {SB}: not processed, no answer",
	vSendUnprocessed: "SENDS {A} to {SB}: not processed, and it shows",
	vSendRefused:     "SENDS {A} to {SB}: invalid_grant",
	vReceive:         "receives {A}",
	vNoAnswer:        "gets no answer: temporary",
	vResend:          "connection broke: will send once more in this hold",
	vResendSure:      "was not processed: will send once more in this hold",
	vUnprocessed:     "was not processed: temporary",
	vRefused:         "was refused, writes the mark '{M}' for {A}",
	vRefusedFails:    "was refused, cannot mark {A}",
	vNote:            "renames the session file: outcome of {A}",
	vChanged:         "re-reads the store: {A}, the answer spoke of another",
	vCompare:         "commit: reads the store: {A}, as sent",
	vDecline:         "commit: reads the store: {A}, not what was sent; the newer state stays",
	vOtherLogin:      "reads the session file: {A} is nobody's any more, will revoke it",
	vRevoke:          "revokes {A} and all of its login",
	vKeep:            "reads the session file: same or unknown login, leaves {A} alone",
	vSameFile:        "stat(store): still the file that was read",
	vOtherFile:       "stat(store): replaced since it was read, reads again",
	vRename:          "renames the store: {A}, was {B}",
	vRenameFails:     "renames the store: fails, twice",
	vSpent:           "writes the mark 'spent' for {A}; not saved",
	vSpentFails:      "cannot write the mark 'spent' for {A}; not saved",
	vSnapshot:        "under the lock reads store and session file: {A}, pin {SB}",
	vNothingThere:    "under the lock reads the store: nothing to remove",
	vWritePending:    "renames the session file: pin {SA}, pending for {B}",
	vWritePin:        "renames the session file: pin {SA}",
	vDropSession:     "unlinks the session file",
	vResetSession:    "renames the session file: static, no pin",
	vReleaseOurs:     "release: reads {L}, mine",
	vReleaseGone:     "release: reads {L}, not mine, leaves it",
	vUnlink:          "release: unlink({L}), was {P}'s",
	vDropGuard:       "releases {L}.guard",
}

func token(n uint8) string {
	switch n {
	case noRecord:
		return "none"
	case staticRT:
		return "static"
	}
	return fmt.Sprintf("RT%d", n)
}

func serverName(n uint8) string { return [...]string{"none", "A", "B"}[n] }

// tell gives the event as a sentence.
func (m *model) tell(e event) string {
	who := fmt.Sprintf("P%d %s", e.who, m.Procs[e.who])
	if e.what == vClock || e.what == vEdit {
		who = "-"
	}
	contents := [...]string{"absent", "empty", "a nonce", "a nonce and the mark"}
	markNames := [...]string{"nothing", "sent", "spent", "refused", "unknown"}
	pick := func(names []string, i uint8) string {
		if int(i) < len(names) {
			return names[i]
		}
		return ""
	}
	servers := []string{serverName(0), serverName(1), serverName(2)}
	owner := "nobody"
	if e.a > 0 {
		owner = fmt.Sprintf("P%d", e.a-1)
	}
	text := strings.NewReplacer("{L}", [...]string{"T.lock", "S.lock"}[e.lock],
		"{A}", token(e.a), "{B}", token(e.b), "{b}", fmt.Sprint(e.b), "{P}", owner,
		"{SA}", pick(servers, e.a), "{SB}", pick(servers, e.b),
		"{C}", pick(contents[:], e.a), "{M}", pick(markNames[:], e.b)).Replace(sentences[e.what])
	text = strings.NewReplacer("T.lock.guard", "T.guard", "S.lock.guard", "S.guard").Replace(text)
	return fmt.Sprintf("%-18s %s", who, text)
}
