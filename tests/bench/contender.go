package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/bench/baseline"
)

// contender is a client that is measured, with the state of one user.
type contender interface {
	name() string
	// signIn stores a new session whose access token expires at at.
	signIn(at time.Time) error
	// expire makes the stored access token look as if it expired at at, by
	// replacing the file as any program that shares it would.
	expire(at time.Time) error
	// command prints a token.
	command(args ...string) *exec.Cmd
	// job is a worker of this client.
	job() job
}

const target = "work"

func long() time.Time { return time.Now().Add(time.Hour) }
func past() time.Time { return time.Now().Add(-time.Minute) }

// ours is the program and the library of this repository.
type ours struct {
	b   *bench
	dir string
	// endpoint is where the tokens come from, that of b.server but for the
	// picture.
	endpoint string
}

func newOurs(b *bench, endpoint string) (*ours, error) {
	dir, err := b.place("spendonce")
	if err != nil {
		return nil, err
	}
	o := &ours{b, dir, endpoint}
	for _, sub := range []string{"state", "config/spendonce"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if err := o.configure(""); err != nil {
		return nil, err
	}
	return o, o.signIn(past())
}

// configure writes the settings; url is that of the service, if there is one.
func (o *ours) configure(url string) error {
	config := fmt.Sprintf("[targets.%s]\ntoken_endpoint = %q\nclient_id = %q\n", target, o.endpoint, o.b.server.ClientID())
	if url != "" {
		config += fmt.Sprintf("url = %q\n", url)
	}
	return os.WriteFile(filepath.Join(o.dir, "config/spendonce/config.toml"), []byte(config), 0o600)
}

func (o *ours) name() string  { return "spendonce" }
func (o *ours) state() string { return filepath.Join(o.dir, "state") }
func (o *ours) store() string { return filepath.Join(o.state(), "remote-credentials.json") }

func (o *ours) signIn(at time.Time) error {
	s := o.b.server.NewSession(spendoncetest.DefaultUser)
	return o.write(map[string]string{"kind": "oidc", "refreshToken": s.RefreshToken.Reveal(), "accessJwt": s.AccessToken.Reveal()}, at)
}

func (o *ours) expire(at time.Time) error {
	record, err := o.record()
	if err != nil {
		return err
	}
	return o.write(record, at)
}

// token is what is stored.
func (o *ours) token() (string, error) {
	record, err := o.record()
	return record["accessJwt"], err
}

func (o *ours) record() (map[string]string, error) {
	b, err := os.ReadFile(o.store())
	if err != nil {
		return nil, err
	}
	var records map[string]map[string]string
	err = json.Unmarshal(b, &records)
	return records[target], err
}

func (o *ours) write(record map[string]string, at time.Time) error {
	record["expiresAt"] = at.UTC().Format(time.RFC3339)
	b, err := json.Marshal(map[string]any{target: record})
	if err != nil {
		return err
	}
	next := o.store() + ".bench"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return err
	}
	return os.Rename(next, o.store())
}

func (o *ours) command(args ...string) *exec.Cmd {
	return o.run(append([]string{"token", target}, args...)...)
}

// headers prints the token as Claude Code wants it.
func (o *ours) headers() *exec.Cmd { return o.run("credential", "headers", target) }

func (o *ours) run(args ...string) *exec.Cmd {
	cmd := exec.Command(o.b.spendonce, args...) //nolint:noctx // the crowd kills it
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + o.dir, "SPENDONCE_STATE_DIR=" + o.state(),
		"XDG_CONFIG_HOME=" + filepath.Join(o.dir, "config"),
	}
	return cmd
}

func (o *ours) job() job {
	return job{Client: o.name(), Path: o.state(), Endpoint: o.endpoint, ClientID: o.b.server.ClientID()}
}

// simple is the package baseline and its command.
type simple struct {
	b        *bench
	dir      string
	endpoint string
	unlocked bool
}

func newSimple(b *bench, endpoint string, unlocked bool) (*simple, error) {
	s := &simple{b: b, endpoint: endpoint, unlocked: unlocked}
	var err error
	if s.dir, err = b.place(s.name()); err != nil {
		return nil, err
	}
	return s, s.signIn(past())
}

func (s *simple) name() string {
	if s.unlocked {
		return "unlocked"
	}
	return "flock"
}

func (s *simple) file() string { return filepath.Join(s.dir, "session.json") }

func (s *simple) signIn(at time.Time) error {
	session := s.b.server.NewSession(spendoncetest.DefaultUser)
	return baseline.Session{
		AccessToken: session.AccessToken.Reveal(), RefreshToken: session.RefreshToken.Reveal(), ExpiresAt: at,
	}.Write(s.file())
}

func (s *simple) expire(at time.Time) error {
	session, err := baseline.Read(s.file())
	if err != nil {
		return err
	}
	session.ExpiresAt = at
	return session.Write(s.file())
}

func (s *simple) command(...string) *exec.Cmd {
	args := []string{"-endpoint", s.endpoint, "-client-id", s.b.server.ClientID()}
	if s.unlocked {
		args = append(args, "-unlocked")
	}
	cmd := exec.Command(s.b.flocktoken, append(args, s.file())...) //nolint:noctx // the crowd kills it
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}
	return cmd
}

func (s *simple) job() job {
	return job{Client: s.name(), Path: s.file(), Endpoint: s.endpoint, ClientID: s.b.server.ClientID()}
}
