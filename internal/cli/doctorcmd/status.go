package doctorcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/lockfile"
)

type statusOutput struct {
	Version  int            `json:"version"`
	StateDir string         `json:"state_dir"`
	Store    statusStore    `json:"store"`
	Targets  []statusTarget `json:"targets"`
	Locks    []statusLock   `json:"locks"`          // that are held, or whose file is there
	Etcd     *statusEtcd    `json:"etcd,omitempty"` // absent where no target is kept there
	Doctor   statusDoctor   `json:"doctor"`
	Broker   *statusBroker  `json:"broker,omitempty"` // absent where there is none, as on macOS
}

type statusStore struct {
	Path    string `json:"path"`
	Exists  bool   `json:"exists"`
	Link    string `json:"link,omitempty"` // where it leads
	Records int    `json:"records"`
	Key     string `json:"key,omitempty"` // kind of the key it is encrypted with; absent: in plain
	Error   string `json:"error,omitempty"`
}

type statusTarget struct {
	Target      string      `json:"target"`
	Kind        string      `json:"kind"`
	State       string      `json:"state"`
	Account     string      `json:"account,omitempty"`
	ExpiresAt   *time.Time  `json:"expires_at,omitempty"`
	LastRefresh *lastResult `json:"last_refresh,omitempty"`
	NextTry     *time.Time  `json:"next_try,omitempty"` // nobody refreshes before
	Override    string      `json:"override,omitempty"`
}

type lastResult struct {
	Time   time.Time       `json:"time"`
	Class  credstore.Class `json:"class"`
	Status int             `json:"status,omitempty"`
	Code   string          `json:"code,omitempty"`
}

