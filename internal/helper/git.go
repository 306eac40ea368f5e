package helper

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spendonce/spendonce/internal/challenge"
	"github.com/spendonce/spendonce/internal/secret"
)

// GitUsername is the user name beside a token where neither git nor anybody
// else gives one: what GitLab demands for OAuth, and others ignore.
const GitUsername = "oauth2"

// GitRequest is the description of a credential that git writes to a helper
// (git-credential(1), "INPUT/OUTPUT FORMAT").
type GitRequest struct {
	Protocol, Host string
	Path           string // without a leading slash; only with credential.useHttpPath
	Username       string
	Challenges     []string // the server's WWW-Authenticate lines

	// Rejected is, in an erase, the token that the server refused: the
	// password, or the credential of a Bearer.
	Rejected secret.Secret

	// AuthType and State: git understands answers with authtype, and keeps
	// what an answer says in state[] for a later store or erase.
	AuthType, State bool
	// Target is what the answer's state[] said.
	Target string
}

// statePrefix begins our lines of state; helpers of other names have their
// own.
const statePrefix = "spendonce.target="

// ReadGit reads up to an empty line or the end, at most 1 MiB in lines of at
// most 64 KiB. Unknown keys are left out, as git demands; a line without
// "=", a NUL, a carriage return or a protocol or host that stands twice with
// different values is refused: those are how a URL smuggles in another host.
func ReadGit(in io.Reader) (GitRequest, error) {
	b, err := readBounded(in)
	if err != nil {
		return GitRequest{}, err
	}
	var r GitRequest
	var authType, credential, password string
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		if len(line) == 0 {
			break
		}
		key, value, ok := strings.Cut(string(line), "=")
		switch {
		case len(line) > maxLine:
			return GitRequest{}, fmt.Errorf("%w: a line is longer than 64 KiB", ErrInput)
		case bytes.ContainsAny(line, "\x00\r"):
			return GitRequest{}, fmt.Errorf("%w: a line holds a NUL or a carriage return", ErrInput)
		case !ok:
			return GitRequest{}, fmt.Errorf("%w: a line has no \"=\"", ErrInput)
		}
		switch key {
		case "protocol":
			err = once(&r.Protocol, key, value)
		case "host":
			err = once(&r.Host, key, value)
		case "path":
			err = once(&r.Path, key, value)
		case "username":
			r.Username = value
		case "password":
			password = value
		case "authtype":
			authType = value
		case "credential":
			credential = value
		case "capability[]":
			r.AuthType = r.AuthType || value == "authtype"
			r.State = r.State || value == "state"
		case "wwwauth[]":
			if value == "" {
				r.Challenges = nil // an empty value empties a list
			} else {
				r.Challenges = append(r.Challenges, value)
			}
		case "state[]":
			if target, ours := strings.CutPrefix(value, statePrefix); ours {
				r.Target = target
			}
		}
		if err != nil {
			return GitRequest{}, err
		}
	}
	r.Rejected = secret.New(password)
	if strings.EqualFold(authType, "bearer") && credential != "" {
		r.Rejected = secret.New(credential)
	}
	return r, nil
}

func once(to *string, key, value string) error {
	if *to != "" && *to != value {
		return fmt.Errorf("%w: %q stands twice", ErrInput, key)
	}
	*to = value
	return nil
}

// URL is where git wants to go, without the path. Only http and https have
// one. A host with anything but a name or address and a port in it is
// refused.
func (r GitRequest) URL() (string, error) {
	switch {
	case r.Protocol != "https" && r.Protocol != "http":
		return "", fmt.Errorf("%w: the protocol is neither https nor http", ErrInput)
	case r.Host == "" || strings.ContainsFunc(r.Host, func(c rune) bool { return !hostRune(c) }):
		return "", fmt.Errorf("%w: the host is not a name or address with, at most, a port", ErrInput)
	}
	return r.Protocol + "://" + r.Host, nil
}

func hostRune(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".-_:[]", c)
}

// Bearer reports whether the answer should be for "Authorization: Bearer":
// git must be able to send that, and a server that says what it takes must
// not take Basic alone, as GitHub and GitLab do.
func (r GitRequest) Bearer() bool {
	if !r.AuthType {
		return false
	}
	basic := false
	for _, c := range challenge.Parse(r.Challenges) {
		if c.Scheme == "bearer" {
			return true
		}
		basic = basic || c.Scheme == "basic"
	}
	return !basic
}

// Answer writes the answer to a get. A user name that git gave is kept;
// target is what a later erase is about.
//
// The token is ours to keep, so the answer is ephemeral: no other helper
// that git asks may store it.
func (r GitRequest) Answer(out io.Writer, c Credential, username, target string) error {
	token, err := c.text()
	if err != nil {
		return err
	}
	if r.Username != "" {
		username = r.Username
	}
	if username == "" {
		username = GitUsername
	}
	if strings.ContainsAny(username+target, "\x00\r\n") {
		return fmt.Errorf("%w: the user name holds a NUL or a line break", ErrInput)
	}
	var b strings.Builder
	if r.AuthType {
		b.WriteString("capability[]=authtype\n")
	}
	if r.State {
		b.WriteString("capability[]=state\n")
	}
	if r.Bearer() {
		b.WriteString("authtype=Bearer\ncredential=" + token + "\nephemeral=true\n")
	} else {
		b.WriteString("username=" + username + "\npassword=" + token + "\n")
		if r.AuthType {
			b.WriteString("ephemeral=true\n")
		}
	}
	if !c.ExpiresAt.IsZero() {
		fmt.Fprintf(&b, "password_expiry_utc=%d\n", c.ExpiresAt.Unix())
	}
	if r.State {
		b.WriteString("state[]=" + statePrefix + target + "\n")
	}
	return write(out, b.String())
}

// WriteGitCapabilities answers "capability" (git-credential(1), "CAPABILITY
// INPUT/OUTPUT FORMAT").
func WriteGitCapabilities(out io.Writer) error {
	return write(out, "version 0\ncapability authtype\ncapability state\n")
}
