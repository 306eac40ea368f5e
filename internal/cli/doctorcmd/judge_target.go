package doctorcmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/lockfile"
)

// largestSkew is what a clock may be off before it is worth a word: an answer
// may take that long to come.
const largestSkew = 30 * time.Second

func judgeTarget(f findings, s scene, t credstore.TargetReport) {
	if !credstore.ValidName(t.Target) {
		if s.configured(t.Target) {
			f.find(warning, "target.name", "use letters, digits, '.', '_' and '-', up to 64, starting with a letter or digit", "the configuration defines a target by a name that no command takes")
		}
		return // else a record of another program
	}
	if t.Shared != nil {
		judgeShared(f, s, t)
	} else {
		judgeSession(f, s, t)
	}
	if t.Moving {
		f.find(warning, "target.move", "spendonce store move "+t.Target, "a move to another place was begun and not finished, so nothing is refreshed")
	}
	switch {
	case t.Shared == nil && s.report.StoreErr != nil, t.Shared != nil && t.Err != nil:
	case !t.Stored && s.configured(t.Target):
		f.find(note, "target.login", fmt.Sprintf("spendonce login %s", t.Target), "configured and not signed in")
	case t.Kind == credstore.KindStatic:
		f.ok("target.login", "a static token is stored")
	case t.Kind == credstore.KindOIDC:
		judgeLogin(f, s, t)
	}
	switch {
	case t.OverrideErr != nil:
		f.report(failure, "target.override", t.OverrideErr)
	case t.Override:
		variable := credstore.OverrideVariable(t.Target)
		f.find(note, "target.override", "unset "+variable+" to use what is stored", "%s is set and wins over what is stored", variable)
	}
	judgeLock(f, "target.lock", t.Lock, s.report, "the lock of "+t.Target, "refresh")
}

func judgeSession(f findings, s scene, t credstore.TargetReport) {
	const id = "target.session"
	switch {
	case s.report.Sessions.Err != nil: // said of the directory
	case errors.Is(t.Err, credstore.ErrKey):
		f.find(failure, id, "make its key available; move it aside and sign in again only if that is lost", "%v", t.Err)
	case t.Err != nil:
		text, next := split(t.Err.Error())
		if !strings.Contains(next, " and sign in again") {
			text, next = t.Err.Error(), fmt.Sprintf("move it aside (mv %s %s.damaged) and sign in again", t.SessionPath, t.SessionPath)
		}
		f.find(failure, id, next, "%s", text)
	case t.SessionExists && !t.Stored && s.report.StoreErr == nil:
		f.find(note, id, fmt.Sprintf("spendonce login %s, or remove it (rm %s)", t.Target, t.SessionPath), "%s is there and nothing is stored for it", t.SessionPath)
	case t.SessionExists:
		f.ok(id, "%s can be read", t.SessionPath)
	}
	if t.SessionExists && t.SessionMode&0o077 != 0 {
		f.find(warning, "target.session-mode", "chmod 600 "+t.SessionPath+" (the next write does it too)", "%s has mode %04o, so others may have read it", t.SessionPath, t.SessionMode)
	}
	if len(t.SessionUnknown) > 0 {
		f.find(note, "target.session-members", "nothing to do: they are kept", "another version of this program wrote members that this one does not know: %s", strings.Join(t.SessionUnknown, ", "))
	}
	if t.Pending {
		f.find(note, "target.pending", "nothing to do: the next refresh settles it by the refresh token that is stored", "a login was cut short between its two files")
	}
}

