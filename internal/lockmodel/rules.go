package lockmodel

// Role is what one process does.
type Role uint8

const (
	Refresh       Role = iota + 1 // ours, scope target
	RefreshStore                  // ours, scope store
	LoginB                        // signs in at the other server
	LoginA                        // signs in again at the same server
	Logout                        // removes the record
	Static                        // writes a static record
	SourceRefresh                 // a source program
	SourceLogin                   // a source program signs in, at the same server
	SourceLoginB                  // at the other one
	SourceLogout
)

func (r Role) source() bool { return r >= SourceRefresh }

func (r Role) refreshes() bool {
	return r == Refresh || r == RefreshStore || r == SourceRefresh
}

func (r Role) signsIn() bool {
	return r == LoginA || r == LoginB || r == SourceLogin || r == SourceLoginB
}

func (r Role) String() string {
	return [...]string{"", "refresh", "refresh/store", "login B", "login A", "logout", "static",
		"source refresh", "source login", "source login B", "source logout"}[r]
}

// Rule is a sentence of the rules that can be taken out.
type Rule uint8

const (
	NoRule Rule = iota
	KeepToGuard
	NoBreakBehindGuard
	EmptyWaitsForAge
	UnmarkedWaitsForAge
	WatchBeforeBreak
	MarkedIsDead
	ForeignBootUnmarked
	GuardAfterUnlink
	NonceBeforeUnlink
	GrantByCreate
	TakeBothLocks
	TargetFirst
	RereadUnderLock
	RecheckLock
	RecheckRecord
	RecheckSecond
	ProveFirst
	PinBeforeSend
	WriteMark
	KeepMark
	KeepFoundMark
	HonourSpent
	SpentOnGiveUp
	HonourRefused
	RefusedMark
	UnknownMark
	MarkNamesLogin
	RefusedOfOne
	CompareAndSwap
	LeaveRemoved
	OwnBeforeRename
	SameBeforeRename
	PendingAtLogin
	PendingNamesBoth
	SettleBeforeLogin
	SettleBeforeSend
	SettleBeforeCommit
	SettleUnderLock
	PinAfterRecord
	RecordBeforeSession
	OutcomeOfSameToken
	RevokeOvertaken
	RevokeOnlyOtherLogin
	CommitTakesStoreLock
	ruleCount
)

var ruleNames = [ruleCount]string{
	NoRule:               "nothing",
	KeepToGuard:          "never go on without the guard",
	NoBreakBehindGuard:   "never break a lock file behind a held guard",
	EmptyWaitsForAge:     "an empty lock file is broken by age only",
	UnmarkedWaitsForAge:  "an unmarked lock file is broken by age only",
	WatchBeforeBreak:     "an aged lock file is watched before it is broken",
	MarkedIsDead:         "a marked lock file under the guard is broken at once",
	ForeignBootUnmarked:  "another boot's mark counts as none",
	GuardAfterUnlink:     "the guard is given up after the lock file",
	NonceBeforeUnlink:    "release only your own",
	GrantByCreate:        "a break grants nothing",
	TakeBothLocks:        "scope store takes the target lock too",
	TargetFirst:          "target lock first, then store lock",
	RereadUnderLock:      "re-read under the lock",
	RecheckLock:          "lock file still ours before the send",
	RecheckRecord:        "record still the one read before the send",
	RecheckSecond:        "the same re-checks before a second send",
	ProveFirst:           "prove the commit before the send",
	PinBeforeSend:        "an unpinned record is pinned before its first send",
	WriteMark:            "mark before the send",
	KeepMark:             "the next holder keeps the mark",
	KeepFoundMark:        "an answer clears only this hold's mark",
	HonourSpent:          "a spent token is not sent",
	SpentOnGiveUp:        "an unsaved exchange marks its token spent",
	HonourRefused:        "a refused token is not sent again",
	RefusedMark:          "a refusal is marked at once",
	UnknownMark:          "a refusal after an unanswered send is marked unknown",
	MarkNamesLogin:       "a mark counts for its login only",
	RefusedOfOne:         "login required counts for its token only",
	CompareAndSwap:       "commit compares the token that was sent",
	LeaveRemoved:         "commit leaves a removed record removed",
	OwnBeforeRename:      "store lock file still ours before the rename",
	SameBeforeRename:     "store still the same before the rename",
	PendingAtLogin:       "login announces its pin as pending",
	PendingNamesBoth:     "pending names the token that it replaces too",
	SettleBeforeLogin:    "login settles an earlier pending first",
	SettleBeforeSend:     "pending is settled before a send",
	SettleBeforeCommit:   "pending is settled before a commit",
	SettleUnderLock:      "pending is settled under the store lock",
	PinAfterRecord:       "the pin is read after the record",
	RecordBeforeSession:  "logout removes the record before the session file",
	OutcomeOfSameToken:   "a waiter takes only its own token's outcome",
	RevokeOvertaken:      "the new tokens of an overtaken refresh are revoked",
	RevokeOnlyOtherLogin: "new tokens are revoked only beside another login",
	CommitTakesStoreLock: "commit happens under the store lock",
}