type statusLock struct {
	Target  string     `json:"target,omitempty"` // absent: the store lock
	Held    bool       `json:"held"`
	Since   *time.Time `json:"since,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Process string     `json:"process,omitempty"`
	Stopped bool       `json:"stopped,omitempty"`
	Host    string     `json:"host,omitempty"`   // of a lock in etcd: its holder's
	LeftS   int64      `json:"left_s,omitempty"` // of a lock in etcd: until it ends, unless it is renewed
}

type statusDoctor struct {
	summary
	Worst *check `json:"worst,omitempty"`
}

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the store, its targets and the lease broker on one screen",
		Long: `Show where the store is, what its targets are good for, when they were last
refreshed, who holds a lock, and the worst of what 'spendonce doctor' finds; then
whether a lease broker runs, with its sessions, tokens and last refusal.
Nothing is changed, no lock is taken, no authorization server is asked and no broker
started. The
exit status is 0 whatever is found.`,
		Example: "  spendonce status\n  spendonce status --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := a.look(cmd.Context())
			if s.openErr != nil {
				return s.openErr
			}
			out := statusOf(s)
			if asJSON {
				return json.NewEncoder(a.Streams.Out).Encode(out)
			}
			return a.printStatus(out, s.report.Time)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func statusOf(s scene) statusOutput {
	r := s.report
	out := statusOutput{
		Version: 1, StateDir: r.State.Path, Targets: []statusTarget{}, Locks: []statusLock{},
		Store:  statusStore{Path: r.Path, Exists: r.Exists, Link: r.Link, Records: r.Records, Key: r.Seal.Kind},
		Broker: s.broker.status(),
	}
	if r.StoreErr != nil {
		out.Store.Error = r.StoreErr.Error()
	}
	out.addLock("", r.Lock)
	for _, t := range r.Targets {
		out.addLock(t.Target, t.Lock)
		out.addSharedLock(t)
	}
	out.Etcd = statusOfEtcd(r.Shared)
	mine := s.targets()
	for _, t := range mine {
		out.Targets = append(out.Targets, statusTargetOf(t, r.Time))
	}
	checks := judge(s)
	out.Doctor.summary = summarize(checks, len(mine))
	for i, c := range checks {
		if worst := out.Doctor.Worst; c.Level.rank() >= warning.rank() && (worst == nil || c.Level.rank() > worst.Level.rank()) {
			out.Doctor.Worst = &checks[i]
		}
	}
	return out
}

func (out *statusOutput) addLock(target string, i lockfile.Inspection) {
	if !i.Held && i.Origin == lockfile.NoFile {
		return
	}
	l := statusLock{Target: target, Held: i.Held, PID: i.Holder.PID, Process: i.Holder.Name, Stopped: i.Holder.Stopped}
	if i.Origin != lockfile.NoFile {
		l.Since = moment(i.Since)
	}
	out.Locks = append(out.Locks, l)
}

func statusTargetOf(t credstore.TargetReport, now time.Time) statusTarget {
	st := statusTarget{Target: t.Target, Kind: string(t.Kind), State: "not signed in", Account: t.Email, ExpiresAt: moment(t.ExpiresAt), NextTry: moment(t.NotBefore)}
	if t.Stored || t.Shared != nil && t.Err != nil {
		st.State = credcmd.State(t.Entry, now)
	}
	if st.Account == "" {
		st.Account = t.Subject
	}
	if o := t.LastOutcome; o != nil {
		st.LastRefresh = &lastResult{o.Time.UTC(), o.Class, o.Status, o.Code}
	}
	if t.Override {
		st.Override = credstore.OverrideVariable(t.Target)
	}
	return st
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (a *app) printStatus(out statusOutput, now time.Time) error {
	w := tabwriter.NewWriter(a.Streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "state\t%s\n", credcmd.Printable(out.StateDir))
	fmt.Fprintf(w, "store\t%s\n", credcmd.Printable(out.Store.String()))
	for _, l := range out.Locks {
		fmt.Fprintf(w, "lock\t%s\n", credcmd.Printable(l.describe(now)))
	}
	if out.Etcd != nil {
		fmt.Fprintf(w, "etcd\t%s\n", credcmd.Printable(out.Etcd.String()))
	}
	if out.Broker != nil {
		fmt.Fprintf(w, "broker\t%s\n", credcmd.Printable(out.Broker.String()))
		if r := out.Broker.LastRefusal; r != nil {
			fmt.Fprintf(w, "refused\t%s\n", credcmd.Printable(r.String()))
		}
	}
	fmt.Fprintf(w, "doctor\t%s\n", credcmd.Printable(out.Doctor.String()))
	if err := errors.Join(w.Flush(), a.printTargets(out.Targets)); err != nil || out.Broker == nil {
		return err
	}
	return out.Broker.printSessions(a.Streams.Out)
}

func (a *app) printTargets(targets []statusTarget) error {
	if len(targets) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(a.Streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nTARGET\tKIND\tACCOUNT\tEXPIRES\tLAST REFRESH\tNEXT TRY\tSTATE")
	for _, t := range targets {
		state := t.State
		if t.Override != "" {
			state += ", overridden by " + t.Override
		}
		last := "-"
		if t.LastRefresh != nil {
			last = t.LastRefresh.Time.Format(time.RFC3339)
			if t.LastRefresh.Class != credstore.ClassSuccess {
				last += " " + string(t.LastRefresh.Class)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", credcmd.Printable(t.Target), orDash(t.Kind), orDash(credcmd.Printable(t.Account)),
			stamp(t.ExpiresAt), last, stamp(t.NextTry), state)
	}
	return w.Flush()
}

func (s statusStore) String() string {
	switch {
	case s.Error != "":
		return s.Error
	case !s.Exists:
		return "nothing is stored yet"
	}
	text := many(s.Records, "record")
	if s.Key != "" {
		text += fmt.Sprintf(", encrypted (%s)", s.Key)
	}
	if s.Link != "" {
		text += ", at " + s.Link
	}
	return text
}

func (l statusLock) describe(now time.Time) string {
	what := "of the store"
	if l.Target != "" {
		what = "of " + l.Target
	}
	if l.Host != "" {
		return fmt.Sprintf("%s in etcd, held by process %d on %s, since %s, for %ds more", what, l.PID, l.Host, at(now, *l.Since), l.LeftS)
	}
	if !l.Held {
		return fmt.Sprintf("%s, a file of %s whose maker is dead or unknown", what, at(now, *l.Since))
	}
	what += ", held by " + holder(lockfile.Process{PID: l.PID, Name: l.Process})
	if l.Stopped {
		what += ", which is stopped"
	}
	if l.Since != nil {
		what += ", since " + at(now, *l.Since)
	}
	return what
}

func (d statusDoctor) String() string {
	if d.Worst == nil {
		return d.summary.String()
	}
	where := ""
	if d.Worst.Target != "" {
		where = d.Worst.Target + ": "
	}
	return fmt.Sprintf("%s; the worst: %s%s; 'spendonce doctor' says more", d.summary, where, d.Worst.Text)
}

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
