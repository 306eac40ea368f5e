//go:build linux

// Package faults_test kills, stops and cuts off what takes part in a refresh:
// the machine that refreshes, its process, and etcd.
package faults_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/etcdstore"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
	"github.com/spendonce/spendonce/tests/etcd/lan"
)

const box = "box"

// Exit codes of the program.
const (
	exitOK            = 0
	exitNoCredential  = 3
	exitLoginRequired = 4
	exitTemporary     = 5
	exitStore         = 6
	exitLocked        = 7
)

// programs holds spendonce and spendonce-etcd while the tests run.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "spendonce-faults-")
	if err == nil {
		build := exec.Command("go", "build", "-o", dir+"/", "./cmd/spendonce", "./cmd/spendonce-etcd")
		build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("building the programs: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// soaked is a full count with SPENDONCE_SOAK=1, else its share.
func soaked[T any](full, share T) T {
	if os.Getenv("SPENDONCE_SOAK") == "1" {
		return full
	}
	return share
}

// fleet is machines that share box in etcd, and the authorization server of
// box on a host beside them.
type fleet struct {
	t       *testing.T
	cluster *cluster.Cluster
	prefix  string
	hosts   []*lan.Host // of the machines
	issuer  *lan.Host   // of the authorization server
	server  *spendoncetest.TokenServer

	dir      string
	identity string
	trusted  string // the file with who signed the server's certificate
	endpoint string // of the server, for clients on its network
	stale    time.Duration
	watch    *clientv3.Client

	mu   sync.Mutex
	said map[string][]byte // what each process said on standard error
}

// hostsOf is how many hosts a fleet takes of a network.
const hostsOf = 4

// newFleet makes one on hosts of the cluster's network: machines, and the
// last for the authorization server. Its session has expired.
func newFleet(t *testing.T, c *cluster.Cluster, hosts []*lan.Host, stale time.Duration) *fleet {
	t.Helper()
	if !c.LAN.Isolated() {
		t.Skip("hosts cannot be told apart here")
	}
	last := len(hosts) - 1
	f := &fleet{
		t: t, cluster: c, prefix: c.Prefix + strings.ReplaceAll(t.Name(), "/", "-") + "/", hosts: hosts[:last], issuer: hosts[last],
		dir: t.TempDir(), stale: stale, said: map[string][]byte{},
	}
	f.serve()
	f.makeIdentity()
	f.watch = c.Client(t, c.Members[0].Host, c.User)
	for i := range f.hosts {
		f.write(fmt.Sprintf("%d/config/spendonce/config.toml", i), f.config())
	}
	t.Cleanup(f.searchForSecrets)
	f.signIn()
	return f
}

// serve puts the authorization server on its host, behind a relay.
func (f *fleet) serve() {
	t := f.t
	authority := cluster.NewAuthority(t)
	files := authority.Server(t, "issuer", f.issuer.Addr)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	must(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	behind := free.Addr().String()
	must(t, free.Close())
	f.trusted = files.CA
	f.endpoint = "https://" + f.issuer.At(443)
	f.server, err = spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{
		Listen: behind, URL: f.endpoint, TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	must(t, err)
	at, err := f.issuer.Listen(443)
	must(t, err)
	ln, err := f.issuer.Serve(at)
	must(t, err)
	t.Cleanup(func() { ln.Close(); _ = f.server.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go relay(c, behind)
		}
	}()
}

func relay(c net.Conn, to string) {
	defer c.Close()
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() { _, _ = io.Copy(s, c); s.Close() }()
	_, _ = io.Copy(c, s)
}

func (f *fleet) makeIdentity() {
	f.t.Helper()
	f.identity = f.write("identity", anotherIdentity(f.t))
}

func anotherIdentity(t *testing.T) string {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	must(t, err)
	return id.String() + "\n"
}

func (f *fleet) config() string {
	text := fmt.Sprintf("[targets.box]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\nstore = \"etcd\"\n\n[lock]\nstale_after = %q\n\n",
		f.server.ResourceURL(), f.server.TokenEndpoint(), f.server.ClientID(), f.stale)
	var endpoints []string
	for _, e := range f.cluster.Endpoints() {
		endpoints = append(endpoints, fmt.Sprintf("%q", e))
	}
	text += fmt.Sprintf("[etcd]\nendpoints = [%s]\nidentity = %q\nprefix = %q\n", strings.Join(endpoints, ", "), f.identity, f.prefix)
	if files := f.cluster.TLS; files.CA != "" {
		text += fmt.Sprintf("ca = %q\ncert = %q\nkey = %q\n", files.CA, files.Cert, files.Key)
	}
	if user := f.cluster.User; user.Name != "" {
		text += fmt.Sprintf("username = %q\npassword_file = %q\n", user.Name, f.write("password", user.Password+"\n"))
	}
	return text
}

func (f *fleet) write(name, content string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	must(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(f.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// store is the fleet's store, in this process and from the host.
func (f *fleet) store(from *lan.Host) *credstore.Store {
	f.t.Helper()
	s := f.storeOn(f.shared(from))
	f.t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// storeOn is one on a connection that others may use too.
func (f *fleet) storeOn(in credstore.Shared, change ...func(*credstore.Config)) *credstore.Store {
	f.t.Helper()
	by := keys.Config{Key: "age:" + f.identity}
	cfg := credstore.Config{
		Dir: filepath.Join(f.dir, "state"), StaleAfter: f.stale,
		Shared: &credstore.SharedTargets{Names: []string{box}, In: in, Keys: &keys.Keys{Config: func() (keys.Config, error) { return by, nil }}},
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := credstore.Open(cfg)
	must(f.t, err)
	return s
}

func (f *fleet) shared(from *lan.Host) *etcdstore.Store {
	f.t.Helper()
	cfg := etcdstore.Config{
		Endpoints: f.cluster.Endpoints(), Prefix: f.prefix, Username: f.cluster.User.Name, Password: secret.New(f.cluster.User.Password),
		Dial: func(ctx context.Context, address string) (net.Conn, error) { return from.Dial(ctx, "tcp", address) },
	}
	var err error
	if f.cluster.Authority != nil {
		cfg.TLS, err = f.cluster.TLS.Config()
		must(f.t, err)
	}
	in, err := etcdstore.Open(cfg)
	must(f.t, err)
	f.t.Cleanup(func() { _ = in.Close() })
	return in
}

// signIn stores a new session whose access token has expired.
func (f *fleet) signIn() {
	f.t.Helper()
	session := f.server.NewSession("alice")
	_, err := f.store(f.issuer).Login(f.t.Context(), box, credstore.SignedIn{
		URL: f.server.ResourceURL(), Pin: credstore.Pin{TokenEndpoint: f.server.TokenEndpoint(), ClientID: f.server.ClientID()},
		Tokens: credstore.Tokens{AccessToken: session.AccessToken, RefreshToken: session.RefreshToken, ExpiresAt: time.Now().Add(-3 * time.Hour), Lifetime: time.Hour},
	})
	must(f.t, err)
}

// process is one run of the program on a machine.
type process struct {
	*exec.Cmd
	f        *fleet
	out, err bytes.Buffer
	began    time.Time
	done     chan struct{}
}

// command is the program on a machine; without arguments it asks for a token.
func (f *fleet) command(machine int, args ...string) *process {
	if len(args) == 0 {
		args = []string{"token", box}
	}
	home := filepath.Join(f.dir, fmt.Sprint(machine))
	p := &process{Cmd: exec.Command(filepath.Join(programs, "spendonce"), args...), f: f, done: make(chan struct{})}
	p.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SPENDONCE_STATE_DIR=" + filepath.Join(home, "state"),
		"XDG_CONFIG_HOME=" + filepath.Join(home, "config"), "SSL_CERT_FILE=" + f.trusted,
	}
	p.Stdout, p.Stderr = &p.out, &p.err
	return p
}

func (f *fleet) start(machine int, args ...string) *process {
	f.t.Helper()
	return f.command(machine, args...).launch(machine)
}

func (p *process) launch(machine int) *process {
	p.f.t.Helper()
	must(p.f.t, p.f.hosts[machine].Start(p.Cmd))
	return p.started()
}

func (p *process) started() *process {
	p.began = time.Now()
	go func() {
		defer close(p.done)
		_ = p.Wait()
	}()
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.f.t.Helper()
	must(p.f.t, p.Process.Signal(s))
}

// result is how a process ended.
type result struct {
	code  int // negative: by that signal
	token string
	said  string
	took  time.Duration
}

// end waits for the process, for no longer than a hang.
func (p *process) end() result {
	p.f.t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute + 4*p.f.stale):
		_ = p.Process.Signal(syscall.SIGQUIT)
		<-p.done
		p.f.t.Fatalf("it hung: %.6000s", p.err.String())
	}
	r := result{p.ProcessState.ExitCode(), strings.TrimSpace(p.out.String()), strings.TrimSpace(p.err.String()), time.Since(p.began)}
	if s, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		r.code = -int(s.Signal())
	}
	p.f.mu.Lock()
	p.f.said[fmt.Sprint("standard error of process ", p.Process.Pid)] = p.err.Bytes()
	p.f.mu.Unlock()
	return r
}

// gives fails the test unless the process ends with a token that lives.
func (p *process) gives(what string) string {
	p.f.t.Helper()
	r := p.end()
	p.f.t.Logf("%s: %d after %s: %s", what, r.code, r.took.Round(10*time.Millisecond), r.said)
	if r.code != exitOK || !p.f.server.Live(r.token) {
		p.f.t.Errorf("%s ended with %d; its token lives: %v; it said %q", what, r.code, p.f.server.Live(r.token), r.said)
	}
	return r.token
}

// refuses fails the test unless it ends with that code and says that, in time.
func (p *process) refuses(what string, code int, says string, within time.Duration) {
	p.f.t.Helper()
	r := p.end()
	p.f.t.Logf("%s: %d after %s: %s", what, r.code, r.took.Round(10*time.Millisecond), r.said)
	if r.code != code || r.token != "" || !strings.Contains(r.said, says) || strings.Contains(r.said, "panic") {
		p.f.t.Errorf("%s ended with %d, %d bytes of output, and said %q; it should be %d and %q", what, r.code, len(r.token), r.said, code, says)
	}
	if r.took > within {
		p.f.t.Errorf("%s took %s, the bound is %s", what, r.took, within)
	}
}

// counted fails the test unless so many refresh tokens were exchanged, and so
// many presented again.
func (f *fleet) counted(exchanges, doubles int) {
	f.t.Helper()
	if c := f.server.Counters(); c.Exchanges != exchanges || c.DoubleSpends != doubles {
		f.t.Errorf("%d exchanges and %d double spends, it should be %d and %d", c.Exchanges, c.DoubleSpends, exchanges, doubles)
	}
}

// recovers fails the test unless every machine gets one living token, by no
// help but a new login if that is due.
func (f *fleet) recovers() {
	f.t.Helper()
	var token string
	for i := range f.hosts {
		got := f.start(i).gives(fmt.Sprintf("afterwards, machine %d", i))
		if i > 0 && got != token {
			f.t.Errorf("machine %d has another token", i)
		}
		token = got
	}
}

func (f *fleet) hold(p spendoncetest.Point) {
	f.t.Helper()
	must(f.t, f.server.Hold(p))
}

func (f *fleet) release(p spendoncetest.Point) {
	f.t.Helper()
	must(f.t, f.server.Release(p))
}

// held returns when the server holds the request of the process.
func (f *fleet) held(p spendoncetest.Point, of *process) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.patient())
	defer cancel()
	go func() {
		select {
		case <-of.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := f.server.WaitForHeld(ctx, p, 1); err != nil {
		_ = of.Process.Kill()
		r := of.end()
		f.t.Fatalf("the server does not hold the request of a process that ended with %d after %s: %s", r.code, r.took, r.said)
	}
}

// answered lets the answers go that are held, and returns when they are sure
// to have arrived.
func (f *fleet) answered() {
	f.t.Helper()
	f.release(spendoncetest.After)
	f.reached("the answer is sent", func(c spendoncetest.Counters) bool { return c.InFlight == 0 })
	time.Sleep(lag) // it has two relays to pass
}

func (f *fleet) reached(what string, ok func(spendoncetest.Counters) bool) {
	f.t.Helper()
	if err := f.server.WaitFor(f.patient(), ok); err != nil {
		f.t.Fatalf("waiting until %s: %v", what, err)
	}
}

func (f *fleet) patient() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	f.t.Cleanup(cancel)
	return ctx
}

// next returns a wait for the next put (or delete) of a key of box: it begins
// now, and ends with the wait.
func (f *fleet) next(key string, put bool) func() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	r, err := f.watch.Get(ctx, f.prefix)
	must(f.t, err)
	events := f.watch.Watch(ctx, f.prefix+"targets/"+box+"/"+key, clientv3.WithRev(r.Header.Revision+1))
	return func() {
		f.t.Helper()
		defer cancel()
		for r := range events {
			for _, e := range r.Events {
				if put == (e.Type == clientv3.EventTypePut) {
					return
				}
			}
		}
		f.t.Fatalf("nothing befell the key %s in a minute", key)
	}
}

// tokens are all that were issued.
func (f *fleet) tokens() []canary.Value {
	var all []canary.Value
	for _, s := range f.server.Issued() {
		all = append(all, canary.Value{Name: "a token", Secret: s})
	}
	return all
}

// searchForSecrets looks for every token that was issued in all that was said
// and kept on the machines.
func (f *fleet) searchForSecrets() {
	f.mu.Lock()
	defer f.mu.Unlock()
	canary.Absent(f.t, f.tokens(), canary.Places{Outputs: f.said, Dirs: []string{f.dir}})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
