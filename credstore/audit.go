package credstore

import (
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/spendonce/spendonce/internal/secret"
)

const (
	auditName  = "audit.log"
	auditLimit = 1 << 20 // then it becomes audit.log.1
)

// audited is one send of a refresh token, a line of audit.log:
//
//	{"time":"2026-01-02T03:04:05Z","target":"example","host":"login.example.com","before":"ba7816bf8f01cfea","after":"9f86d081884c7d65","outcome":"success","durationMs":212,"nonce":"2ZKJ7W4YBE3NQ5TUSDVA6XFHRM"}
//
// before and after are fingerprints of refresh tokens; after is missing if
// none came back. nonce is that of the lock it was sent under.
type audited struct {
	Time       time.Time `json:"time"`
	Target     string    `json:"target"`
	Host       string    `json:"host"`
	Before     string    `json:"before"`
	After      string    `json:"after,omitzero"`
	Outcome    Class     `json:"outcome"`
	Status     int       `json:"status,omitzero"`
	Code       string    `json:"code,omitzero"`
	Forced     bool      `json:"forced,omitzero"` // by a rejected token
	DurationMS int64     `json:"durationMs"`
	Nonce      string    `json:"nonce"`
}

// audit notes a send for [hold.writeAudit].
func (h *hold) audit(began time.Time, g Grant, forced bool, t Tokens, f *Failure) {
	a := audited{
		Time: began.UTC().Truncate(time.Millisecond), Target: h.src.cfg.Target, Host: hostOf(g.Pin.TokenEndpoint),
		Before: g.RefreshToken.Fingerprint(), Outcome: ClassSuccess, Forced: forced,
		DurationMS: time.Since(began).Milliseconds(), Nonce: h.targetLock.Nonce(),
	}
	if f != nil {
		a.Outcome, a.Status, a.Code = f.Class, f.Status, f.Code
	} else {
		a.After = after(g.RefreshToken, t.RefreshToken).Fingerprint()
	}
	h.sends = append(h.sends, a)
}

// after is the refresh token that is good after an exchange.
func after(sent, received secret.Secret) secret.Secret {
	if received.Empty() {
		return sent
	}
	return received
}

func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Host
}

// writeAudit writes what was noted, when everything that matters is saved.
func (h *hold) writeAudit() {
	for _, a := range h.sends {
		line, err := json.Marshal(a)
		if err == nil {
			err = h.access.appendAudit(append(line, '\n'))
		}
		if err != nil {
			h.warn("the audit log could not be written: %v", err)
		}
	}
	h.sends = nil
}
