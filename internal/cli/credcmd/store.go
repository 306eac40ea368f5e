package credcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

type resealOutput struct {
	Version int      `json:"version"`
	Action  string   `json:"action"`
	DryRun  bool     `json:"dry_run"`
	From    string   `json:"from"`             // kind of the key; "" in plain
	To      string   `json:"to"`               // likewise
	Files   []string `json:"files"`            // that have, or would get, another form
	Beside  []string `json:"beside,omitempty"` // files that are not the store's and stay as they are
	Dropped int      `json:"dropped_keys"`     // removed from the keyring
	Shared  []string `json:"shared,omitempty"` // targets whose values in etcd got, or would get, a new key
}

// resealing is one call of a command of this group.
type resealing struct {
	do           credstore.Sealing
	key          string
	identities   []string
	dryRun, json bool
}

func (a *App) storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Encrypt the store at rest, decrypt it, change its key, move sessions",
		Long: `Encrypt the store and its session files under a random key that is kept in the
keyring of your desktop (Secret Service) or encrypted to age identities; decrypt them
again; change the key; move a session between this machine's file and etcd. Each may be interrupted at any point, by a kill or the power
too: no session is lost, the store is usable half-way, and the same command finishes
what was begun. docs/at-rest.md says what this protects against and what not.`,
		Example: "  spendonce store encrypt --key keyring --dry-run\n  spendonce store decrypt --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return streams.Usage("say what to do with the store: see '%s --help'", cmd.CommandPath())
		},
	}
	cmd.AddCommand(
		a.resealCommand(credstore.Encrypt, "Encrypt the store at rest", `Encrypt the store and all session files. The key is the one that the configuration
names ([store] key), or that of --key. It is read back from where it is kept before the
first file is replaced. Tokens, client secrets and everything else that the files hold
are encrypted; what was copied before, and what the disk keeps of the old files, is not.
A store that another program shares is refused.`, "  spendonce store encrypt --key keyring --dry-run"),
		a.resealCommand(credstore.Decrypt, "Decrypt the store", `Write the store and all session files in plain again, and remove their key from the
keyring.`, "  spendonce store decrypt --dry-run"),
		a.resealCommand(credstore.Rekey, "Give an encrypted store a new key", `Make a new key of the kind that the configuration names, or --key, encrypt all files
with it, and remove the old one from the keyring. With another kind or another identity
than before this is how to change it: name the old identity with --identity.

Targets that the configuration keeps in etcd get a new key each, encrypted to the
identity and the recipients that [etcd] names now: so who was added can open them, and
who was removed cannot open what is put from now on. A store in plain is left as it is
then.`, "  spendonce store rekey --dry-run --help"),
		a.moveCommand(),
	)
	return cmd
}

func (a *App) resealCommand(do credstore.Sealing, short, long, example string) *cobra.Command {
	r := resealing{do: do}
	cmd := &cobra.Command{
		Use: string(do), Short: short, Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reseal(cmd, r) },
	}
	if do != credstore.Decrypt {
		cmd.Flags().StringVar(&r.key, "key", "", "the key: keyring or age:FILE (default: that of the configuration)")
		_ = cmd.RegisterFlagCompletionFunc("key", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"keyring", "age:"}, cobra.ShellCompDirectiveNoSpace
		})
	}
	cmd.Flags().StringArrayVar(&r.identities, "identity", nil, "a file of age identities that may open what is there; may be repeated")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "say what would be done, and change nothing")
	cmd.Flags().BoolVar(&r.json, "json", false, "print JSON")
	return cmd
}

