package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/tests/real/everything"
)

const (
	// mcpCrowd is how many calls are in flight where they are counted.
	mcpCrowd = 64
	mcpCalls = 200 // of which the median is taken
)

// mcpServer is a server, and how the program comes to it.
type mcpServer struct {
	url, token string
	proxy      func() *exec.Cmd
}

// mcpProxies is row j: calls to an MCP server through the program, against the
// same calls without it and through mcp-remote.
func mcpProxies(ctx context.Context, b *bench) ([]row, error) {
	echo, stop, err := startMCPEcho(ctx, b)
	if err != nil {
		return nil, err
	}
	defer stop()
	modules, missing := nodeModules(ctx)
	if missing != nil {
		// What needs only what is here is measured all the same.
		got, err := measureMCP(ctx, b, echo, "")
		if err != nil {
			return nil, err
		}
		return []row{got.delay("j1", "a server in Go")},
			fmt.Errorf("the reference server and mcp-remote need node and npm (Debian: nodejs, npm): %w", missing)
	}
	remote := filepath.Join(modules, "node_modules/mcp-remote/dist/proxy.js")
	inGo, err := measureMCP(ctx, b, echo, remote)
	if err != nil {
		return nil, err
	}
	starts, err := startMCP(ctx, b, echo, remote)
	if err != nil {
		return nil, err
	}
	rows := []row{inGo.delay("j1", "a server in Go"), inGo.rate("j2", "a server in Go").atLeast(5), inGo.memory("j3").atMost(0.2), starts}
	reference, stop, err := startReference(ctx, b)
	if err != nil {
		return rows, err
	}
	defer stop()
	got, err := measureMCP(ctx, b, reference, remote)
	if err != nil {
		return rows, err
	}
	return append(rows, got.delay("j5", "the reference server").atMost(1.3), got.rate("j6", "the reference server")), nil
}

// nodeModules is where the npm packages are, if there is a node to run them.
func nodeModules(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", err
	}
	return everything.Modules(ctx)
}

// startReference starts the reference server behind a front that checks
// tokens.
func startReference(ctx context.Context, b *bench) (s mcpServer, stop func(), err error) {
	server, err := everything.Start(ctx, everything.StreamableHTTP)
	if err != nil {
		return s, nil, err
	}
	front, err := everything.Protect(server, everything.Config{})
	if err != nil {
		server.Close()
		return s, nil, err
	}
	stop = func() {
		_ = front.Close()
		server.Close()
	}
	dir, err := b.place("reference")
	if err != nil {
		stop()
		return s, nil, err
	}
	env, session, err := front.Home(dir, target, everything.Fresh)
	if err != nil {
		stop()
		return s, nil, err
	}
	return mcpServer{url: front.URL(), token: session.AccessToken.Reveal(), proxy: func() *exec.Cmd {
		cmd := exec.Command(b.spendonce, "mcp", "proxy", target) //nolint:noctx // ends with its input
		cmd.Env = env
		return cmd
	}}, stop, nil
}

// mcpRemote is the command that users of mcp-remote have, but that it need not
// sign in and prints no logs.
func mcpRemote(b *bench, s mcpServer, script string) (*exec.Cmd, error) {
	home, err := b.place("mcp-remote")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("node", script, s.url, "--allow-http", "--silent", "--header", "Authorization: Bearer "+s.token) //nolint:noctx // ends with its input
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	return cmd, nil
}

// The contenders of row j.
const (
	direct = iota
	proxied
	remotely
)

// mcpFigures are those of one server, by contender.
type mcpFigures struct {
	delays [][]float64 // µs
	loads  [][]mcpLoad
}

// mcpLoad is a second with a crowd.
type mcpLoad struct {
	rate     float64 // calls per second
	resident float64 // MiB, afterwards
}

