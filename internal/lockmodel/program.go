package lockmodel

// step is where a process stands: the operation that it does next.
type step uint8

const (
	pcEnd step = iota
	pcArrive
	pcArriveSession
	pcPinFirst
	pcMint
	pcGuard
	pcCreate
	pcWrite
	pcBreak
	pcReread
	pcSession
	pcSessionAgain
	pcSettle
	pcSettleWrite
	pcProve
	pcMark
	pcCheckLock
	pcCheckRecord
	pcSend
	pcAnswer
	pcNote
	pcCompare
	pcDecline
	pcRevoke
	pcCommitSettle
	pcOwn
	pcSame
	pcRename
	pcCommitNote
	pcSpent
	pcSnapshot
	pcPending
	pcWritePin
	pcEndSession
	pcRelease
	pcUnlink
	pcDropGuard
)

// program is what each step can do.
var program = [...]func(*turn){
	pcArrive:        (*turn).arrive,
	pcArriveSession: (*turn).arriveSession,
	pcPinFirst:      (*turn).pinFirst,
	pcMint:          (*turn).mint,
	pcGuard:         (*turn).guard,
	pcCreate:        (*turn).create,
	pcWrite:         (*turn).write,
	pcBreak:         (*turn).breakFile,
	pcReread:        (*turn).rereadStore,
	pcSession:       (*turn).readSession,
	pcSessionAgain:  (*turn).readSessionAgain,
	pcSettle:        (*turn).settle,
	pcSettleWrite:   (*turn).settleWrite,
	pcProve:         (*turn).prove,
	pcMark:          (*turn).writeMark,
	pcCheckLock:     (*turn).checkLock,
	pcCheckRecord:   (*turn).checkRecord,
	pcSend:          (*turn).send,
	pcAnswer:        (*turn).receive,
	pcNote:          (*turn).note,
	pcCompare:       (*turn).compare,
	pcDecline:       (*turn).decline,
	pcRevoke:        (*turn).revoke,
	pcCommitSettle:  (*turn).commitSettle,
	pcOwn:           (*turn).ownBeforeRename,
	pcSame:          (*turn).sameBeforeRename,
	pcRename:        (*turn).rename,
	pcCommitNote:    (*turn).commitNote,
	pcSpent:         (*turn).spent,
	pcSnapshot:      (*turn).snapshot,
	pcPending:       (*turn).writePending,
	pcWritePin:      (*turn).writePin,
	pcEndSession:    (*turn).endSession,
	pcRelease:       (*turn).release,
	pcUnlink:        (*turn).unlink,
	pcDropGuard:     (*turn).dropGuard,
}
