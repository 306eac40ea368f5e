package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/peercred"
)

// askers is how many clients ask at once in row h.
const askers = 8

// asking is row h: requests that change nothing, against a server that
// connects, reads a line and sends it back.
func asking(ctx context.Context, b *bench) ([]row, error) {
	ours, session, err := startAnchored(ctx, b)
	if err != nil {
		return nil, err
	}
	defer ours.stop()
	echo, err := startEcho(ctx, b)
	if err != nil {
		return nil, err
	}
	defer echo.stop()
	line := []byte(strings.Repeat("x", 120) + "\n") // as long as a request
	got, err := inTurn(ctx, (b.pairs+2)/3,
		func(ctx context.Context) (float64, error) {
			return perSecond(ctx, askers, func(ctx context.Context) error { return ours.client.Authenticate(ctx, session) })
		},
		func(ctx context.Context) (float64, error) {
			return perSecond(ctx, askers, func(ctx context.Context) error { return echoOnce(ctx, echo.socket, line) })
		})
	if err != nil {
		return nil, err
	}
	one := func(ctx context.Context) (float64, error) {
		return medianMicroseconds(func() error { return ours.client.Authenticate(ctx, session) })
	}
	beside, err := inTurn(ctx, (b.pairs+2)/3, one, func(ctx context.Context) (float64, error) {
		end, err := beSlow(ctx, ours.socket)
		if err != nil {
			return 0, err
		}
		defer end()
		return one(ctx)
	})
	if err != nil {
		return nil, err
	}
	idle, err := residentMiB(ctx, b)
	if err != nil {
		return nil, err
	}
	return []row{
		row{
			ID: "h1", Name: fmt.Sprintf("authenticate, %d clients, against a server that only echoes", askers), Figure: spreadOf(ratios(got[0], got[1])),
			Detail: fmt.Sprintf("%.0f per second, %.0f", spreadOf(got[0]).Median, spreadOf(got[1]).Median),
		}.atLeast(0.5),
		row{
			ID: "h2", Name: fmt.Sprintf("authenticate, the median beside %d slow clients, against alone", slowClients), Figure: spreadOf(ratios(beside[1], beside[0])),
			Detail: fmt.Sprintf("%.0f µs, %.0f µs", spreadOf(beside[1]).Median, spreadOf(beside[0]).Median),
		}.atMost(2),
		row{ID: "h3", Name: "resident memory of an idle broker", Unit: "MiB", Figure: spreadOf(idle)}.atMost(25),
	}, nil
}

const slowClients = 100

// beSlow has clients each begin a request, byte by byte, and never end it;
// turned away at the deadline, they come again.
func beSlow(ctx context.Context, socket string) (end func(), err error) {
	var wg sync.WaitGroup
	ended := make(chan struct{})
	for range slowClients {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			close(ended)
			wg.Wait()
			return nil, err
		}
		wg.Go(func() {
			drip := time.NewTicker(100 * time.Millisecond)
			defer drip.Stop()
			for {
				if _, err := conn.Write([]byte("{")); err != nil {
					conn.Close()
					if conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket); err != nil {
						return
					}
				}
				select {
				case <-drip.C:
				case <-ended:
					conn.Close()
					return
				}
			}
		})
	}
	return func() { close(ended); wg.Wait() }, nil
}

// medianMicroseconds is how long one call takes.
func medianMicroseconds(f func() error) (float64, error) {
	var took []float64
	for range 500 {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(start).Nanoseconds())/1000)
	}
	return spreadOf(took).Median, nil
}

const echoCommand = "echo-server"

// startEcho starts this program as a server that sends back each line.
func startEcho(ctx context.Context, b *bench) (*process, error) {
	dir, err := b.place("echo")
	if err != nil {
		return nil, err
	}
	p := &process{socket: filepath.Join(dir, "e.sock")}
	p.cmd = exec.CommandContext(ctx, b.self, echoCommand, p.socket)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		p.stop()
		return nil, fmt.Errorf("the echo server said %q: %w", line, err)
	}
	return p, nil
}

