// Package why has the command `kubectl listener why`, which follows the path of an address.
package why

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
)

func NewCommand(e *command.Environment) *cobra.Command {
	kinds := append([]command.Kind{command.KindPod, command.KindClaim, command.KindListener}, command.Workloads()...)
	cmd := &cobra.Command{
		Use:   "why (POD | [KIND/]NAME)",
		Short: "Say why a Pod, a claim or a Listener has no address",
		Long: `Say why a Pod, a claim or a Listener has no address.

The command follows the path of an address: Pod, claim, volume, Listener, class, Service, Routes, Ingresses or Gateways,
endpoints, PodListeners, NetworkPolicies, the files in the Pod and its certificates. It prints what it finds at each
step, and then the first thing that is wrong, with what to do about it. A later step may be wrong because of an earlier
one.

KIND is pod, claim, listener, or a kind of workload such as statefulset or deployment, or any other name that kubectl
has for these kinds. Without a kind, NAME is the first of these that exists, in this order. Of a workload, each Pod is
followed; if it has none, what Kubernetes says about that is printed.

The marks are: ✓ as it should be, ! a warning, ✗ wrong, ? you may not read it, or it was not gathered.`,
		Example: `  # Why does this Pod not start, or why has it no address?
  kubectl listener why kafka-0

  # The same for a claim, and for a Listener of another namespace
  kubectl listener why claim/listener-kafka-0
  kubectl listener why listener/kafka-bootstrap --namespace shop

  # All Pods of a workload
  kubectl listener why sts/kafka

  # For programs
  kubectl listener why kafka-0 --output json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteNames(1, kinds...),
		RunE: e.Examine(command.WriteSteps, func(ctx context.Context, x *check.Examination, args []string) error {
			o, err := e.Find(ctx, x.Client, args, kinds...)
			if err == nil {
				walk.New(x).Examine(ctx, o)
			}
			return err
		}),
	}
	e.AddOutputFlag(cmd)
	e.AddFromFlag(cmd)
	return cmd
}
