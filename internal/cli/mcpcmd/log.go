package mcpcmd

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// logFlags say where a command that runs for long writes what happens.
type logFlags struct {
	json bool
}

func (f *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.json, "log-json", false, "write the log as JSON, an object on each line")
}

// open returns the log on standard error: warnings, and all there is with
// --verbose.
func (f *logFlags) open(s *streams.Streams) *slog.Logger {
	level := slog.LevelWarn
	switch {
	case s.Quiet:
		level = slog.LevelError
	case s.Verbose:
		level = slog.LevelDebug
	}
	return slog.New(f.handler(s.Err, level))
}

func (f *logFlags) handler(w io.Writer, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if f.json {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}
