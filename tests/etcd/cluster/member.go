//go:build linux

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spendonce/spendonce/tests/etcd/lan"
)

// The ports at which members are reached.
const (
	clientPort = 2379
	peerPort   = 2380
)

// Member is one server of the cluster. Its methods are for one goroutine at a
// time.
type Member struct {
	Name string
	Host *lan.Host
	Dir  string // its data
	Log  string // the file with all that it printed, through all its lives

	cluster *Cluster
	listen  struct{ client, peer string }
	cert    Files
	ready   *net.UnixConn
	direct  *clientv3.Client

	life *life // nil before the first
}

// life is one run of the server.
type life struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it ended
}

func (c *Cluster) newMember(t testing.TB, i int) *Member {
	t.Helper()
	m := &Member{
		Name: memberName(i), Host: c.LAN.Hosts[i], Dir: c.path(memberName(i)), Log: c.path(memberName(i) + ".log"),
		cluster: c,
	}
	var err error
	if m.listen.client, err = m.Host.Listen(clientPort); err != nil {
		t.Fatal(err)
	}
	if m.listen.peer, err = m.Host.Listen(peerPort); err != nil {
		t.Fatal(err)
	}
	if c.Authority != nil {
		m.cert = c.Authority.Server(t, m.Name, m.Host.Addr)
	}
	if m.ready, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.readySocket(), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.end(syscall.SIGKILL)
		m.ready.Close()
	})
	return m
}

// Endpoint is the member's URL for clients.
func (m *Member) Endpoint() string { return m.cluster.scheme() + "://" + m.Host.At(clientPort) }

// Launch starts the server and does not wait for it.
func (m *Member) Launch(t testing.TB) {
	t.Helper()
	if m.Running() {
		t.Fatalf("%s runs already", m.Name)
	}
	log, err := os.OpenFile(m.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := Server(t)
	cmd := &exec.Cmd{
		Path: server, Args: append([]string{server}, m.args()...),
		Dir: m.cluster.dir, Env: []string{"NOTIFY_SOCKET=" + m.readySocket()},
		Stdout: log, Stderr: log,
	}
	if err := m.Host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	l := &life{cmd: cmd, done: make(chan struct{})}
	m.life = l
	go func() {
		defer close(l.done)
		_ = cmd.Wait()
		// Wakes who waits for it to be ready.
		_ = m.ready.SetReadDeadline(time.Unix(1, 0))
	}()
}

// Await waits until the server has joined the cluster, which takes that most
// members can reach each other.
func (m *Member) Await(t testing.TB) {
	t.Helper()
	if err := m.await(); err != nil {
		t.Fatalf("%s: %v\n%s", m.Name, err, m.tail())
	}
}

func (m *Member) await() error {
	if err := m.ready.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	buf := make([]byte, 512)
	for {
		if !m.Running() {
			return errors.New("it ended")
		}
		n, err := m.ready.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && !m.Running() {
			return errors.New("it ended")
		}
		if err != nil {
			return fmt.Errorf("waiting until it is ready: %w", err)
		}
		if bytes.Contains(buf[:n], []byte("READY=1")) {
			return nil
		}
	}
}

// Restart starts a server that was killed or stopped, and waits until it has
// joined the cluster again.
func (m *Member) Restart(t testing.TB) {
	t.Helper()
	m.Launch(t)
	m.Await(t)
}

// Kill ends the server at once, in the middle of whatever it does.
func (m *Member) Kill() { m.end(syscall.SIGKILL) }

// Stop asks the server to end, and waits until it has. It hands leadership
// over before.
func (m *Member) Stop() { m.end(syscall.SIGTERM) }

// Pause stops the server's time; Resume lets it go on.
func (m *Member) Pause() { _ = m.life.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a server go on that was paused.
func (m *Member) Resume() { _ = m.life.cmd.Process.Signal(syscall.SIGCONT) }

func (m *Member) end(how syscall.Signal) {
	if m.life == nil {
		return
	}
	_ = m.life.cmd.Process.Signal(how)
	<-m.life.done
}

// Running tells whether the server was started and has not ended.
func (m *Member) Running() bool {
	if m.life == nil {
		return false
	}
	select {
	case <-m.life.done:
		return false
	default:
		return true
	}
}

// readySocket is where the server says, as to systemd, that it is ready.
func (m *Member) readySocket() string { return m.cluster.path(m.Name + ".ready") }

func (m *Member) args() []string {
	scheme := m.cluster.scheme() + "://"
	args := []string{
		"--name=" + m.Name,
		"--data-dir=" + m.Dir,
		"--listen-client-urls=" + scheme + m.listen.client,
		"--advertise-client-urls=" + m.Endpoint(),
		"--listen-peer-urls=" + scheme + m.listen.peer,
		"--initial-advertise-peer-urls=" + scheme + m.Host.At(peerPort),
		"--initial-cluster=" + m.cluster.initial(),
		"--initial-cluster-token=" + m.cluster.token,
		// Short, so that a new leader is found soon; a tenth of what is usual
		// would take a busy machine for a broken one.
		"--heartbeat-interval=50",
		"--election-timeout=500",
		"--bcrypt-cost=4",
	}
	if m.cluster.Authority != nil {
		args = append(args,
			"--client-cert-auth", "--trusted-ca-file="+m.cert.CA, "--cert-file="+m.cert.Cert, "--key-file="+m.cert.Key,
			"--peer-client-cert-auth", "--peer-trusted-ca-file="+m.cert.CA, "--peer-cert-file="+m.cert.Cert, "--peer-key-file="+m.cert.Key)
	}
	return append(args, m.cluster.options.Args...)
}

// tail is the end of what the server printed.
func (m *Member) tail() []byte {
	log, err := os.ReadFile(filepath.Clean(m.Log))
	if err != nil {
		return []byte(err.Error())
	}
	const enough = 4000
	return log[max(0, len(log)-enough):]
}
