//go:build linux

package ledger_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/spendonce/spendonce/internal/ledger"
)

// The file as encoding/json sees it, for a second opinion.
type looseState struct {
	Version  int            `json:"version"`
	BootID   string         `json:"boot_id"`
	Sessions []looseSession `json:"sessions"`
	Tokens   []looseToken   `json:"tokens"`
}

type looseSession struct {
	ID         string `json:"session_id"`
	PID        int32  `json:"anchor_pid"`
	StartTime  uint64 `json:"anchor_starttime"`
	UID        uint32 `json:"uid"`
	GID        uint32 `json:"gid"`
	Generation uint64 `json:"runtime_generation"`
}

type looseToken struct {
	SHA256     string       `json:"token_sha256"`
	SessionID  string       `json:"session_id"`
	Generation uint64       `json:"runtime_generation"`
	Binding    looseBinding `json:"binding"`
	Consumed   bool         `json:"consumed"`
}

type looseBinding struct {
	CompactionEpoch uint64 `json:"compaction_epoch"`
	RequestEpoch    uint64 `json:"request_epoch"`
	HSource         string `json:"h_source"`
	HPayload        string `json:"h_payload"`
	SchemaVersion   uint64 `json:"schema_version"`
}

func loose(t testing.TB, file []byte) looseState {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(file))
	d.DisallowUnknownFields()
	var s looseState
	if err := d.Decode(&s); err != nil {
		t.Fatalf("encoding/json does not read it: %v\n%q", err, file)
	}
	return s
}

// sets compares two states whose records may stand in other order.
func (s looseState) same(o looseState) bool {
	if s.Version != o.Version || s.BootID != o.BootID || len(s.Sessions) != len(o.Sessions) || len(s.Tokens) != len(o.Tokens) {
		return false
	}
	sessions, tokens := map[looseSession]bool{}, map[looseToken]bool{}
	for _, x := range s.Sessions {
		sessions[x] = true
	}
	for _, x := range s.Tokens {
		tokens[x] = true
	}
	for _, x := range o.Sessions {
		if !sessions[x] {
			return false
		}
		delete(sessions, x)
	}
	for _, x := range o.Tokens {
		if !tokens[x] {
			return false
		}
		delete(tokens, x)
	}
	return true
}

// What loads is JSON to others too, says the same to them, holds every
// invariant as they read it, and is written as it was read.
func FuzzState(f *testing.F) {
	f.Add([]byte(goodFile()))
	for _, file := range damagedFiles() {
		if len(file) < 8<<10 {
			f.Add([]byte(file))
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		out, err := ledger.Reserialized(file)
		if err != nil {
			return
		}
		if !json.Valid(file) {
			t.Fatalf("loads and is no JSON: %q", file)
		}
		theirs := loose(t, file)
		if !theirs.same(loose(t, out)) {
			t.Errorf("%q\nbecame\n%q", file, out)
		}
		if again, err := ledger.Reserialized(out); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%q\nbecame\n%q, %v", out, again, err)
		}
		judge(t, theirs)
	})
}

// judge holds a state against the invariants of the file.
func judge(t testing.TB, s looseState) {
	t.Helper()
	ids, anchors, tokens := map[string]uint64{}, map[[2]uint64]bool{}, map[string]bool{}
	for _, x := range s.Sessions {
		if _, twice := ids[x.ID]; twice || len(x.ID) != 43 {
			t.Errorf("session %q", x.ID)
		}
		a := [2]uint64{uint64(x.PID), x.StartTime}
		if anchors[a] || x.PID < 1 {
			t.Errorf("anchor %v", a)
		}
		ids[x.ID], anchors[a] = x.Generation, true
	}
	for _, x := range s.Tokens {
		if g, ok := ids[x.SessionID]; !ok || g != x.Generation || tokens[x.SHA256] || len(x.SHA256) != 64 || x.Consumed || x.Binding.SchemaVersion < 1 {
			t.Errorf("token %+v", x)
		}
		tokens[x.SHA256] = true
	}
	if s.Version != 1 || len(s.Tokens) > 256 || len(s.Sessions) > 1024 {
		t.Errorf("version %d, %d sessions, %d tokens", s.Version, len(s.Sessions), len(s.Tokens))
	}
}

// A changed byte makes another state of the same shape, or none.
func TestNoChangedByteIsMissed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	good := []byte(goodFile())
	for range chosen(200_000, 5_000, 500) {
		file := bytes.Clone(good)
		file[random.IntN(len(file))] ^= 1 << random.IntN(8)
		out, err := ledger.Reserialized(file)
		if err != nil {
			continue
		}
		judge(t, loose(t, out))
		if !loose(t, file).same(loose(t, out)) {
			t.Fatalf("%q\nbecame\n%q", file, out)
		}
	}
}
