package doctorcmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spendonce/spendonce/credstore"
)

// soonEnds is how long before its end a certificate is worth a word.
const soonEnds = 14 * 24 * time.Hour

// judgeEtcd is about the cluster that keeps targets of several machines.
func judgeEtcd(f findings, r credstore.Report) {
	in := r.Shared
	if in == nil {
		return
	}
	reached := 0
	for _, m := range in.Members {
		if m.Err == nil {
			reached++
		}
	}
	for _, m := range in.Members {
		judgeMember(f, r.Time, m, reached)
	}
	judgeCertificate(f, r.Time, in.CertificateEnds, "the certificate that this machine shows to etcd (cert under [etcd])")
	switch {
	case in.Err != nil:
		f.report(failure, "etcd.access", in.Err)
	default:
		f.ok("etcd.access", "what is below %s can be read", in.Prefix)
	}
}

func judgeMember(f findings, now time.Time, m credstore.SharedMember, reached int) {
	const id = "etcd.member"
	judgeCertificate(f, now, m.CertificateEnds, "the certificate of "+m.Endpoint)
	if m.Err != nil {
		level := failure
		if reached > 0 {
			level = warning
		}
		f.find(level, id, "check that it runs and that this machine reaches it", "%s did not answer", m.Endpoint)
		return
	}
	role := ""
	if m.Leads {
		role = " and leads"
	}
	switch {
	case tooOld(m.Version):
		f.find(failure, id, "update it: 3.4 is the oldest that is known to do", "%s is etcd %s", m.Endpoint, m.Version)
	case len(m.Faults) > 0:
		f.find(failure, id, "ask who runs it; an alarm of space ends when it is compacted, defragmented and disarmed", "%s answers and says that something is wrong: %s", m.Endpoint, strings.Join(m.Faults, ", "))
	default:
		f.ok(id, "%s answers%s, etcd %s", m.Endpoint, role, m.Version)
	}
	judgeClock(f, m)
}

// judgeClock is about the one clock that a fleet's machines can be held
// against: tokens end by that of whoever refreshed last.
func judgeClock(f findings, m credstore.SharedMember) {
	const id = "etcd.clock"
	if m.Clock.IsZero() {
		return
	}
	skew := m.Asked.Sub(m.Clock)
	if skew.Abs() > largestSkew {
		f.find(warning, id, "set the clock that is wrong: machines do not agree on when a token ends", "this machine's clock is %s that of %s", offset(skew), m.Endpoint)
		return
	}
	f.ok(id, "this machine's clock agrees with that of %s", m.Endpoint)
}

func tooOld(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(minor)
	return errX == nil && errY == nil && (x < 3 || x == 3 && y < 4)
}

func judgeCertificate(f findings, now, ends time.Time, what string) {
	const id = "etcd.certificate"
	switch {
	case ends.IsZero():
	case !ends.After(now):
		f.find(failure, id, "renew it", "%s has ended %s", what, at(now, ends))
	case ends.Sub(now) < soonEnds:
		f.find(warning, id, "renew it", "%s ends %s", what, at(now, ends))
	default:
		f.ok(id, "%s ends %s", what, at(now, ends))
	}
}

// judgeShared is about a target's value and lock in etcd.
func judgeShared(f findings, s scene, t credstore.TargetReport) {
	const id = "target.value"
	v := t.Shared
	switch {
	case t.Err != nil && s.report.Shared != nil && s.report.Shared.Err != nil: // said of etcd
	case errors.Is(t.Err, credstore.ErrKey):
		f.find(failure, id, "on a machine that can open it, add this machine's recipient under [etcd] and run 'spendonce store rekey'", "%v", t.Err)
	case t.Err != nil:
		f.report(failure, id, t.Err)
	case v.Exists:
		f.ok(id, "%s has %d bytes, and its %s key %s can be had", v.Name, v.Size, t.SessionSeal.Kind, t.SessionSeal.Key[:8])
	}
	if t.Leftover {
		f.find(warning, "target.leftover", "spendonce store move "+t.Target, "this machine's file still holds a session of it, which nobody refreshes or ends")
	}
	now := s.report.Time
	if v.Held {
		who := fmt.Sprintf("process %d on %s", v.PID, v.Host)
		if age := now.Sub(v.Since); age > 2*s.report.StaleAfter {
			f.find(warning, "target.lock", "wait for it, or kill it if it hangs", "the lock in etcd is held since %s by %s, longer than any refresh should last", at(now, v.Since), who)
		} else {
			f.ok("target.lock", "the lock in etcd is in use since %s by %s, and ends in %s unless it is renewed", at(now, v.Since), who, rounded(v.Left))
		}
	} else if v.Name != "" {
		f.ok("target.lock", "the lock in etcd is free")
	}
}
