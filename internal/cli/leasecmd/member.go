//go:build linux

package leasecmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/lease"
)

// inputLimit is more than any binding or token has.
const inputLimit = 8192

func (a *App) authCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "auth",
		Short: "Prove that this process belongs to the session of its environment",
		Long: `Ask the broker whether this process descends from the anchor of the session that
SPENDONCE_SESSION_ID and SPENDONCE_GENERATION name, and print its answer as JSON.
Nothing is changed.`,
		Example: "  spendonce lease run -- spendonce lease auth",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, session, err := a.member()
			if err != nil {
				return err
			}
			if err := client.Authenticate(cmd.Context(), session); err != nil {
				return err
			}
			return a.printJSON(struct {
				OK         bool   `json:"ok"`
				SessionID  string `json:"session_id"`
				Generation uint64 `json:"runtime_generation"`
			}{true, session.ID.Reveal(), session.Generation})
		},
	}
}

func (a *App) mintCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "mint",
		Short: "Mint a token for the binding on standard input",
		Long: `Read a binding, a JSON object, from standard input and print a new token that works
once, in the session and generation of the environment. When it is printed it is on
the broker's disk.`,
		Example: `  echo '{"compaction_epoch":0,"request_epoch":1,"h_source":"sha256:a1","h_payload":"sha256:b2","schema_version":1}' |
    spendonce lease mint`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, session, err := a.member()
			if err != nil {
				return err
			}
			in, err := a.input("binding", inputLimit)
			if err != nil {
				return err
			}
			binding, err := parseBinding(in)
			if err != nil {
				return err
			}
			token, err := client.Mint(cmd.Context(), session, binding)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(struct {
					Version int    `json:"version"`
					Token   string `json:"token"`
				}{1, token.Reveal()})
			}
			_, err = fmt.Fprintln(a.Streams.Out, token.Reveal())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *App) consumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "consume",
		Short: "Spend the token on standard input and print its binding",
		Long: `Read a token from standard input, spend it, and print the binding it was minted for
as JSON. Of all who try, at any time, one succeeds; the others end with exit code 9
and TOKEN_REPLAY. If the broker's answer is lost, the exit code is 10, and the token
must be taken as spent.`,
		Example: `  spendonce lease consume <token-file`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, session, err := a.member()
			if err != nil {
				return err
			}
			in, err := a.input("token", inputLimit)
			if err != nil {
				return err
			}
			binding, err := client.Consume(cmd.Context(), session, lease.NewSecret(string(in)))
			if err != nil {
				return err
			}
			return a.printJSON(binding)
		},
	}
}

// parseBinding reads a binding and names what is wrong with it. The broker
// judges the values once more; it only says that one is wrong.
func parseBinding(text []byte) (lease.Binding, error) {
	var in struct {
		CompactionEpoch *uint64 `json:"compaction_epoch"`
		RequestEpoch    *uint64 `json:"request_epoch"`
		HSource         *string `json:"h_source"`
		HPayload        *string `json:"h_payload"`
		SchemaVersion   *uint64 `json:"schema_version"`
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return lease.Binding{}, streams.Usage("the binding's %s has a wrong type or is out of range", kind.Field)
		}
		return lease.Binding{}, streams.Usage("the binding on standard input is no JSON object of its five members: see 'spendonce lease mint --help'")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return lease.Binding{}, streams.Usage("there is more than one binding on standard input")
	}
	var b lease.Binding
	for _, n := range []struct {
		name  string
		value *uint64
		to    *uint64
		least uint64
	}{
		{"compaction_epoch", in.CompactionEpoch, &b.CompactionEpoch, 0},
		{"request_epoch", in.RequestEpoch, &b.RequestEpoch, 0},
		{"schema_version", in.SchemaVersion, &b.SchemaVersion, 1},
	} {
		if n.value == nil || *n.value < n.least || *n.value > lease.MaxInteger {
			return lease.Binding{}, streams.Usage("the binding needs %s, an integer from %d to %d", n.name, n.least, uint64(lease.MaxInteger))
		}
		*n.to = *n.value
	}
	for _, h := range []struct {
		name  string
		value *string
		to    *string
	}{{"h_source", in.HSource, &b.HSource}, {"h_payload", in.HPayload, &b.HPayload}} {
		if h.value == nil || !digest(*h.value) {
			return lease.Binding{}, streams.Usage("the binding needs %s, 1 to 256 printable ASCII characters without a space", h.name)
		}
		*h.to = *h.value
	}
	return b, nil
}

func digest(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != "" && len(s) <= 256
}
