package credcmd

import (
	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/spendoncetest"
)

func (a *App) conformanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "conformance",
		Short:   "Kits that judge programs of this kind, ours and others",
		Example: "  spendonce conformance token-server --lifetime 2s --latency 1s",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.tokenServerCommand())
	return cmd
}

func (a *App) tokenServerCommand() *cobra.Command {
	var cfg spendoncetest.TokenServerConfig
	cmd := &cobra.Command{
		Use:   "token-server",
		Short: "Run a strict authorization server on this machine",
		Long: `Run a strict authorization server on a loopback address: every refresh token once,
reuse revokes the family, both dialects, discovery, a login form, scripted
answers, and counters of exchanges, double spends and revoked families.

The first line on standard output is JSON with all addresses and the secret of
the control API; the last one, after SIGTERM or SIGINT, holds the counters.`,
		Example: `  spendonce conformance token-server
  spendonce conformance token-server --reuse-grace 30s --lifetime 5s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.Arm()
			return spendoncetest.Serve(cmd.Context(), cfg, a.Streams.Out)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "the loopback address to listen on")
	flags.StringVar(&cfg.IssuerPath, "issuer-path", "", "a path behind the server's address that makes the issuer")
	flags.DurationVar(&cfg.Lifetime, "lifetime", 0, "life of access tokens (default 1h)")
	flags.DurationVar(&cfg.ReuseGrace, "reuse-grace", 0, "for how long a spent refresh token gets the same pair again")
	flags.DurationVar(&cfg.Latency, "latency", 0, "delay of token answers, after the rotation")
	flags.DurationVar(&cfg.LatencyBefore, "latency-before", 0, "delay of token requests, before they are processed")
	flags.BoolVar(&cfg.NoRotation, "no-rotation", false, "keep refresh tokens valid")
	flags.BoolVar(&cfg.NoFamilyRevocation, "no-family-revocation", false, "only refuse a spent refresh token")
	flags.BoolVar(&cfg.RequireClientSecret, "require-client-secret", false, "every client must authenticate")
	flags.BoolVar(&cfg.JWTAccessTokens, "jwt", false, "access tokens are JWTs")
	flags.BoolVar(&cfg.RFC3339Expiry, "rfc3339-expiry", false, "hypaware dialect: expires_at as RFC 3339")
	flags.BoolVar(&cfg.RejectResource, "reject-resource", false, "the resource refuses every token")
	flags.StringVar(&cfg.RequiredScope, "required-scope", "", "scopes without which the resource answers 403 insufficient_scope")
	flags.StringVar(&cfg.ChallengeScope, "challenge-scope", "", "the scope that the resource's 401 asks for")
	flags.StringVar(&cfg.RequireResource, "require-resource", "", "the resource that every request must name; /path: one of this server")
	flags.BoolVar(&cfg.ClientIDMetadata, "client-id-metadata", false, "take https URLs, and http ones of loopback addresses, as client ids")
	flags.BoolVar(&cfg.NoRegistration, "no-registration", false, "offer no dynamic registration")
	flags.DurationVar(&cfg.DeviceInterval, "device-interval", 0, "how often a device may ask (default 5s)")
	flags.StringVar(&cfg.Org, "org", "", "hypaware dialect: the org of answers")
	return cmd
}
