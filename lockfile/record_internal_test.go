package lockfile

import (
	"bytes"
	"crypto/rand"
	"math"
	"strings"
	"testing"
	"time"
)

func someRecord() record {
	return record{"2ZKJ7W4YBE3NQ5TUSDVA6XFHRM", 3, Mark{MarkSent, "ba7816bf8f01cfea", "", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
}

func TestARecordIsOneLineOfFixedLength(t *testing.T) {
	const want = "spendonce-guard 1 nonce=2ZKJ7W4YBE3NQ5TUSDVA6XFHRM step=0000000003 mark=sent token=ba7816bf8f01cfea login=- at=2026-01-02T03:04:05Z"
	got := string(someRecord().encode())
	if strings.Join(strings.Fields(got), " ") != want || len(got) != recordLength || strings.Count(got, "\n") != 1 || got[recordLength-1] != '\n' {
		t.Errorf("%q, want %q, padded", got, want)
	}
	if got := (record{}).encode(); len(got) != recordLength || decodeRecord(got) != (record{}) {
		t.Errorf("the empty record: %q", got)
	}
}

func TestARecordComesBackAsItWas(t *testing.T) {
	for _, nonce := range []string{"2ZKJ7W4YBE3NQ5TUSDVA6XFHRM", rand.Text(), ""} {
		for _, step := range []uint32{0, 1, 9_999_999, math.MaxUint32} {
			for _, mark := range []Mark{
				{},
				{MarkSent, "ba7816bf8f01cfea", "", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
				{MarkSpent, "0000000000000000", "", time.Unix(0, 0).UTC()},
				{MarkSpent, "ffffffffffffffff", "", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
				{MarkSpent, "0123456789abcdef", "", time.Time{}},
				{MarkUnknown, "0123456789abcdef", "fedcba9876543210", time.Unix(1, 0).UTC()},
			} {
				r := record{nonce, step, mark}
				if b := r.encode(); len(b) != recordLength || decodeRecord(b) != r {
					t.Errorf("%+v became %+v by %q", r, decodeRecord(b), b)
				}
			}
		}
	}
}

// A write that was torn by a crash, or a disk that changed a byte.
func TestARecordThatIsTornOrDamagedIsEmptyOrAnotherWholeOne(t *testing.T) {
	old, whole := someRecord(), someRecord()
	whole.step, whole.mark.State = 1234567890, MarkSpent
	before, after := old.encode(), whole.encode()
	for cut := range before {
		if got := decodeRecord(after[:cut]); got != (record{}) {
			t.Errorf("the first %d bytes are read as %+v", cut, got)
		}
		// Both have one length: a torn one mixes valid members at worst.
		mixed := append(bytes.Clone(after[:cut]), before[cut:]...)
		if got := decodeRecord(mixed); got != (record{}) && (got.nonce != old.nonce || got.mark.Fingerprint != old.mark.Fingerprint || !got.mark.At.Equal(old.mark.At)) {
			t.Errorf("torn at %d: %+v", cut, got)
		}
	}
	for i := range before {
		for _, c := range []byte{0, ' ', '\n', '=', 0xff} {
			damaged := bytes.Clone(before)
			damaged[i] = c
			if got := decodeRecord(damaged); c != before[i] && got != (record{}) && got.mark != old.mark {
				t.Errorf("byte %d as %q: %+v", i, c, got)
			}
		}
	}
	for _, s := range []string{
		strings.Replace(string(before), "guard 1", "guard 2", 1),
		strings.Replace(string(before), "sent ", "send ", 1),
		strings.Replace(string(before), "ba7816", "BA7816", 1),
		strings.Replace(string(before), "step=0000000003", "step=+000000003", 1),
		strings.Replace(string(before), "step=0000000003", "step=9999999999", 1),
		strings.Replace(string(before), "2026-01-02T03", "2026-13-02T03", 1),
		strings.Replace(string(before), "05Z ", "05Zx", 1),
		strings.Replace(string(before), "mark=sent ", "mark=none ", 1),
		string(before) + " ",
	} {
		if got := decodeRecord([]byte(s)); got != (record{}) {
			t.Errorf("%q is read as %+v", s, got)
		}
	}
}

// FuzzRecord: what is not taken for empty is exactly what encode writes, with
// a mark that could have been set.
func FuzzRecord(f *testing.F) {
	f.Add(someRecord().encode())
	f.Add((record{}).encode())
	f.Add((record{nonce: "x", mark: Mark{State: MarkSpent, Fingerprint: "0123456789abcdef"}}).encode())
	f.Add([]byte(strings.Repeat(" ", recordLength-1) + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := decodeRecord(b)
		if r == (record{}) {
			return
		}
		if got := r.encode(); !bytes.Equal(got, b) {
			t.Errorf("%q became %q", b, got)
		}
		if r.mark != r.mark.wholeSeconds() || r.mark.State != MarkNone && !isFingerprint(r.mark.Fingerprint) {
			t.Errorf("%q has the mark %+v", b, r.mark)
		}
	})
}

// FuzzLockFile: only what we would write ourselves under the guard counts as
// marked.
func FuzzLockFile(f *testing.F) {
	m := markedContent("nonce")
	for _, s := range []string{"", "nonce", "nonce\n", m, m + "\n", m[:len(m)-1], "\n" + m, strings.ToUpper(m), "n\nguarded \n", m + m} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		nonce, _, _ := strings.Cut(string(content), "\n")
		want := bootID() != "" && markedContent(nonce) == string(content)
		if got := isMarked(content); got != want {
			t.Errorf("%q: marked %v, want %v", content, got, want)
		}
	})
}
