package localproxy

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/spendonce/spendonce/internal/socketplace"
	"github.com/spendonce/spendonce/peercred"
)

var (
	// ErrTaken: another server has the socket.
	ErrTaken = socketplace.ErrTaken
	// ErrUnsafe: the socket's place cannot be trusted, and was left as it is.
	ErrUnsafe = socketplace.ErrUnsafe
)

// listenUnix binds a socket that only this user can connect to, in a directory
// that only this user can change.
func listenUnix(path string, warn func(string)) (_ net.Listener, unbind func(), err error) {
	if len(path) > peercred.MaxPath {
		return nil, nil, fmt.Errorf("%w: %s has %d bytes, and the kernel takes %d: choose a shorter one", ErrAddress, path, len(path), peercred.MaxPath)
	}
	place, err := socketplace.Take(socketplace.Config{Socket: path, Forbidden: 0o022, Option: "--listen"})
	if err != nil {
		return nil, nil, err
	}
	l, err := place.Listen(filepath.Base(path))
	if err != nil {
		place.Close()
		return nil, nil, err
	}
	return &peers{l, warn}, place.Close, nil
}

// peers accepts connections of this user's processes only.
type peers struct {
	*peercred.Listener
	warn func(string)
}

func (p *peers) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		no := c.Refusal()
		if no == nil {
			return &peer{conn: c}, nil
		}
		_ = c.Close()
		if !errors.Is(no, peercred.ErrExited) {
			p.warn("a connection was refused: " + no.Error())
		}
	}
}

func (p *peers) Addr() net.Addr { return &net.UnixAddr{Name: p.Listener.Addr(), Net: "unix"} }

// peer is a connection, ended as soon as something was written to it by
// another process than the one that connected. What a client hands to another
// user, that user cannot use.
type peer struct {
	conn *peercred.Conn
	mu   sync.Mutex // of closing and asking
}

func (p *peer) Read(b []byte) (int, error) {
	n, err := p.conn.Read(b)
	if n == 0 || err != nil {
		return n, err
	}
	p.mu.Lock()
	no := p.conn.Verify()
	p.mu.Unlock()
	if no != nil {
		clear(b[:n])
		return 0, no
	}
	return n, nil
}

func (p *peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn.Close()
}

func (p *peer) Write(b []byte) (int, error)        { return p.conn.Write(b) }
func (p *peer) LocalAddr() net.Addr                { return &net.UnixAddr{Net: "unix"} }
func (p *peer) RemoteAddr() net.Addr               { return &net.UnixAddr{Net: "unix"} }
func (p *peer) SetReadDeadline(t time.Time) error  { return p.conn.SetReadDeadline(t) }
func (p *peer) SetWriteDeadline(t time.Time) error { return p.conn.SetWriteDeadline(t) }
func (p *peer) SetDeadline(t time.Time) error {
	return errors.Join(p.conn.SetReadDeadline(t), p.conn.SetWriteDeadline(t))
}
