// Package sourceprogram is another program that shares the store: one that
// knows only the decision of which this project's rules are an extension, and
// nothing of ours. It is written from that text alone, with the standard
// library alone, so that our tests have a partner that cannot agree with us
// by sharing our code. It is not part of the product.
//
// What it takes from the decision, in our words:
//
//   - A lock is had by creating its file exclusively, and in no other way
//     (first rule of D1): [acquire].
//   - A lock file whose mtime is older than one constant, 60 s, is removed by
//     whoever finds it; that grants nothing (second rule): [breakIfStale].
//     There is no look at processes and no second constant. Twice the
//     constant ends a wait, as a backstop only.
//   - The file holds a nonce, new at each acquisition; only a matching one is
//     unlinked at release (third rule): [lock.release].
//   - Reading, deciding, refreshing and committing happen in one hold, the
//     request to the server among them, which is bounded by 30 s (what
//     stays): [program.token].
//   - A refusal of the refresh token under the lock means that the session is
//     over (what stays).
//   - The file is replaced by a temporary file and a rename, so nobody reads a
//     torn one; the commit compares the stored refresh token with the one it
//     sent and writes nothing if it has changed or is gone (safety argument,
//     second point): [program.commit].
//   - Static writes and removals take the same lock.
//
// The decision does not say what a record looks like. It is rebuilt from the
// five members {kind, refreshToken, accessJwt, expiresAt, org}: others that
// it had are lost. The records of other targets stay as they were parsed.
package sourceprogram

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Exit codes of [Main].
const (
	ExitOK      = 0
	ExitOther   = 1
	ExitUsage   = 2
	ExitNothing = 3 // nothing is stored for the target
	ExitLogin   = 4 // the server refused the refresh token
	ExitLocked  = 5 // the backstop ended the wait for the lock
)

const usage = `sourceprogram [flags] token TARGET         print a live token, refreshing an expired one
sourceprogram [flags] static TARGET FILE   store the static token in FILE
sourceprogram [flags] remove TARGET
sourceprogram [flags] lock                 take the lock and release it`

// program is one run.
type program struct {
	store  string // path of the file
	origin string // of the server
	stale  time.Duration
	gate   bool
	in     io.Reader
	out    io.Writer
	talk   io.Writer
}

// Main runs the program and returns its exit code. With -gate it says
// "locked" on standard error once it has the lock and goes on at the end of
// standard input: for tests that want to be in between.
func Main(args []string) int {
	p := program{in: os.Stdin, out: os.Stdout, talk: os.Stderr}
	flags := flag.NewFlagSet("sourceprogram", flag.ContinueOnError)
	flags.StringVar(&p.store, "store", "", "the store file")
	flags.StringVar(&p.origin, "origin", "", "the server's origin")
	flags.DurationVar(&p.stale, "stale", lockStale, "the age beyond which a lock file is removed")
	flags.BoolVar(&p.gate, "gate", false, "wait under the lock for the end of standard input")
	if err := flags.Parse(args); err != nil {
		return ExitUsage
	}
	err := p.run(context.Background(), flags.Args())
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(p.talk, "sourceprogram: %v\n", err)
	for _, e := range []struct {
		kind error
		code int
	}{{errUsage, ExitUsage}, {errNothing, ExitNothing}, {errLogin, ExitLogin}, {errLocked, ExitLocked}} {
		if errors.Is(err, e.kind) {
			return e.code
		}
	}
	return ExitOther
}

var (
	errUsage   = errors.New("usage:\n" + usage)
	errNothing = errors.New("nothing is stored for the target")
	errLogin   = errors.New("the session is over: sign in again")
)

func (p *program) run(ctx context.Context, args []string) error {
	verb := strings.Join(args[:min(len(args), 1)], "")
	switch {
	case p.store == "":
		return errUsage
	case verb == "token" && len(args) == 2:
		return p.locked(ctx, func() error { return p.token(ctx, args[1]) })
	case verb == "static" && len(args) == 3:
		token, err := os.ReadFile(args[2])
		if err != nil {
			return err
		}
		return p.locked(ctx, func() error { return p.static(args[1], strings.TrimSpace(string(token))) })
	case verb == "remove" && len(args) == 2:
		return p.locked(ctx, func() error { return p.remove(args[1]) })
	case verb == "lock" && len(args) == 1:
		return p.locked(ctx, func() error { return nil })
	}
	return errUsage
}

// locked runs f in one hold of the lock.
func (p *program) locked(ctx context.Context, f func() error) error {
	l, err := acquire(ctx, p.store+".lock", p.stale)
	if err != nil {
		return err
	}
	if p.gate {
		fmt.Fprintln(p.talk, "locked")
		if _, err := io.Copy(io.Discard, p.in); err != nil {
			return errors.Join(err, l.release())
		}
	}
	return errors.Join(f(), l.release())
}

func (p *program) static(target, token string) error {
	records, err := read(p.store)
	if err != nil {
		return err
	}
	records[target] = map[string]any{"kind": "static", "token": token}
	return write(p.store, records)
}

func (p *program) remove(target string) error {
	records, err := read(p.store)
	if err != nil {
		return err
	}
	if _, ok := records[target]; !ok {
		return errNothing
	}
	delete(records, target)
	return write(p.store, records)
}

// oidc is a record of a signed-in session, and all that is known of it.
type oidc struct {
	Kind         string `json:"kind"`
	RefreshToken string `json:"refreshToken"`
	AccessJwt    string `json:"accessJwt"`
	ExpiresAt    string `json:"expiresAt"` // as JavaScript's toISOString writes it
	Org          string `json:"org,omitempty"`
}

// sessionOf returns the target's record if it is one of a session.
func sessionOf(records map[string]any, target string) (oidc, bool) {
	b, err := json.Marshal(records[target])
	if err != nil {
		return oidc{}, false
	}
	var r oidc
	if err := json.Unmarshal(b, &r); err != nil {
		return oidc{}, false
	}
	return r, r.Kind == "oidc" && r.RefreshToken != ""
}
