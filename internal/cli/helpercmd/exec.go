package helpercmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/program"
	"github.com/spendonce/spendonce/internal/helper"
)

func (a *app) execCommand() *cobra.Command {
	var (
		o    output
		name string
	)
	cmd := &cobra.Command{
		Use:   "exec TARGET [--env NAME] [--min-valid D] -- COMMAND [ARG]...",
		Short: "Run a command with a token in its environment",
		Long: `Run COMMAND in place of this process, with a token of the target in the variable NAME and
its expiry, where that is known, in NAME_EXPIRES_AT. The token is in no argument and in
no file, and only COMMAND and what it starts can read it. It is not renewed while COMMAND
runs: what runs for long asks for one itself, with 'spendonce token'.

The exit status is that of COMMAND; 125 if this program fails, 126 if COMMAND cannot be
run, 127 if there is no such command.`,
		Example: `  spendonce exec example -- sh -c 'curl -H "Authorization: Bearer $ACCESS_TOKEN" https://api.example.com'
  spendonce exec example --env GITLAB_TOKEN --min-valid 10m -- glab repo list`,
		DisableFlagsInUseLine: true, // they stand before the command
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return program.Own(errors.New("say which target: 'spendonce exec TARGET -- COMMAND'"))
			case cmd.ArgsLenAtDash() > 1, cmd.ArgsLenAtDash() == 0:
				return program.Own(errors.New("one target stands before '--': 'spendonce exec TARGET -- COMMAND'"))
			case len(args) == 1:
				return program.Own(errors.New("there is no command to run: 'spendonce exec TARGET -- COMMAND'"))
			case cmd.ArgsLenAtDash() < 0:
				return program.Own(errors.New("'--' stands before the command, so that its flags are its own: 'spendonce exec TARGET -- COMMAND'"))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // the command, and its files
			}
			return a.CompleteTargets(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target = args[0]
			return a.exec(cmd.Context(), o, name, args[1:])
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return program.Own(fmt.Errorf("%w: see '%s --help'", err, cmd.CommandPath()))
	})
	o.minValidFlag(cmd)
	cmd.Flags().StringVar(&name, "env", tokenVariable, "the `NAME` of the variable")
	return cmd
}

func (a *app) exec(ctx context.Context, o output, name string, command []string) error {
	if !helper.VariableName(name) {
		return program.Own(fmt.Errorf("--env: %.80q is no name of a variable: use letters, digits and '_'", name))
	}
	path, err := program.Find(command[0])
	if err != nil {
		return err
	}
	var set []string
	err = a.named(ctx, o, "", func(c helper.Credential) (err error) {
		set, err = helper.Variables(name, c)
		return err
	})
	if err != nil {
		return program.Own(err)
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		key, _, _ := strings.Cut(e, "=")
		return key == name || key == helper.ExpiryName(name)
	})
	if a.Disarm != nil {
		a.Disarm()
	}
	if ctx.Err() != nil {
		return program.Own(context.Cause(ctx))
	}
	// This puts back the limit of open files that Go raised.
	return program.CannotRun(command[0], syscall.Exec(path, command, append(env, set...)))
}
