//go:build linux

package leasecmd

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/conformance"
	"github.com/spendonce/spendonce/lease"
)

// actorCommand starts a process that the kit directs; nobody types it.
const actorCommand = "broker-actor"

// ConformanceCommands returns what stands below "spendonce conformance" of
// this half.
func (a *App) ConformanceCommands() []*cobra.Command {
	return []*cobra.Command{a.judgeCommand(), {
		Use:    actorCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return conformance.Act(os.Stdin, os.Stdout) },
	}}
}

func (a *App) judgeCommand() *cobra.Command {
	var socket string
	var asJSON, quick bool
	cmd := &cobra.Command{
		Use:   "broker --socket PATH",
		Short: "Judge any lease broker by what its socket does",
		Long: `Speak to a running broker byte by byte, with processes that stand where the protocol
needs them (an anchor, its descendants, an orphan, a stranger, one that was handed a
connection), and say of each rule of docs/protocol.md that can be seen from outside
whether it held. The broker may be ours or any other; nobody else should use it
meanwhile.

The exit code is 1 if a rule was broken.`,
		Example: "  spendonce conformance broker --socket /run/user/1000/spendonce/broker.sock",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket == "" {
				return streams.Usage("say which broker with --socket PATH")
			}
			a.socket = socket
			path, err := a.socketPath()
			if err != nil {
				return err
			}
			conn, err := lease.Dial(path)
			if err != nil {
				return asked(err)
			}
			_ = conn.Close()
			program, err := self()
			if err != nil {
				return err
			}
			a.Arm()
			progress := streams.NewProgress(a.Streams)
			report, err := conformance.Run(cmd.Context(), conformance.Config{
				Socket: path, Actor: []string{program, "conformance", actorCommand}, Quick: quick,
				Progress: func(done, total int, name string) {
					if name != "" {
						name = fmt.Sprintf("%d of %d: %s", done+1, total, name)
					}
					progress.Stage(name)
				},
			})
			progress.End()
			if err != nil {
				return err
			}
			broken := report.Broken()
			if asJSON {
				err = a.printJSON(struct {
					Version int                `json:"version"`
					OK      bool               `json:"ok"`
					Results conformance.Report `json:"results"`
				}{1, len(broken) == 0, report})
			} else {
				report.Table(a.Streams.Out)
			}
			if err == nil && len(broken) > 0 {
				err = errors.New("the broker does not keep the protocol: the lines above say where")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "the broker's socket")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&quick, "quick", false, "leave out what waits for deadlines or crowds")
	return cmd
}
