//go:build linux

package leasecmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/lease"
)

// inputLimit is more than any binding or token has.
const inputLimit = 8192

func (a *App) authCommand() *cobra.Command {
	cmd := &cobra.Command{
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
				return asked(err)
			}
			return a.printJSON(struct {
				OK         bool   `json:"ok"`
				SessionID  string `json:"session_id"`
				Generation uint64 `json:"runtime_generation"`
			}{true, session.ID.Reveal(), session.Generation})
		},
	}
	alwaysJSON(cmd)
	return cmd
}

// alwaysJSON lets a command that prints JSON in any case take the flag that
// others need for it.
func alwaysJSON(cmd *cobra.Command) {
	cmd.Flags().Bool("json", true, "print JSON, as without this flag")
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
				return asked(err)
			}
			if asJSON {
				return a.printJSON(struct {
					Version int    `json:"version"`
					Token   string `json:"token"`
				}{1, token.Reveal()})
			}
			if _, err = fmt.Fprintln(a.Streams.Out, token.Reveal()); err != nil {
				return fmt.Errorf("a token was minted and could not be printed: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: version, token")
	return cmd
}

func (a *App) consumeCommand() *cobra.Command {
	cmd := &cobra.Command{
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
				return asked(err)
			}
			if err := a.printJSON(binding); err != nil {
				return fmt.Errorf("the token is spent, and its binding could not be printed: %w", err)
			}
			return nil
		},
	}
	alwaysJSON(cmd)
	return cmd
}

// parseBinding reads a binding and names what is wrong with it; the broker,
// which judges it once more, only says that something is. What encoding/json
// would let pass (a name twice, a name in another case) is refused: a token
// must not be bound to something else than was meant.
func parseBinding(text []byte) (lease.Binding, error) {
	members, err := members(text)
	if err != nil {
		return lease.Binding{}, err
	}
	var b lease.Binding
	for _, n := range []struct {
		name  string
		to    *uint64
		least uint64
	}{
		{"compaction_epoch", &b.CompactionEpoch, 0},
		{"request_epoch", &b.RequestEpoch, 0},
		{"schema_version", &b.SchemaVersion, 1},
	} {
		digits, _ := members[n.name].(json.Number)
		value, err := strconv.ParseUint(digits.String(), 10, 64)
		if err != nil || value < n.least || value > lease.MaxInteger {
			return lease.Binding{}, streams.Usage("the binding needs %s, an integer from %d to %d", n.name, n.least, uint64(lease.MaxInteger))
		}
		*n.to = value
	}
	for _, h := range []struct {
		name string
		to   *string
	}{{"h_source", &b.HSource}, {"h_payload", &b.HPayload}} {
		value, _ := members[h.name].(string)
		if !digest(value) {
			return lease.Binding{}, streams.Usage("the binding needs %s, a string of 1 to 256 printable ASCII characters without a space", h.name)
		}
		*h.to = value
	}
	return b, nil
}

// members reads one flat JSON object.
func members(text []byte) (map[string]any, error) {
	noObject := streams.Usage("the binding on standard input is no JSON object of its five members: see 'spendonce lease mint --help'")
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, noObject
	}
	found := map[string]any{}
	for dec.More() {
		name, err := dec.Token()
		key, ok := name.(string)
		if err != nil || !ok {
			return nil, noObject
		}
		if !slices.Contains([]string{"compaction_epoch", "request_epoch", "h_source", "h_payload", "schema_version"}, key) {
			return nil, streams.Usage("the binding has a member %q, which is none of its five", key)
		}
		if _, twice := found[key]; twice {
			return nil, streams.Usage("the binding has its member %q twice", key)
		}
		if found[key], err = dec.Token(); err != nil {
			return nil, noObject
		}
		if _, nested := found[key].(json.Delim); nested {
			return nil, streams.Usage("the binding's member %q is neither a number nor a string", key)
		}
	}
	if _, err := dec.Token(); err != nil { // its closing brace
		return nil, noObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, streams.Usage("there is more than one binding on standard input")
	}
	return found, nil
}

func digest(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != "" && len(s) <= 256
}
