package helpercmd

import (
	"context"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"os"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/helper"
)

func (a *app) kubectlCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "kubectl TARGET",
		Short: "Be a credential plugin of kubectl",
		Long: `Print an ExecCredential for kubectl and whatever else reads a kubeconfig, in version v1
or, if KUBERNETES_EXEC_INFO asks for it, v1beta1. They keep the token until its expiry.

With provideClusterInfo in the kubeconfig, kubectl says which cluster the token is for;
a cluster that is neither the target's URL nor one of its hosts gets none.`,
		Example:           `  kubectl config set-credentials example --exec-api-version=client.authentication.k8s.io/v1 --exec-interactive-mode=Never --exec-command=spendonce --exec-arg=credential,kubectl,example` + "\n  spendonce credential kubectl example",
		Args:              credcmd.TargetArg("say"),
		ValidArgsFunction: a.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target = args[0]
			return a.kubectl(cmd.Context(), o)
		},
	}
	o.minValidFlag(cmd)
	return cmd
}

func (a *app) kubectl(ctx context.Context, o output) error {
	info := helper.ExecInfo{Version: helper.ExecV1}
	if value := os.Getenv(helper.ExecInfoVariable); value != "" {
		var err error
		if info, err = helper.ParseExecInfo(value); err != nil {
			return badInput(err)
		}
	}
	return a.named(ctx, o, info.Server, func(c helper.Credential) error {
		return helper.WriteExecCredential(a.Streams.Out, info.Version, c)
	})
}
