// Package canary proves that secrets stay where they belong: a test gives the
// program secrets that exist nowhere else, lets it run, and then looks for
// them in all it printed, in the files it left and in the argument lists of
// the machine's processes.
//
//	at, rt := canary.New("access token"), canary.New("refresh token")
//	... run the program with them ...
//	canary.Absent(t, []canary.Value{at, rt}, canary.Places{
//		Outputs:  map[string][]byte{"stdout": out, "stderr": errs},
//		Dirs:     []string{stateDir},
//		Allow:    []string{filepath.Join(stateDir, "remote-credentials.json")},
//		Cmdlines: true,
//	})
//
// No finding, error or failure message of this package shows a secret.
package canary

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spendonce/spendonce/internal/secret"
)

// minLength keeps a search from finding by chance.
const minLength = 12

// Value is a secret to look for, under a name that may be printed.
type Value struct {
	Name   string
	Secret secret.Secret
}

// New makes a secret that nobody has seen before: "cnry_" and 52 random
// characters that need no escaping anywhere.
func New(name string) Value {
	return Value{Name: name, Secret: secret.New("cnry_" + rand.Text() + rand.Text())}
}

// Of looks for a secret that somebody else made.
func Of(name, value string) Value { return Value{Name: name, Secret: secret.New(value)} }

// form is one way in which a secret may be written.
type form struct {
	name string
	text string
}

// forms lists how a value may be written: as it is, encoded, escaped, and cut
// off to a head or a tail that is still too much.
func (v Value) forms() ([]form, error) {
	plain := v.Secret.Reveal()
	if len(plain) < minLength {
		return nil, fmt.Errorf("the value %q is too short to be looked for", v.Name)
	}
	quoted, err := json.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("the value %q cannot be written as JSON", v.Name)
	}
	digits := hex.EncodeToString([]byte(plain))
	all := []form{
		{"plain", plain},
		{"hex", digits},
		{"upper hex", strings.ToUpper(digits)},
		{"query-escaped", url.QueryEscape(plain)},
		{"path-escaped", url.PathEscape(plain)},
		{"JSON", inside(string(quoted))},
		{"quoted", inside(strconv.Quote(plain))},
	}
	for shift := range 3 {
		all = append(all,
			form{"base64", inBase64(base64.StdEncoding, plain, shift)},
			form{"URL-safe base64", inBase64(base64.URLEncoding, plain, shift)})
	}
	const piece = 16
	if len(plain) >= 2*piece {
		all = append(all, form{"its tail", plain[len(plain)-piece:]})
		if !strings.HasPrefix(plain, "eyJ") { // the header of a JWT is no secret
			all = append(all, form{"its head", plain[:piece]})
		}
	}
	return all, nil
}

func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

// inBase64 is what stays the same of the encoding of plain wherever it stands
// in a longer text that is encoded as a whole ("Basic" credentials): shift is
// its offset modulo 3. Characters that also depend on the neighbours go.
func inBase64(enc *base64.Encoding, plain string, shift int) string {
	encoded := enc.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, shift), plain...))
	first := (shift*8 + 5) / 6
	last := (shift + len(plain)) * 8 / 6
	return encoded[first:last]
}
