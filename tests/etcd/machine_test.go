//go:build linux

package etcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"filippo.io/age"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// programs is a directory with both programs.
var programs = sync.OnceValues(func() (string, error) {
	if dir := filepath.Dir(os.Getenv("SPENDONCE_BIN")); dir != "." {
		if _, err := os.Stat(filepath.Join(dir, "spendonce-etcd")); err == nil {
			return dir, nil
		}
	}
	dir, err := os.MkdirTemp("", "spendonce-bin-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/spendonce", "./cmd/spendonce-etcd")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// site is an authorization server and an etcd, which several machines use.
type site struct {
	cluster *cluster.Cluster
	server  *spendoncetest.TokenServer
	prefix  string
	said    bytes.Buffer // all that any process said on standard error
	hidden  []canary.Value
}

func newSite(t *testing.T, c *cluster.Cluster) *site {
	t.Helper()
	server, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	must(t, err)
	s := &site{cluster: c, server: server, prefix: c.Prefix}
	t.Cleanup(func() {
		_ = server.Close()
		if len(s.hidden) == 0 {
			return
		}
		canary.Absent(t, s.hidden, canary.Places{Outputs: map[string][]byte{"standard error": s.said.Bytes()}})
		canary.Absent(t, s.hidden, c.Places())
	})
	return s
}

// machine is a user's home on one of the machines.
type machine struct {
	t         *testing.T
	site      *site
	dir, bin  string
	identity  string // the file
	recipient string
}

// newMachine is configured to keep "box" in etcd, and "local" in its file.
func newMachine(t *testing.T, s *site, others ...*machine) *machine {
	t.Helper()
	bin, err := programs()
	must(t, err)
	id, err := age.GenerateX25519Identity()
	must(t, err)
	m := &machine{t: t, site: s, dir: t.TempDir(), bin: filepath.Join(bin, "spendonce"), recipient: id.Recipient().String()}
	m.identity = m.write("identity", id.String()+"\n")
	m.configure("etcd", append(others, m)...)
	return m
}

// configure writes the configuration. The readers can open what is put.
func (m *machine) configure(store string, readers ...*machine) {
	m.t.Helper()
	var recipients []string
	for _, r := range readers {
		recipients = append(recipients, r.recipient)
	}
	m.write("config/spendonce/config.toml", m.config(store, m.site.cluster.Endpoints(), recipients))
}

func (m *machine) config(store string, endpoints, recipients []string) string {
	server := m.site.server
	text := fmt.Sprintf("[targets.box]\nurl = %q\nissuer = %q\ntoken_endpoint = %q\nclient_id = %q\nstore = %q\n\n[targets.local]\nstore = \"file\"\n\n",
		server.ResourceURL(), server.Issuer(), server.TokenEndpoint(), server.ClientID(), store)
	text += fmt.Sprintf("[etcd]\nendpoints = [%s]\nidentity = %q\nrecipients = [%s]\nprefix = %q\n",
		quoted(endpoints), m.identity, quoted(recipients), m.site.prefix)
	if f := m.site.cluster.TLS; f.CA != "" {
		text += fmt.Sprintf("ca = %q\ncert = %q\nkey = %q\n", f.CA, f.Cert, f.Key)
	}
	if user := m.site.cluster.User; user.Name != "" {
		text += fmt.Sprintf("username = %q\npassword_file = %q\n", user.Name, m.write("password", user.Password+"\n"))
	}
	return text
}

func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, fmt.Sprintf("%q", w))
	}
	return strings.Join(all, ", ")
}

func (m *machine) write(name, content string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(m.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(m.bin, args...)
	cmd.Env = append(os.Environ(), "HOME="+m.dir, "SPENDONCE_STATE_DIR="+filepath.Join(m.dir, "state"), "XDG_CONFIG_HOME="+filepath.Join(m.dir, "config"))
	return cmd
}

// result is what came of a run.
type result struct {
	code     int
	out, err string
}

// run runs the program with input.
func (m *machine) run(input string, args ...string) result {
	m.t.Helper()
	cmd := m.command(args...)
	cmd.Stdin = strings.NewReader(input)
	return m.result(cmd)
}

func (m *machine) result(cmd *exec.Cmd) result {
	m.t.Helper()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	m.site.said.Write(said.Bytes())
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = -int(status.Signal())
	}
	return result{code, strings.TrimSuffix(out.String(), "\n"), said.String()}
}

// must runs the program and returns what it printed.
func (m *machine) must(args ...string) string {
	m.t.Helper()
	r := m.run("", args...)
	if r.code != 0 {
		m.t.Fatalf("%q ended with %d: %s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// signIn signs alice in to the target, by a browser that is not there.
func (m *machine) signIn(target string) {
	m.t.Helper()
	cmd := m.command("login", target, "--paste")
	in, err := cmd.StdinPipe()
	must(m.t, err)
	lines := &browser{t: m.t, in: in}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, lines
	if err := cmd.Run(); err != nil {
		m.t.Fatalf("login: %v: %s", err, lines.said.String())
	}
	m.site.said.WriteString(lines.said.String())
	m.hide(target)
}

// hide keeps the access token in mind, as one that nobody may find.
func (m *machine) hide(target string) {
	m.t.Helper()
	m.site.hidden = append(m.site.hidden, canary.Of("access token", m.must("token", target)))
}

var address = regexp.MustCompile(`\n  (http://\S+/authorize\?\S+)\n`)

// browser signs in at the address that a login prints, and pastes what it is
// sent back to.
type browser struct {
	t    *testing.T
	in   interface{ Write(p []byte) (int, error) }
	said bytes.Buffer
	done bool
}

func (b *browser) Write(p []byte) (int, error) {
	b.said.Write(p)
	if m := address.FindString(b.said.String()); m != "" && !b.done {
		b.done = true
		back, err := spendoncetest.Person{}.Authorize(b.t.Context(), strings.TrimSpace(m))
		if err != nil {
			return 0, err
		}
		if _, err := fmt.Fprintln(b.in, back.String()); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
