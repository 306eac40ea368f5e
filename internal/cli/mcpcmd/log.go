package mcpcmd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/durable"
)

// logFlags say where a command that runs for long writes what happens.
type logFlags struct {
	json bool
	file string
}

func (f *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.json, "log-json", false, "write the log as JSON, an object on each line")
	cmd.Flags().StringVar(&f.file, "log-file", "", "write the log to `FILE`, too")
}

// open returns the log on standard error: warnings, and all there is with
// --verbose. A file gets what happens beside, and all there is likewise.
func (f *logFlags) open(s *streams.Streams) (*slog.Logger, error) {
	level, fileLevel := slog.LevelWarn, slog.LevelInfo
	switch {
	case s.Quiet:
		level = slog.LevelError
	case s.Verbose:
		level, fileLevel = slog.LevelDebug, slog.LevelDebug
	}
	stderr := f.handler(s.Err, level)
	if f.file == "" {
		return slog.New(stderr), nil
	}
	file, err := openLogFile(f.file)
	if err != nil {
		return nil, streams.Usage("--log-file: %w", err)
	}
	return slog.New(both{stderr, f.handler(file, fileLevel)}), nil
}

func (f *logFlags) handler(w io.Writer, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if f.json {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// both hands a record to two handlers.
type both [2]slog.Handler

func (b both) Enabled(ctx context.Context, level slog.Level) bool {
	return b[0].Enabled(ctx, level) || b[1].Enabled(ctx, level)
}

func (b both) Handle(ctx context.Context, r slog.Record) error {
	var errs [2]error
	for i, h := range b {
		if h.Enabled(ctx, r.Level) {
			errs[i] = h.Handle(ctx, r.Clone())
		}
	}
	return errors.Join(errs[:]...)
}

func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(attrs), b[1].WithAttrs(attrs)}
}

func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}

const (
	logFileLimit = 8 << 20
	// A process looks at the size of the file after so many bytes of its own.
	logFileLook = 64 << 10
)

// logFile appends to a file that other processes append to as well, and
// rotates it.
type logFile struct {
	dir  *durable.Dir
	name string

	mu      sync.Mutex
	written int // since the last look
}

func openLogFile(path string) (*logFile, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	dir, err := durable.Disk{}.OpenDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	l := &logFile{dir: dir, name: filepath.Base(path), written: logFileLook}
	if err := dir.Append(l.name, nil); err != nil {
		dir.Close()
		return nil, err
	}
	return l, nil
}

// Write appends a line. What cannot be written is lost: a log must not end
// what it tells about.
func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written += len(line); l.written >= logFileLook {
		l.written = 0
		l.rotate()
	}
	return len(line), l.dir.Append(l.name, line)
}

// rotate begins a new file if this one is long, unless another process is
// doing that.
func (l *logFile) rotate() {
	if id, err := l.dir.Stat(l.name); err != nil || id.Size <= logFileLimit {
		return
	}
	lock, err := l.dir.OpenKept(l.name + ".lock")
	if err != nil {
		return
	}
	defer lock.Close()
	if got, err := lock.TryLock(); err == nil && got {
		_ = l.dir.Rotate(l.name, logFileLimit) // the next one tries again
	}
}
