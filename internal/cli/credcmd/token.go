package credcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

func (a *App) tokenCommand() *cobra.Command {
	var (
		minValid time.Duration
		refresh  bool
		rejected string
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "token TARGET",
		Short: "Print a valid access token, refreshing the session if needed",
		Long: `Print a valid access token of the target.

A token that is still fresh is printed without asking anybody. An expired one is
exchanged by exactly one process, however many ask at once; the others wait and
print the same new token.`,
		Example: `  curl -H "Authorization: Bearer $(spendonce token example)" https://api.example.com
  spendonce token example --rejected - < token-that-got-401`,
		Args:              TargetArg("say"),
		ValidArgsFunction: a.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := credstore.Request{MinValid: minValid, Refresh: refresh}
			if minValid < 0 {
				return streams.Usage("--min-valid must not be negative")
			}
			if rejected != "" {
				if refresh {
					return streams.Usage("--refresh and --rejected exclude each other")
				}
				var err error
				if rejected == "-" {
					a.Arm() // a person may be at the other side
				}
				if req.Rejected, err = a.ReadSecret(cmd.Context(), "--rejected", rejected); err != nil {
					return err
				}
			}
			return a.Token(cmd.Context(), args[0], req, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&minValid, "min-valid", 0, "refresh if less than this is left, for example 5m")
	flags.BoolVar(&refresh, "refresh", false, "refresh now, as if the stored token had been rejected")
	flags.StringVar(&rejected, "rejected", "", "a `FILE` (or - for standard input) with a token that the server refused")
	flags.BoolVar(&asJSON, "json", false, "print JSON: version, target, access_token, expires_at, kind")
	return cmd
}

// Token prints a token that meets the request.
func (a *App) Token(ctx context.Context, target string, req credstore.Request, asJSON bool) error {
	s, err := a.Open()
	if err != nil {
		return err
	}
	defer CloseStore(s)
	source, err := a.Source(s, target)
	if err != nil {
		return err
	}
	t, err := source.Get(ctx, req)
	a.Progress.End()
	if err != nil && !errors.Is(err, credstore.ErrNotSaved) {
		return err
	}
	return errors.Join(err, a.printToken(target, t, asJSON))
}

type tokenOutput struct {
	Version     int        `json:"version"`
	Target      string     `json:"target"`
	AccessToken string     `json:"access_token"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Kind        string     `json:"kind"` // oidc, static or override
}

func (a *App) printToken(target string, t credstore.Token, asJSON bool) error {
	var err error
	if asJSON {
		out := tokenOutput{Version: 1, Target: target, AccessToken: t.AccessToken.Reveal(), Kind: string(t.Kind)}
		if t.Override {
			out.Kind = "override"
		}
		if !t.ExpiresAt.IsZero() {
			at := t.ExpiresAt.UTC()
			out.ExpiresAt = &at
		}
		err = json.NewEncoder(a.Streams.Out).Encode(out)
	} else {
		_, err = fmt.Fprintln(a.Streams.Out, t.AccessToken.Reveal())
	}
	if err != nil {
		return fmt.Errorf("the token of %s is valid and could not be printed (%w): check where standard output goes", target, err)
	}
	return nil
}