func (a *App) reseal(cmd *cobra.Command, r resealing) error {
	if err := a.keyIsKnown(r); err != nil {
		return err
	}
	s, err := a.openForChangeWith(a.keys(func(c *keys.Config) {
		if r.key != "" {
			c.Key = r.key
		}
		c.Identities = r.identities
	}))
	if err != nil {
		return err
	}
	defer CloseStore(s)
	how := credstore.Reseal{Do: r.do, DryRun: r.dryRun, Settings: a.Settings}
	var done credstore.Resealed
	var shared []string
	if r.do == credstore.Rekey {
		done, shared, err = a.rekey(cmd.Context(), s, how)
	} else {
		done, err = s.Reseal(cmd.Context(), how)
	}
	if err != nil {
		return err
	}
	if done.DropErr != nil {
		a.Streams.Warn(fmt.Sprintf("a key that nothing needs any more stays in the keyring until the next change: %v", done.DropErr))
	}
	if !r.dryRun && done.To != "" {
		a.tellOfCopies(r, done)
	}
	if r.json {
		out := resealOutput{1, string(r.do), r.dryRun, done.From, done.To, done.Files, done.Beside, done.Dropped, shared}
		if out.Files == nil {
			out.Files = []string{}
		}
		return json.NewEncoder(a.Streams.Out).Encode(out)
	}
	if len(shared) > 0 {
		fmt.Fprintf(a.Streams.Out, "%s in etcd %s a new key: %s\n", plural(len(shared), "target"), map[bool]string{true: "would get", false: "got"}[r.dryRun], strings.Join(shared, ", "))
	}
	if len(shared) == 0 || done.From != "" || done.To != "" {
		fmt.Fprintln(a.Streams.Out, summary(r, done))
	}
	return nil
}

// rekey gives new keys to the values in etcd, and to the files if they are
// sealed or nothing is in etcd.
func (a *App) rekey(ctx context.Context, s *credstore.Store, how credstore.Reseal) (done credstore.Resealed, shared []string, err error) {
	c, err := a.Config()
	if err != nil {
		return done, nil, err
	}
	stored, err := s.List()
	if err != nil {
		return done, nil, err
	}
	for _, target := range c.SharedTargets() {
		there := slices.ContainsFunc(stored, func(e credstore.Entry) bool { return e.Target == target })
		if there && !how.DryRun {
			if there, err = s.Rekey(ctx, target); err != nil {
				return done, nil, err
			}
		}
		if there {
			shared = append(shared, target)
		}
	}
	files, err := s.Reseal(ctx, credstore.Reseal{Do: credstore.Decrypt, DryRun: true})
	if err != nil || len(c.SharedTargets()) > 0 && files.From == "" {
		return done, shared, err
	}
	done, err = s.Reseal(ctx, how)
	return done, shared, err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// keyIsKnown refuses a key that the next command would not find: the identity
// of an age key is named by nothing but the configuration.
func (a *App) keyIsKnown(r resealing) error {
	switch {
	case r.key == "" || r.key == "keyring":
		return nil
	case !strings.HasPrefix(r.key, "age:"):
		return streams.Usage("--key is \"keyring\" or \"age:FILE\"")
	}
	c, err := a.Config()
	if err != nil {
		return &streams.Exit{Code: 2, Err: err}
	}
	if c.Store.Key != r.key {
		return streams.Usage("every command learns from the configuration where the identity is: set key = %q under [store] in %s first", r.key, c.Path)
	}
	return nil
}

func (a *App) tellOfCopies(r resealing, done credstore.Resealed) {
	if len(done.Files) > 0 && done.From == "" {
		a.Say("copies and backups that were made before still hold the tokens in plain, and the disk may keep the old files: what must not be found there, sign in to anew")
	}
	for _, path := range done.Beside {
		a.Say("%s is no file of the store and stays as it is: remove it if it is a copy", path)
	}
	if c, err := a.Config(); err == nil && c.Store.Key == "" && r.key == keys.KindKeyring {
		a.Say("a store that is made anew is in plain: set key = \"keyring\" under [store] in the configuration to encrypt that too")
	}
}

func summary(r resealing, done credstore.Resealed) string {
	form := "in plain"
	if done.To != "" {
		form = "encrypted, with a key of the kind " + done.To
	}
	files := fmt.Sprintf("%d files", len(done.Files))
	if len(done.Files) == 1 {
		files = "1 file"
	}
	switch {
	case len(done.Files) == 0:
		return "nothing to do: every file of the store is " + form
	case r.dryRun:
		return fmt.Sprintf("would write %s anew, %s:\n  %s", files, form, strings.Join(done.Files, "\n  "))
	default:
		return fmt.Sprintf("%s of the store written anew, %s", files, form)
	}
}
