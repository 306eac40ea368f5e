// Package doctorcmd holds the commands that look at everything and change
// nothing: they take no lock, write no byte and ask no server. Of the lease
// broker they ask how it is, if it runs; they start none.
package doctorcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// app is what the two commands share.
type app struct {
	*credcmd.App
	version func() string
}

// Commands returns the commands. version names this build.
func Commands(cred *credcmd.App, version func() string) []*cobra.Command {
	a := &app{cred, version}
	return []*cobra.Command{a.statusCommand(), a.doctorCommand()}
}

// look sees everything once.
func (a *app) look(ctx context.Context) scene {
	var s scene
	var err error
	s.config, s.configErr = a.Config()
	cfg := a.StoreConfig()
	cfg.Warn, cfg.Stage = nil, nil // what is wrong is a finding
	if s.config != nil {
		cfg.StaleAfter = time.Duration(s.config.Lock.StaleAfter)
	}
	if s.config != nil && a.OpenShared != nil {
		if cfg.Shared, err = a.OpenShared(s.config); err != nil && s.configErr == nil {
			s.configErr = err
		}
	}
	store, err := credstore.Open(cfg)
	if err != nil {
		s.openErr = err
	} else {
		s.report = store.Inspect(a.Settings)
	}
	s.around = look(s.report, a.version())
	s.around.identity = lookAtIdentity(s.config, s.report)
	s.broker = lookAtBroker(ctx, s.report.State.Path)
	return s
}

type doctorOutput struct {
	Version int     `json:"version"`
	Checks  []check `json:"checks"`
	Summary summary `json:"summary"`
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong, and the next step",
		Long: `Look at the state directory, the store, locks, sessions, the configuration, the
lease broker and their surroundings, and say what is wrong and what to do about it.
Nothing is changed, no lock is taken and no authorization server is asked; a broker
that runs is asked for its status, and none is started. Where targets are kept in etcd,
its members are asked how they are, and what is kept there is read.

A finding is an error if something fails now until its next step is done, a
warning if it is a risk or will fail later, and a note if it is worth knowing.
The next step stands behind an arrow. With --verbose what is as it should be is
printed too. The exit status is 1 if
there is an error, else 0.`,
		Example: "  spendonce doctor\n  spendonce doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scene := a.look(cmd.Context())
			checks := judge(scene)
			sum := summarize(checks, len(scene.targets()))
			var err error
			if asJSON {
				err = json.NewEncoder(a.Streams.Out).Encode(doctorOutput{1, checks, sum})
			} else {
				err = a.printChecks(checks, sum)
			}
			if err == nil && sum.Errors > 0 {
				return &streams.Exit{Code: 1}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printChecks prints the findings by place, one a line, and their sum.
func (a *app) printChecks(checks []check, sum summary) error {
	last := ""
	for _, c := range checks {
		if c.Level == fine && !a.Streams.Verbose {
			continue
		}
		if place := c.place(); place != last {
			if _, err := fmt.Fprintln(a.Streams.Out, credcmd.Printable(place)); err != nil {
				return err
			}
			last = place
		}
		if _, err := fmt.Fprintf(a.Streams.Out, "  %-8s %s\n", c.Level, c.sentence()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(a.Streams.Out, sum)
	return err
}

// sentence is the finding in one line.
func (c check) sentence() string {
	s := c.Text
	if c.Next != "" {
		s += " -> " + c.Next
	}
	return credcmd.Printable(s)
}
