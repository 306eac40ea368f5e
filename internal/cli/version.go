package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// A release build sets these; else what the Go tool knows is used.
var version, revision string

func versionCommand(s *streams.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  spendonce version\n  spendonce version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !asJSON {
				_, err := fmt.Fprintln(s.Out, "spendonce", Version())
				return err
			}
			return json.NewEncoder(s.Out).Encode(thisBuild())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: version, spendonce, go, os, arch, revision, modified")
	return cmd
}

// build is what version --json prints.
type build struct {
	Version   int    `json:"version"` // of this form
	Spendonce string `json:"spendonce"`
	Go        string `json:"go"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	Revision  string `json:"revision,omitempty"`
	Modified  bool   `json:"modified,omitempty"` // the tree held changes that the revision has not
}

func thisBuild() build {
	b := build{Version: 1, Spendonce: Version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Revision: revision}
	if info, ok := debug.ReadBuildInfo(); ok && revision == "" {
		for _, set := range info.Settings {
			switch set.Key {
			case "vcs.revision":
				b.Revision = set.Value
			case "vcs.modified":
				b.Modified = set.Value == "true"
			}
		}
	}
	return b
}

// Version names this build.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "development"
}