// judgeLogin is about a session that can be refreshed, or should be.
func judgeLogin(f findings, s scene, t credstore.TargetReport) {
	now := s.report.Time
	// What a refresh would fail by fails nobody as long as there is a token.
	trouble := failure
	if t.Live {
		trouble = warning
	}
	switch {
	case !t.Refreshable && t.Live:
		f.find(note, "target.login", fmt.Sprintf("then: spendonce login %s", t.Target), "there is no refresh token: the session ends %s", ending(now, t))
	case errors.Is(t.RefreshErr, credstore.ErrLoginRequired):
		text, next := split(t.RefreshErr.Error())
		if t.Live {
			text += "; the stored token is served " + until(t)
		}
		f.find(trouble, "target.login", next, "%s", text)
	case t.Live:
		f.ok("target.login", "signed in, the token ends %s", ending(now, t))
	default:
		f.ok("target.login", "signed in, the token has ended and is refreshed on use")
	}
	if t.SettingsErr != nil && s.configErr == nil {
		f.report(trouble, "target.settings", t.SettingsErr)
	}
	if t.HasToken && t.ExpiresAt.IsZero() {
		f.find(note, "target.expiry", "nothing to do; when the service rejects it: spendonce token "+t.Target+" --refresh", "it is not known when the token ends: it is used until it is rejected")
	}
	judgeExchange(f, now, t, trouble)
	if !t.NotBefore.IsZero() {
		f.find(note, "target.back-off", "wait", "after a failure nobody refreshes before %s", at(now, t.NotBefore))
	}
	if t.Forced >= t.MaxForced {
		f.find(failure, "target.rejections", "check that the target's URL and resource are right", "the service rejects tokens that its authorization server has just issued (%d refreshes in %s): for now no rejected token is refreshed", t.Forced, t.ForcedWindow)
	}
	if t.Mark.State == lockfile.MarkSent {
		if t.Lock.Held || t.Shared != nil && t.Shared.Held {
			f.ok("target.mark", "a refresh is under way since %s", at(now, t.Mark.At))
		} else {
			f.find(note, "target.mark", "nothing to do: the next refresh sends the token again, and if the server refuses it the session has to be signed in anew", "a refresh was begun %s and its end is not known", at(now, t.Mark.At))
		}
	}
}

func judgeExchange(f findings, now time.Time, t credstore.TargetReport, trouble level) {
	o := t.LastOutcome
	if o == nil {
		return
	}
	const id = "target.exchange"
	switch {
	case o.Class == credstore.ClassSuccess:
		f.ok(id, "refreshed %s", at(now, o.Time))
	case !t.OutcomeStands, o.Class == credstore.ClassRefused: // about another token, or said above
	case o.Class == credstore.ClassTemporary:
		level := warning
		if t.Live {
			level = note
		}
		f.find(level, id, "nothing to do: the session is kept and the next use tries again; if it stays so, ask who runs the server", "the last refresh, %s, failed (%s)", at(now, o.Time), describe(o))
	case o.Class == credstore.ClassClientDead:
		f.find(trouble, id, fmt.Sprintf("register the client again, or: spendonce login %s", t.Target), "at the last refresh, %s, the server no longer knew this client (%s); the session is kept", at(now, o.Time), describe(o))
	default:
		f.find(trouble, id, "check the target's settings", "at the last refresh, %s, the server said that the request is wrong (%s); the session is kept", at(now, o.Time), describe(o))
	}
	if skew := o.Time.Sub(o.ServerDate); !o.ServerDate.IsZero() && skew.Abs() > largestSkew {
		f.find(warning, "target.clock", "set the clock: tokens end too early or too late by that much", "at the last refresh, %s, this machine's clock was %s the server's", at(now, o.Time), offset(skew))
	}
}

// offset words how far a clock is from another one.
func offset(skew time.Duration) string {
	if skew < 0 {
		return rounded(-skew).String() + " behind"
	}
	return rounded(skew).String() + " ahead of"
}

func describe(o *credstore.Outcome) string {
	switch {
	case o.Text != "":
		return o.Text
	case o.Code != "":
		return o.Code
	case o.Status != 0:
		return fmt.Sprintf("status %d", o.Status)
	default:
		return "no answer"
	}
}

func ending(now time.Time, t credstore.TargetReport) string {
	if t.ExpiresAt.IsZero() {
		return "at a time that is not known"
	}
	return at(now, t.ExpiresAt)
}

func until(t credstore.TargetReport) string {
	if t.ExpiresAt.IsZero() {
		return "until the service refuses it"
	}
	return "until " + t.ExpiresAt.UTC().Format(time.RFC3339)
}
