package credcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

type listOutput struct {
	Version int          `json:"version"`
	Targets []listTarget `json:"targets"`
}

type listTarget struct {
	Target    string     `json:"target"`
	Kind      string     `json:"kind"`  // oidc, static, unknown or "" if only configured
	State     string     `json:"state"` // see State
	Account   string     `json:"account,omitempty"`
	URL       string     `json:"url,omitempty"`
	Issuer    string     `json:"issuer,omitempty"`
	Scope     []string   `json:"scope,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	NotBefore *time.Time `json:"not_before,omitempty"`
	Override  string     `json:"override,omitempty"` // the variable that replaces the stored token
	Error     string     `json:"error,omitempty"`    // why what is stored cannot be read
}

func (a *App) listCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the targets with account, expiry and state",
		Long: `List the targets with account, expiry of the access token, and state. No token is
printed, no lock is taken and no authorization server is asked; what is kept in etcd is
read there. --json has the exact times, the URL, issuer and scope of each, and why one
cannot be read.`,
		Example: "  spendonce list\n  spendonce list --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := a.Open()
			if err != nil {
				return err
			}
			entries, err := s.List()
			if err != nil {
				return err
			}
			targets := a.listed(entries, time.Now())
			if asJSON {
				return json.NewEncoder(a.Streams.Out).Encode(listOutput{1, targets})
			}
			return a.printList(targets)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *App) listed(entries []credstore.Entry, now time.Time) []listTarget {
	targets := []listTarget{}
	for _, e := range entries {
		t := listTarget{Target: e.Target, Kind: string(e.Kind), State: State(e, now), URL: e.URL, Issuer: e.Issuer, Scope: e.Scope, Account: e.Email}
		if t.Account == "" {
			t.Account = e.Subject
		}
		if !e.ExpiresAt.IsZero() {
			at := e.ExpiresAt.UTC()
			t.ExpiresAt = &at
		}
		if !e.NotBefore.IsZero() {
			at := e.NotBefore.UTC()
			t.NotBefore = &at
		}
		if e.Err != nil {
			t.Error = e.Err.Error()
		}
		if e.Override {
			t.Override = credstore.OverrideVariable(e.Target)
		}
		targets = append(targets, t)
	}
	c, err := a.Config()
	if err != nil {
		a.Streams.Warn(err.Error())
		return targets
	}
	for name, t := range c.Targets {
		if !slices.ContainsFunc(entries, func(e credstore.Entry) bool { return e.Target == name }) {
			targets = append(targets, listTarget{Target: name, State: "not signed in", URL: t.URL, Issuer: t.Issuer})
		}
	}
	slices.SortFunc(targets, func(x, y listTarget) int { return strings.Compare(x.Target, y.Target) })
	return targets
}

// State says in a word or two what a target is good for now.
func State(e credstore.Entry, now time.Time) string {
	switch {
	case errors.Is(e.Err, credstore.ErrShared):
		return "not reached"
	case e.Err != nil && e.Kind == "":
		return "unreadable"
	case e.Err != nil:
		return "session file unreadable"
	case !e.Usable:
		return "not ours"
	case e.Kind == credstore.KindStatic:
		return "static"
	case e.LoginRequired, !e.Refreshable && !e.HasToken:
		return "login required"
	case !e.HasToken:
		return "no token yet, refreshed on use"
	case e.ExpiresAt.IsZero():
		return "valid, expiry unknown"
	case e.ExpiresAt.After(now):
		return "valid"
	case !e.Refreshable:
		return "login required"
	case !e.NotBefore.IsZero():
		return "waiting before the next try"
	default:
		return "expired, refreshed on use"
	}
}

func (a *App) printList(targets []listTarget) error {
	if len(targets) == 0 {
		fmt.Fprintln(a.Streams.Err, "no targets yet: sign in with 'spendonce login NAME --url URL'")
		return nil
	}
	w := tabwriter.NewWriter(a.Streams.Out, 0, 0, 2, ' ', 0)
	for _, t := range targets {
		if t.Error != "" {
			a.Streams.Warn(t.Error)
			break // one reason, such as that etcd is away, is that of all
		}
	}
	fmt.Fprintln(w, "TARGET\tKIND\tACCOUNT\tEXPIRES\tSTATE")
	for _, t := range targets {
		expires := "-"
		if t.ExpiresAt != nil {
			expires = relative(*t.ExpiresAt, time.Now())
		}
		state := t.State
		if t.Override != "" {
			state += ", overridden by " + t.Override
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", Printable(t.Target), orDash(t.Kind), orDash(Printable(t.Account)), expires, state)
	}
	return w.Flush()
}

// relative says how far at is from now, in the largest unit that fits, or two
// where that is hours or days: a person looks whether it is soon.
func relative(at, now time.Time) string {
	d := at.Sub(now)
	past := d < 0
	d = d.Abs()
	var words string
	switch hours := int(d.Hours()); {
	case d < time.Minute:
		words = fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		words = fmt.Sprintf("%dm", int(d.Minutes()))
	case hours < 48:
		words = fmt.Sprintf("%dh%02dm", hours, int(d.Minutes())%60)
	default:
		words = fmt.Sprintf("%dd", hours/24)
	}
	if past {
		return words + " ago"
	}
	return "in " + words
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Printable is one line of [streams.Printable].
func Printable(s string) string {
	return strings.ReplaceAll(streams.Printable(s), "\n", "?")
}
