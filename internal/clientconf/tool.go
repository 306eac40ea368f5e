package clientconf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Bounds of a run of a client's tool.
const (
	toolPatience = 30 * time.Second
	maxOutput    = 32 << 20
)

// ErrNoTool says that a client's own tool is not on PATH.
var ErrNoTool = errors.New("not found on PATH")

// toolFailed is a run that ended with an exit code.
type toolFailed struct {
	program, verb string
	code          int
	said          string
}

func (e *toolFailed) Error() string {
	return fmt.Sprintf("'%s %s' ended with exit code %d: %s", e.program, e.verb, e.code, e.said)
}

// run starts a client's tool without a shell and returns what it printed.
func run(ctx context.Context, dir string, env map[string]string, argv ...string) ([]byte, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", argv[0], ErrNoTool)
	}
	ctx, cancel := context.WithTimeout(ctx, toolPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.WaitDelay = time.Second
	out, said := limited{room: maxOutput}, limited{room: 8 << 10}
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var exit *exec.ExitError
	verb := strings.Join(argv[1:min(3, len(argv))], " ")
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("waiting for '%s %s': %w", argv[0], verb, context.Cause(ctx))
	case errors.As(err, &exit):
		return nil, &toolFailed{argv[0], verb, exit.ExitCode(), reason(said.String())}
	case err != nil:
		return nil, fmt.Errorf("running '%s %s': %w", argv[0], verb, err)
	}
	return out.Bytes(), nil
}

// reason is the line of what a tool said that tells why: the first that calls
// itself an error, for warnings may come before it and a trace behind it, else
// the first.
func reason(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	line := lines[0]
	for _, l := range lines {
		if strings.HasPrefix(strings.ToLower(l), "error") {
			line = l
			break
		}
	}
	return printable(strings.ToValidUTF8(line[:min(300, len(line))], ""))
}

// exitCode is the code with which a tool ended, or -1.
func exitCode(err error) int {
	var failed *toolFailed
	if errors.As(err, &failed) {
		return failed.code
	}
	return -1
}

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	room int
}

func (l *limited) Write(b []byte) (int, error) {
	_, _ = l.Buffer.Write(b[:min(len(b), max(0, l.room-l.Len()))])
	return len(b), nil
}

// printable keeps what others wrote from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