// echo serves until ctx ends: a connection, a line, the same line.
func echo(ctx context.Context, socket string, ready io.Writer) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Fprintln(ready, "ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Second))
			line, err := bufio.NewReader(c).ReadBytes('\n')
			if err == nil {
				_, _ = c.Write(line)
			}
		}()
	}
}

func echoOnce(ctx context.Context, socket string, line []byte) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(line); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && len(got) != len(line) {
		err = errors.New("the echo server sent something else")
	}
	return err
}

// residentMiB is the memory of brokers that were asked a little and then left
// alone.
func residentMiB(ctx context.Context, b *bench) (figures []float64, err error) {
	for range 3 {
		p, s, err := startAnchored(ctx, b)
		if err != nil {
			return nil, err
		}
		for range 100 {
			err = errors.Join(err, leasePair(ctx, p.client, s))
		}
		settle()
		mib, readErr := resident(p.cmd.Process.Pid)
		p.stop()
		if err := errors.Join(err, readErr); err != nil {
			return nil, err
		}
		figures = append(figures, mib)
	}
	return figures, nil
}

// resident is a process' memory in MiB, with what it shares with others.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.ParseFloat(strings.Fields(rest + " -")[0], 64)
	return kib / 1024, err
}

const (
	depthCommand = "descend"
	depth        = 8
)

// ancestry is row i: the way from a process to its anchor, both passes,
// against reading the same files and no more.
func ancestry(ctx context.Context, b *bench) ([]row, error) {
	cmd := exec.CommandContext(ctx, b.self, depthCommand, strconv.Itoa(depth-1))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, err
	}
	deepest, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return nil, err
	}
	prover, err := peercred.OpenProver()
	if err != nil {
		return nil, err
	}
	defer prover.Close()
	// The chain from the deepest up to the first child of ours is the anchor's.
	all, _ := prover.Explain(deepest, peercred.Process{})
	if len(all) < depth || all[depth-1].PID != cmd.Process.Pid {
		return nil, fmt.Errorf("the chain of %d processes is %v", depth, all)
	}
	anchor := all[depth-1].Process
	var paths []string
	for _, link := range all[:depth] {
		paths = append(paths, "/proc/"+strconv.Itoa(link.PID)+"/stat")
	}
	buf := make([]byte, 1024)
	got, err := inTurn(ctx, b.pairs*cheap,
		func(context.Context) (float64, error) {
			return microsecondsEach(func() error {
				_, err := prover.Explain(deepest, anchor)
				return err
			})
		},
		func(context.Context) (float64, error) {
			return microsecondsEach(func() error {
				for range 2 {
					for _, path := range paths {
						if err := readOnce(path, buf); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	if err != nil {
		return nil, err
	}
	return []row{row{
		ID: "i", Name: fmt.Sprintf("the way up %d processes, twice, against reading their files", depth), Figure: spreadOf(ratios(got[0], got[1])),
		Detail: fmt.Sprintf("%.0f µs, %.0f µs", spreadOf(got[0]).Median, spreadOf(got[1]).Median),
	}.atMost(1.3)}, nil
}

func microsecondsEach(f func() error) (float64, error) {
	const times = 20
	start := time.Now()
	for range times {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1000 / times, nil
}

// descend starts itself until it is deep enough; the deepest says its pid.
// All end when the first one's standard input does.
func descend(ctx context.Context, more string, stdout io.Writer) error {
	n, err := strconv.Atoi(more)
	if err != nil {
		return err
	}
	if n == 0 {
		fmt.Fprintln(stdout, os.Getpid())
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, depthCommand, strconv.Itoa(n-1))
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	return cmd.Run()
}

// readOnce opens, reads and closes, and does not look.
func readOnce(path string, buf []byte) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Read(fd, buf)
	return errors.Join(err, unix.Close(fd))
}
