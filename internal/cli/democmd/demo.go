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

// Command returns "spendonce demo". arm makes a signal end its context.
func Command(s *streams.Streams, arm func()) *cobra.Command {
	var naive, asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the promise kept: 64 processes, a crash, a full disk, one session",
		Long: `Start a strict authorization server on this machine, sign in through its form, and
let many real processes share the session: all at once with an expired token, all
at once after a 401, over a killed process and over a full disk.

On Linux, start a lease broker too, run an agent as the anchor of a session, and let
its processes consume tokens: twice, 64 at once for the same one, and over a killed
broker. A stranger who has the token tries as well, and a process that outlives the
agent.

Everything happens in a temporary directory and ends with the command, which fails if
anything is not as it must be.

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
	cmd.AddCommand(hiddenCommands()...)
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

// play plays one scene.
type play func(context.Context) scene

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
	dir, err := os.MkdirTemp(parent(), "spendonce-demo-")
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
	acts := [][]play{{st.signIn, st.storm, st.rejected, st.crash, st.fullDisk}}
	if naive {
		acts = [][]play{{st.signIn, st.naiveStorm}}
	} else {
		scenes, end := brokerScenes(st)
		defer end()
		acts = append(acts, scenes)
	}
	failed := false
	for _, act := range acts {
		for i, play := range act {
			start := time.Now()
			got := play(ctx)
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			got.Seconds = time.Since(start).Seconds()
			failed = failed || !got.OK
			st.show(got)
			if i == 0 && (!got.OK || got.Skipped) {
				break // the others build on it
			}
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

// parent is where temporary directories are made: the usual place, unless its
// name is so long that a socket's path in it would be too.
func parent() string {
	if dir := os.TempDir(); len(dir) > 60 {
		return "/tmp"
	}
	return ""
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
