//go:build !linux

package democmd

import (
	"context"

	"github.com/spf13/cobra"
)

// brokerScenes are none here; one row says so.
func brokerScenes(*stage) (scenes []play, end func()) {
	return []play{func(context.Context) scene {
		return scene{Asked: "tokens that work once, for one agent session", Happened: "the lease broker runs on Linux only", OK: true, Skipped: true}
	}}, func() {}
}

// hiddenCommands are what the demo's own processes run.
func hiddenCommands() []*cobra.Command { return []*cobra.Command{naiveClientCommand()} }
