// Package democmd is the main job in one command, with nothing installed: a
// strict server, real processes, and a table of what they did.
package democmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/spendoncetest"
)

// Command returns "spendonce demo". // arm makes a signal end its context.
func Command(s *streams.Streams, arm func()) *cobra.Command {
	var naive, asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the promise kept: 64 processes, a crash, a full disk, one session",
		Long: `Start a strict authorization server on this machine, sign in through its form, and
let many real processes share the session: all at once with an expired token, all
at once after a 401, over a killed process and over a full disk. The command fails
if anything is not as it must be.

With --naive, let clients without a lock do the same, and see what becomes of the
session.`,
		Example: "  spendonce demo\n  spendonce demo --naive",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			arm()
			return run(cmd.Context(), s, naive, asJSON)
		},
	}
	cmd.Flags().BoolVar(&naive, "naive", false, "what clients without a lock do to the same session")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(naiveClientCommand())
	return cmd
}

// scene is one row of the table.
type scene struct {
	Asked    string  `json:"asked"`
	Happened string  `json:"happened"`
	Seconds  float64 `json:"seconds"`
	OK       bool    `json:"ok"`
	Skipped  bool    `json:"skipped,omitempty"`
}

// stage is what the scenes are played on.
type stage struct {
	s      *streams.Streams
	server *spendoncetest.TokenServer
	self   string
	state  string // state directory
	dir    string // everything of this run
	scenes []scene
	asJSON bool
}

func run(ctx context.Context, s *streams.Streams, naive, asJSON bool) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "spendonce-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	st := &stage{s: s, server: server, self: self, dir: dir, state: filepath.Join(dir, "state"), asJSON: asJSON}

	if !asJSON {
		fmt.Fprintf(s.Out, "a strict server at %s: every refresh token once, reuse ends the session\n\n", server.URL())
		fmt.Fprintf(s.Out, "%-52s %-52s %8s\n", "asked", "happened", "took")
	}
	scenes := []func(context.Context) scene{st.signIn, st.storm, st.rejected, st.crash, st.fullDisk}
	if naive {
		scenes = []func(context.Context) scene{st.signIn, st.naiveStorm}
	}
	failed := false
	for _, play := range scenes {
		start := time.Now()
		got := play(ctx)
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		got.Seconds = time.Since(start).Seconds()
		failed = failed || !got.OK
		st.show(got)
		if got.Asked == "" || !got.OK && len(st.scenes) == 1 {
			break // without a session there is nothing more to see
		}
	}
	if asJSON {
		err := json.NewEncoder(s.Out).Encode(struct {
			Version int     `json:"version"`
			OK      bool    `json:"ok"`
			Scenes  []scene `json:"scenes"`
		}{1, !failed, st.scenes})
		if err != nil {
			return err
		}
	}
	if failed {
		return errors.New("the demo did not go as it must: please report what it printed")
	}
	return nil
}

func (st *stage) show(got scene) {
	st.scenes = append(st.scenes, got)
	if st.asJSON {
		return
	}
	word := "ok"
	switch {
	case got.Skipped:
		word = "not shown"
	case !got.OK:
		word = "WRONG"
	}
	fmt.Fprintf(st.s.Out, "%-52s %-52s %6.2f s  %s\n", got.Asked, got.Happened, got.Seconds, word)
}

// outcome fills a scene in: it is as it must be if every fact holds.
func outcome(asked string, facts ...fact) scene {
	got := scene{Asked: asked, OK: true}
	var words []string
	for _, f := range facts {
		words = append(words, f.words)
		got.OK = got.OK && f.holds
	}
	got.Happened = strings.Join(words, ", ")
	return got
}

type fact struct {
	words string
	holds bool
}

// counted is a number and what it must be.
func counted(n, want int, singular, plural string) fact {
	if n == 1 {
		return fact{"1 " + singular, want == 1}
	}
	return fact{fmt.Sprintf("%d %s", n, plural), n == want}
}

func wrong(asked string, err error) scene {
	return scene{Asked: asked, Happened: err.Error()}
}
