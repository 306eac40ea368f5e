//go:build linux

package leasecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/lease"
)

// patience bounds a question to a broker, which may be stopped.
const patience = 10 * time.Second

func (a *App) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the broker's sessions, counters and last refusals",
		Long: `Show what the running broker knows: its sessions with their anchors, how many tokens
wait, how many were spent, and the last refusals with reasons that their callers
were not told. Ids appear as the first eight hex digits of their SHA-256.`,
		Example: "  spendonce lease status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, err := a.socketPath()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			st, err := broker.QueryStatus(ctx, socket)
			if err != nil {
				return unanswered(err)
			}
			if asJSON {
				if st.Refusals == nil {
					st.Refusals = []broker.Refused{}
				}
				return a.printJSON(st)
			}
			var text bytes.Buffer
			printStatus(&text, st)
			_, err = text.WriteTo(a.Streams.Out)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// unanswered tells a broker that did not answer from one that says no.
func unanswered(err error) error {
	var network net.Error
	if errors.As(err, &network) {
		return &streams.Exit{Code: exitUnreachable, Err: err}
	}
	return err
}

func printStatus(out io.Writer, st broker.Status) {
	fmt.Fprintf(out, "broker     process %d, since %s\n", st.PID, st.Since.Local().Format(time.DateTime))
	fmt.Fprintf(out, "socket     %s\n", st.Socket)
	fmt.Fprintf(out, "state      %s\n", st.StateDir)
	fmt.Fprintf(out, "tokens     %d waiting, %d spent, %d revoked, of %d minted since the start\n", st.Pending, st.Spent, st.Revoked, st.Minted)
	fmt.Fprintf(out, "answers    %s\n", answers(st.Answers))
	if st.Latency.Of > 0 {
		fmt.Fprintf(out, "latency    median %s, 99 %% within %s, of the last %d\n", micros(st.Latency.MedianMicros), micros(st.Latency.P99Micros), st.Latency.Of)
	}
	if st.InDoubt {
		fmt.Fprintln(out, "disk       the last change could not be made durable: no token is minted or spent until one can")
	}
	if len(st.Sessions) == 0 {
		fmt.Fprintln(out, "\nno sessions")
	} else {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "\nSESSION\tANCHOR\tCOMMAND\tGENERATION\tWAITING")
		for _, s := range st.Sessions {
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\n", s.Session, s.AnchorPID, clean(s.Command), s.Generation, s.Pending)
		}
		_ = w.Flush()
	}
	if len(st.Refusals) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "\nREFUSED AT\tCODE\tACTION\tPROCESS\tREASON")
		for _, r := range st.Refusals {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", r.Time.Local().Format(time.TimeOnly), r.Code, r.Action, r.PID, clean(r.Reason))
		}
		_ = w.Flush()
	}
}

func answers(counts map[string]uint64) string {
	var words []string
	for code, n := range counts {
		words = append(words, fmt.Sprintf("%d %s", n, code))
	}
	slices.Sort(words)
	if len(words) == 0 {
		return "none yet"
	}
	return strings.Join(words, ", ")
}

func micros(n int64) string { return (time.Duration(n) * time.Microsecond).String() }

// clean shows a name that a process gave itself.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func (a *App) whyCommand() *cobra.Command {
	var asJSON, sessionStdin bool
	cmd := &cobra.Command{
		Use:   "why PID",
		Short: "Show why a process does or does not belong to a session",
		Long: `Walk up from a process as the broker does for a request, show every hop, and say of
each session whether the process belongs to it, or which hop failed.

With --session-stdin, ask for the one session whose id is on standard input.`,
		Example: "  spendonce lease why $$",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 {
				return streams.Usage("%q is not a process id", args[0])
			}
			var session lease.Secret
			if sessionStdin {
				in, err := a.input("session id", inputLimit)
				if err != nil {
					return err
				}
				session = lease.NewSecret(string(in))
			}
			socket, err := a.socketPath()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			why, err := broker.QueryWhy(ctx, socket, pid, session)
			if err != nil {
				return unanswered(err)
			}
			if asJSON {
				return a.printJSON(why)
			}
			var text bytes.Buffer
			printWhy(&text, why)
			_, err = text.WriteTo(a.Streams.Out)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&sessionStdin, "session-stdin", false, "ask for the session whose id is on standard input")
	return cmd
}

func printWhy(out io.Writer, why broker.Why) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tSTARTED\tCOMMAND")
	for _, h := range why.Chain {
		fmt.Fprintf(w, "%d\t%d\t%s\n", h.PID, h.StartTime, clean(h.Command))
	}
	_ = w.Flush()
	fmt.Fprintln(out)
	for _, s := range why.Answers {
		switch {
		case s.Code == "OK":
			fmt.Fprintf(out, "belongs to session %s, whose anchor is process %d\n", s.Session, s.AnchorPID)
		case s.Reason == "":
			fmt.Fprintf(out, "session %s: %s\n", s.Session, s.Code)
		default:
			fmt.Fprintf(out, "session %s, anchor %d: %s (%s)\n", s.Session, s.AnchorPID, s.Code, clean(s.Reason))
		}
	}
	if len(why.Answers) == 0 {
		fmt.Fprintln(out, "there are no sessions: 'spendonce lease run -- COMMAND' makes one")
	}
}
