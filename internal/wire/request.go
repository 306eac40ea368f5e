package wire

import "github.com/spendonce/spendonce/internal/secret"

// MaxInteger is the largest number in a frame: up to it every JSON reader, also
// one that keeps numbers as floating point, holds each integer exactly.
const MaxInteger = 1<<53 - 1

// maxDigest bounds h_source and h_payload.
const maxDigest = 256

// Action is what a request asks for.
type Action string

// The actions.
const (
	RegisterAnchor Action = "register_anchor"
	Authenticate   Action = "authenticate"
	MintToken      Action = "mint_token"
	ConsumeToken   Action = "consume_token"
)

// Binding is what a token is minted for and what consuming it gives back:
//
//	{"compaction_epoch":1,"request_epoch":2,"h_source":"…","h_payload":"…","schema_version":1}
//
// The broker compares none of it.
type Binding struct {
	CompactionEpoch uint64 // at most MaxInteger
	RequestEpoch    uint64 // at most MaxInteger
	HSource         string // 1 to 256 bytes of printable ASCII without space
	HPayload        string // as HSource
	SchemaVersion   uint64 // positive, at most MaxInteger
}

// Request is a request of well-formed members:
//
//	{"action":"register_anchor","runtime_generation":0}
//	{"action":"authenticate","session_id":"…","runtime_generation":0}
//	{"action":"mint_token","session_id":"…","runtime_generation":0,"binding":{…}}
//	{"action":"consume_token","session_id":"…","runtime_generation":0,"token":"…"}
//
// What an action does not take is zero. SessionID and Token are any strings,
// also empty ones: that a misspelt one is unknown is the broker's answer.
type Request struct {
	Action     Action
	SessionID  secret.Secret
	Generation uint64 // at most MaxInteger
	Binding    Binding
	Token      secret.Secret
}

// members is a set of the members that a request or an answer has.
type members uint16

const (
	memberAction members = 1 << iota
	memberSessionID
	memberGeneration
	memberBinding
	memberToken
	memberOK
	memberCode
)

// takes returns the members of a request for a, all of which must be there
// and no other, and none for an action that does not exist.
func (a Action) takes() members {
	switch a {
	case RegisterAnchor:
		return memberAction | memberGeneration
	case Authenticate:
		return memberAction | memberGeneration | memberSessionID
	case MintToken:
		return memberAction | memberGeneration | memberSessionID | memberBinding
	case ConsumeToken:
		return memberAction | memberGeneration | memberSessionID | memberToken
	}
	return 0
}

// gives returns what the answer to a granted a holds beside ok.
func (a Action) gives() members {
	switch a {
	case RegisterAnchor, Authenticate:
		return memberSessionID | memberGeneration
	case MintToken:
		return memberToken
	case ConsumeToken:
		return memberBinding
	}
	return 0
}
