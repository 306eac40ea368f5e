package localproxy

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
)

// refusal is an answer of the proxy's own.
type refusal struct {
	status  int
	retry   time.Duration // 0: not said
	answer  answer
	refused bool // before anything was sent
}

// answer is the body of an answer of the proxy's own:
//
//	{"version":1,"error":"login_required","message":"…","command":"spendonce login work"}
type answer struct {
	Version int      `json:"version"`
	Error   string   `json:"error"` // one word, for programs; also in the header Spendonce-Error
	Message string   `json:"message"`
	Command string   `json:"command,omitempty"` // what helps
	Scopes  []string `json:"scopes,omitempty"`  // what the target wants
}

func refuse(status int, word, message string) *refusal {
	return &refusal{status: status, answer: answer{Error: word, Message: message}, refused: true}
}

// errRenewed stands for a 401 that was not tried again.
var errRenewed = errors.New("the target refused the token, which has been renewed, and the body is too long to have been kept: send the request again")

var errSwitched = errors.New("the target changes to another protocol, which is not forwarded")

// explain words what came of a request that got no answer of the target's.
func explain(err error, target string, retry func() time.Duration) *refusal {
	login := "spendonce login " + target
	r := &refusal{answer: answer{Message: printable(err.Error())}}
	says := func(status int, word string) *refusal {
		r.status, r.answer.Error = status, word
		return r
	}
	var scope *bearer.ScopeError
	var rejected *bearer.RejectedError
	switch {
	case errors.As(err, &scope):
		r.answer.Scopes = scope.Missing
		return says(http.StatusForbidden, "insufficient_scope")
	case errors.Is(err, credstore.ErrNoCredential), errors.Is(err, credstore.ErrLoginRequired):
		r.answer.Command = login
		return says(http.StatusUnauthorized, "login_required")
	case errors.Is(err, errRenewed):
		r.retry = time.Second
		return says(http.StatusServiceUnavailable, "renewed")
	case errors.Is(err, credstore.ErrTemporary), errors.Is(err, credstore.ErrMinValid), errors.Is(err, credstore.ErrLocked):
		r.retry = max(time.Second, retry())
		return says(http.StatusServiceUnavailable, "temporary")
	case errors.As(err, &rejected), errors.Is(err, credstore.ErrRejected):
		r.answer.Command = login
		return says(http.StatusUnauthorized, "rejected")
	case errors.Is(err, bearer.ErrElsewhere):
		return says(http.StatusBadGateway, "elsewhere")
	case errors.Is(err, errSwitched):
		return says(http.StatusBadGateway, "upgrade")
	case errors.Is(err, bearer.ErrUnanswered):
		return says(http.StatusBadGateway, "unanswered")
	case errors.Is(err, context.Canceled):
		// The client is gone, or the proxy ends: nobody reads this.
		r.answer.Message = "the request was given up"
		return says(http.StatusBadGateway, "ended")
	}
	return says(http.StatusInternalServerError, "local")
}

// write sends the answer.
func (r *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Spendonce-Error", r.answer.Error)
	if r.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="spendonce"`)
	}
	if r.status == http.StatusMethodNotAllowed {
		h.Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
	if r.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retry.Seconds()))))
	}
	if r.refused {
		// Who was not let in gets no chance to keep the connection.
		h.Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTime))
	}
	r.answer.Version = 1
	body, err := json.Marshal(r.answer)
	if err != nil {
		body = nil
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(append(body, '\n'))
}

// printable keeps what a server said from moving a cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
