package lockmodel

// maxProcs bounds the processes of one configuration.
const maxProcs = 4

// The two locks, in their only order.
const (
	target = 0
	store  = 1
)

// What the store may hold instead of a refresh token's number.
const (
	noRecord = 0
	firstRT  = 1
	staticRT = 15 // a static record

	staticLogin = 15 // the login id that a static write leaves
)

// The two authorization servers. Zero is "no pin".
const (
	serverA = 1
	serverB = 2
)

type content uint8

const (
	absent  content = iota
	empty           // between create and write
	plain           // a nonce alone: a source program's, or ours without guard
	guarded         // nonce and mark: its writer had the guard
)

// lockFile is one lock file. Old is set when the wall clock steps forward
// past it.
type lockFile struct {
	owner   uint8 // process + 1
	content content
	old     bool
}

type change uint8

const (
	rotation change = iota + 1
	login
	removal
)

// storeFile is the store, seen through the one record that matters. Version
// stands for inode, size, mtime and ctime.
type storeFile struct {
	rt      uint8
	version uint8
	last    change
}

// sessionFile is sessions/<target>.json. The outcome has an id and the token
// that it is about.
type sessionFile struct {
	there              bool
	pin, login         uint8
	pendPin, pendRT    uint8
	oldRT              uint8 // the token a pending login replaces
	refused            uint8 // the token that a login is required for
	unknown            bool  // it was refused after a send without an answer
	outcome, outcomeRT uint8
}

func (f sessionFile) pending() bool { return f.pendRT != 0 }

// config is what the user's configuration says of the target.
type config struct {
	server uint8 // 0: none
	edits  uint8 // to come
	used   bool  // a token was sent by it
}

type markKind uint8

const (
	unmarked markKind = iota
	markSent
	markSpent
	markRefused
	markUnknown // refused, after a send without an answer
)

// mark is the part of the target guard's record that carries over from one
// holder to the next.
type mark struct {
	kind      markKind
	rt, login uint8
}

// server is what the authorization servers know. Bit n of each set is token n;
// family has two bits per token, the login that the token descends from.
type server struct {
	valid, rotated uint8
	next           uint8
	family         uint16
}

func (s *server) familyOf(rt uint8) uint8 { return uint8(s.family>>(2*rt)) & 3 }

// renew makes a token that was issued before the first of another family.
func (s *server) renew(rt, family uint8) uint8 {
	s.valid |= 1 << rt
	s.rotated &^= 1 << rt
	s.family = s.family&^(3<<(2*rt)) | uint16(family)<<(2*rt)
	return rt
}

func (s *server) mint(family uint8) uint8 {
	rt := s.next
	if rt > 7 {
		panic("lockmodel: more than seven refresh tokens in one run")
	}
	s.next++
	s.valid |= 1 << rt
	s.family |= uint16(family) << (2 * rt)
	return rt
}

type flag uint16

const (
	dead flag = 1 << iota
	stopped
	hasGuardT
	hasGuardS
	holdsT // believes that the target lock is its own
	holdsS
	restarted  // "start over once" is used up
	resent     // the second send of this hold is used up
	unanswered // an earlier send of this token, ours or another's, got no answer
	reread     // has read the store since it got the guard it sends under
	unwritten  // the mark of a refusal could not be written
	overtaken  // the new token is nobody's and is to be revoked
	gone       // lock or record were gone when the first answer came (judge's memory)
)

func guardFlag(l uint8) flag { return hasGuardT << l }
func holdFlag(l uint8) flag  { return holdsT << l }

type goal uint8

const (
	toRefresh goal = iota
	toSettle       // a pending login
	toProve        // that the commit can be done
	toCommit       // with a new refresh token in hand
	toNote         // a refusal or a failure, in the session file
	toWrite        // login, logout, static
	toLeave
	toRestart
)

type outcome uint8

const (
	running outcome = iota
	done
	adopted
	tookOutcome     // of an exchange that ended while it waited
	newerStays      // commit declined, this caller has its access token
	noLogin         // no record, or a static one
	loginRequired   // the token was refused
	outcomeUnknown  // refused, after a send without an answer
	refusedUnmarked // refused either way, and that could not be marked
	temporary       // no answer, or one that says later
	lockBusy        // typed error of rule 5, or the runaway backstop
	unsaved         // exchanged, not committed, marked spent
	unsavedUnmarked // and even the mark could not be written
	spentFound      // the token is marked spent
	noPin           // no pin, or one that the user's file contradicts
)

type answer uint8

const (
	noAnswer    answer = iota
	newToken           // rotated, the answer arrives
	lostAnswer         // rotated or not, no answer arrives
	unprocessed        // surely not processed: answered so, or never sent
	refusal
)

// proc is one process. Fields that no longer matter are zeroed, so that
// states which differ only in history are one.
type proc struct {
	flags       flag
	pc          step
	goal        goal
	on          uint8 // lock that is being acquired or released
	rt          uint8 // token that it read
	got         uint8 // token that it received, or a login's
	sent        uint8 // token that it sent and was not left without an answer for (judge's memory)
	pin, login  uint8 // as read from the session file
	before      mark  // that its own mark 'sent' replaced
	seenOutcome uint8
	seenVersion uint8 // of the store, when it was read for a write
	answer      answer
	outcome     outcome
}

func (p *proc) has(f flag) bool { return p.flags&f != 0 }
func (p *proc) over() bool      { return p.pc == pcEnd }

// idle processes take no further step.
func (p *proc) idle() bool { return p.over() || p.has(dead|stopped) }

// end forgets everything that no judgement needs any more.
func (p *proc) end() {
	*p = proc{flags: p.flags & (dead | stopped), pc: pcEnd, sent: p.sent, outcome: p.outcome}
}

// state is everything: disk, kernel, servers, processes and the faults that
// may still happen. It is comparable and holds no pointer.
type state struct {
	store   storeFile
	session sessionFile
	config  config
	locks   [2]lockFile
	guards  [2][2]uint8 // by lock and machine: holder + 1
	mark    mark
	server  server
	crashes, stops,
	clockSteps, diskFaults uint8
	procs [maxProcs]proc
}
