package localproxy

import (
	"net/http"

	"github.com/spendonce/spendonce/internal/secret"
)

// Judge is the door of TCP: what is let in, and as what it is sent on.
func Judge(host string, s secret.Secret, r *http.Request) (sentOn string, status int) {
	in, no := door{host: host, secret: s}.judge(r)
	if no != nil {
		return "", no.status
	}
	return in.path.RequestURI(), 0
}

// Recorder is what an answer is written to.
func Recorder(w http.ResponseWriter) http.ResponseWriter { return &recorder{ResponseWriter: w} }
