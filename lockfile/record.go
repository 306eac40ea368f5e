package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// maxLockFile bounds what is read of a lock file: ours have under 100 bytes.
const maxLockFile = 4096

// MarkState says how far the exchange of a one-time token came.
type MarkState string

// The states of a mark. Sent only words a message; the others keep a dead
// token from being sent again.
const (
	// MarkNone: nothing is known.
	MarkNone MarkState = ""
	// MarkSent: the token was about to be sent and no end is recorded.
	MarkSent MarkState = "sent"
	// MarkSpent: the token was exchanged and the result could not be saved;
	// nobody may send it again.
	MarkSpent MarkState = "spent"
	// MarkRefused: the server has refused the token; sending it again would
	// only be told so again.
	MarkRefused MarkState = "refused"
	// MarkUnknown: refused likewise, after a send that got no answer.
	MarkUnknown MarkState = "unknown"
)

// Mark is what the guard's record says of a token, by fingerprint.
type Mark struct {
	State       MarkState
	Fingerprint string    // 16 hex digits
	Login       string    // fingerprint of the login that the token belongs to; "" if unknown
	At          time.Time // whole seconds
}

// record is the content of a guard: one line of fixed length, written in one
// pwrite(2), for example
//
//	spendonce-guard 1 nonce=2ZKJ7W4YBE3NQ5TUSDVA6XFHRM step=0000000003 mark=sent    token=ba7816bf8f01cfea login=- at=2026-01-02T03:04:05Z
//
// padded with spaces to 191 bytes and a newline. Whatever is not exactly what
// encode writes is an empty record, which forbids nothing: a mark is lost only
// with the disk's own promise.
type record struct {
	nonce string
	step  uint32
	mark  Mark
}

const recordLength = 192

func (r record) encode() []byte {
	state, fingerprint, login, at := "none", "-", "-", "-"
	if r.mark.State != MarkNone {
		state, fingerprint, at = string(r.mark.State), r.mark.Fingerprint, r.mark.At.UTC().Format(time.RFC3339)
		if r.mark.Login != "" {
			login = r.mark.Login
		}
	}
	line := fmt.Sprintf("spendonce-guard 1 nonce=%s step=%010d mark=%-7s token=%s login=%s at=%s", r.nonce, r.step, state, fingerprint, login, at)
	return fmt.Appendf(nil, "%-*s\n", recordLength-1, line)
}

// wholeSeconds returns the mark as a record can hold it.
func (m Mark) wholeSeconds() Mark {
	if m.State == MarkNone {
		return Mark{}
	}
	m.At = m.At.UTC().Truncate(time.Second)
	return m
}

func decodeRecord(b []byte) record {
	r := parseRecord(b)
	if r.mark.State != MarkNone && (!isFingerprint(r.mark.Fingerprint) || r.mark.Login != "" && !isFingerprint(r.mark.Login)) || !bytes.Equal(r.encode(), b) {
		return record{}
	}
	return r
}

func isFingerprint(s string) bool {
	return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == ""
}

func parseRecord(b []byte) record {
	f := strings.Fields(string(b))
	if len(f) != 8 || f[0] != "spendonce-guard" || f[1] != "1" {
		return record{}
	}
	var r record
	for i, name := range []string{"nonce=", "step=", "mark=", "token=", "login=", "at="} {
		value, ok := strings.CutPrefix(f[i+2], name)
		if !ok {
			return record{}
		}
		switch name {
		case "nonce=":
			r.nonce = value
		case "step=":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return record{}
			}
			r.step = uint32(n)
		case "mark=":
			switch value {
			case "none":
			case string(MarkSent), string(MarkSpent), string(MarkRefused), string(MarkUnknown):
				r.mark.State = MarkState(value)
			default:
				return record{}
			}
		case "token=":
			if r.mark.State != MarkNone {
				r.mark.Fingerprint = value
			}
		case "login=":
			if r.mark.State != MarkNone && value != "-" {
				r.mark.Login = value
			}
		case "at=":
			if r.mark.State != MarkNone {
				r.mark.At, _ = time.Parse(time.RFC3339, value)
			}
		}
	}
	return r
}

func readRecord(k *durable.Kept) (record, error) {
	b, err := k.Read(recordLength)
	if err != nil {
		return record{}, err
	}
	return decodeRecord(b), nil
}

// markedContent is what our lock file holds when its maker has the guard:
// the nonce, and the boot whose kernel vouches for the guard.
func markedContent(nonce string) string {
	boot := bootID()
	if boot == "" {
		return nonce + "\n"
	}
	return nonce + "\nguarded " + boot + "\n"
}

// isMarked reports whether content was written under a guard of this boot.
// The mark of another boot counts for nothing: the file may have come from
// another machine whose kernel locks we do not see.
func isMarked(content []byte) bool {
	_, mark, ok := strings.Cut(string(content), "\n")
	boot := bootID()
	return ok && boot != "" && mark == "guarded "+boot+"\n"
}

func notObtainedIfNotRegular(err error) error {
	if errors.Is(err, durable.ErrNotRegular) {
		return fmt.Errorf("%w: %w", ErrNotObtained, err)
	}
	return err
}