// measureMCP measures calls to a server; without a script there is no
// mcp-remote.
func measureMCP(ctx context.Context, b *bench, s mcpServer, script string) (got mcpFigures, err error) {
	clients := []mcpClient{newDirectClient(s.url, s.token)}
	pids := []int{os.Getpid()}
	defer func() {
		for _, c := range clients {
			if failed := c.close(); err == nil {
				err = failed
			}
		}
	}()
	cmds := []*exec.Cmd{s.proxy()}
	if script != "" {
		remote, err := mcpRemote(b, s, script)
		if err != nil {
			return got, err
		}
		cmds = append(cmds, remote)
	}
	for _, cmd := range cmds {
		c, err := startProxied(cmd)
		if err != nil {
			return got, err
		}
		clients, pids = append(clients, c), append(pids, cmd.Process.Pid)
	}
	var calls []func(context.Context) (float64, error)
	var loads []func(context.Context) (mcpLoad, error)
	for i, c := range clients {
		if err := handshake(ctx, c); err != nil {
			return got, err
		}
		calls = append(calls, func(ctx context.Context) (float64, error) { return oneByOne(ctx, c) })
		loads = append(loads, func(ctx context.Context) (mcpLoad, error) { return crowded(ctx, c, pids[i]) })
	}
	if got.delays, err = inTurn(ctx, b.pairs, calls...); err == nil {
		got.loads, err = inTurn(ctx, (b.pairs+2)/3, loads...)
	}
	return got, err
}

// oneByOne is the median time of a call, in µs.
func oneByOne(ctx context.Context, c mcpClient) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	settle()
	var took []float64
	for range mcpCalls {
		start := time.Now()
		if err := callEcho(ctx, c); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(start).Nanoseconds())/1000)
	}
	return spreadOf(took).Median, nil
}

func crowded(ctx context.Context, c mcpClient, pid int) (l mcpLoad, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if l.rate, err = perSecond(ctx, mcpCrowd, func(ctx context.Context) error { return callEcho(ctx, c) }); err == nil {
		l.resident, err = resident(pid)
	}
	return l, err
}

// startMCP is how long it takes from the start of a proxy to its first answer.
func startMCP(ctx context.Context, b *bench, s mcpServer, script string) (row, error) {
	first := func(command func() (*exec.Cmd, error)) func(context.Context) (float64, error) {
		return func(ctx context.Context) (took float64, err error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			cmd, err := command()
			if err != nil {
				return 0, err
			}
			start := time.Now()
			c, err := startProxied(cmd)
			if err != nil {
				return 0, err
			}
			err = handshake(ctx, c)
			took = milliseconds(time.Since(start))
			if failed := c.close(); err == nil {
				err = failed
			}
			return took, err
		}
	}
	got, err := inTurn(ctx, (b.pairs+2)/3,
		first(func() (*exec.Cmd, error) { return s.proxy(), nil }),
		first(func() (*exec.Cmd, error) { return mcpRemote(b, s, script) }))
	if err != nil {
		return row{}, err
	}
	return row{
		ID: "j4", Name: "MCP proxy, from its start to its first answer, against mcp-remote", Figure: spreadOf(ratios(got[0], got[1])),
		Detail: fmt.Sprintf("%s ms, mcp-remote %s ms", short(spreadOf(got[0]).Median), short(spreadOf(got[1]).Median)),
	}, nil
}

func (m mcpFigures) delay(id, server string) row {
	r := row{
		ID: id, Name: "small MCP call to " + server + ", against the same without a proxy",
		Figure: spreadOf(ratios(m.delays[proxied], m.delays[direct])),
		Detail: fmt.Sprintf("%.0f µs, direct %.0f µs", spreadOf(m.delays[proxied]).Median, spreadOf(m.delays[direct]).Median),
	}
	if len(m.delays) > remotely {
		r.Detail += fmt.Sprintf(", mcp-remote %.0f µs, which is %s", spreadOf(m.delays[remotely]).Median, short(spreadOf(ratios(m.delays[remotely], m.delays[direct])).Median))
	}
	return r
}

func rateOf(l mcpLoad) float64     { return l.rate }
func residentOf(l mcpLoad) float64 { return l.resident }

func (m mcpFigures) rate(id, server string) row {
	by := func(i int) []float64 { return each(m.loads[i], rateOf) }
	return row{
		ID: id, Name: fmt.Sprintf("MCP calls to %s, %d in flight, against mcp-remote", server, mcpCrowd), Figure: spreadOf(ratios(by(proxied), by(remotely))),
		Detail: fmt.Sprintf("%.0f per second, mcp-remote %.0f, direct %.0f", spreadOf(by(proxied)).Median, spreadOf(by(remotely)).Median, spreadOf(by(direct)).Median),
	}
}

func (m mcpFigures) memory(id string) row {
	ours, remote := each(m.loads[proxied], residentOf), each(m.loads[remotely], residentOf)
	return row{
		ID: id, Name: "resident memory of an MCP proxy after that, against mcp-remote", Figure: spreadOf(ratios(ours, remote)),
		Detail: fmt.Sprintf("%s MiB, mcp-remote %s MiB", short(spreadOf(ours).Median), short(spreadOf(remote).Median)),
	}
}