func (r Rule) String() string { return ruleNames[r] }

// Rules lists every rule that can be taken out.
func Rules() []Rule {
	var all []Rule
	for r := NoRule + 1; r < ruleCount; r++ {
		all = append(all, r)
	}
	return all
}

// Kind is a way in which a promise is broken.
type Kind uint8

const (
	DoubleSend            Kind = iota // a token is sent while its earlier sender lives, or after it was answered
	ResendSpent                       // sent although an unsaved exchange has spent it
	ResendUnmarked                    // the same where the mark could not be written
	ResendRefused                     // sent although a refusal is on record
	ResendUnnoted                     // sent after a refusal that is not on record
	ResendUnmarkedRefusal             // sent after a refusal that could not be marked
	BlindSend                         // a second send though lock or record were gone when the first answer came
	TwoHolders                        // two running processes believe that they hold one lock
	Robbed                            // one of ours breaks the lock file of a running process
	RobbedAtRelease                   // the same by a release
	Unguarded                         // a send or rename without guard, or without a re-read under it
	LostRotation                      // a commit overwrites another committed rotation
	LostLogin                         // a commit overwrites a newer login or static record
	Resurrected                       // a commit brings a removed record back
	StaleWrite                        // the file is replaced from a reading that is no longer current
	WrongServer                       // a refresh token is sent to a server that did not issue it
	WrongOutcome                      // a waiter is told the fate of another token
	RevokedLiving                     // a revocation hits the session that the store holds
	ShutOut                           // a living session is taken for one that has ended
	Orphaned                          // a new token that nobody will use is left alive
	Misreported                       // "login required" for a token that an earlier exchange has spent
	Deadlock                          // somebody could go on, and nobody can
	Endless                           // a run that never ends though time-outs are fair
	kindCount
)

var kindNames = [kindCount]string{"double send", "resend of a spent token", "resend, spent mark not written",
	"resend of a refused token", "resend, refusal not on record", "resend, refused mark not written", "blind second send", "two holders", "robbed", "robbed by a release", "unguarded",
	"lost rotation", "lost login", "removed record returns", "stale write", "wrong server",
	"outcome of another token", "living session revoked", "living session shut out", "orphaned tokens", "misreported", "deadlock", "endless run"}

func (k Kind) String() string { return kindNames[k] }

// AllKinds lists every kind.
func AllKinds() []Kind {
	var all []Kind
	for k := range kindCount {
		all = append(all, k)
	}
	return all
}

// Kinds is a set of kinds.
type Kinds uint32

// KindsOf returns the set of its arguments.
func KindsOf(ks ...Kind) Kinds {
	var s Kinds
	for _, k := range ks {
		s |= 1 << k
	}
	return s
}

// Has reports whether k is among them.
func (s Kinds) Has(k Kind) bool { return s&(1<<k) != 0 }

func (s Kinds) String() string {
	text := ""
	for k := range kindCount {
		if s.Has(k) {
			if text != "" {
				text += ", "
			}
			text += k.String()
		}
	}
	if text == "" {
		return "none"
	}
	return text
}

// Clock says when a time-out may fire.
type Clock uint8

const (
	// Free time-outs fire at any moment, whatever the others do: this covers
	// suspends, stops of any length, slow disks and clock steps.
	Free Clock = iota
	// Paced time-outs of StaleAfter fire only on what a dead, stopped or
	// ended process left, or on one that itself waits for such a thing; the
	// watching time also passes while somebody waits for a server.
	Paced
)

// Config is one search.
type Config struct {
	Name    string
	Procs   []Role
	Without []Rule
	Clock   Clock

	// NoKernelLocks: flock fails everywhere; refreshes must be RefreshStore.
	NoKernelLocks bool
	// OtherMachine has one bit per process that runs on a second machine
	// whose kernel locks are its own.
	OtherMachine uint8

	Crashes, Stops, ClockSteps, DiskFaults uint8

	// LostAnswers lets answers be lost, be "later", or refuse a valid token.
	LostAnswers bool
	// ReuseGrace: the server rotates a spent token once more.
	ReuseGrace bool
	// DecideAnew lets a process that finds another token under the lock
	// judge its access token too old as well, and refresh with it.
	DecideAnew bool
	// Unpinned starts without a session file; UserFile is the server that
	// the user's configuration names (0: none).
	Unpinned bool
	UserFile uint8
	// Edits lets the user's configuration change to the other server, once a
	// token was sent.
	Edits uint8
	// SameToken: a new login at the same server brings the first token again,
	// once that is spent.
	SameToken bool
	// AtomicBreak closes the window between the look at an abandoned lock
	// file and its unlink, to see what else there is.
	AtomicBreak bool

	// Live adds the search for deadlocks and endless runs.
	Live bool
	// Limit ends the search, incomplete, at so many states (0: never).
	Limit int
	// StopAt ends the search when all of these kinds are found.
	StopAt Kinds
}
