// Package why has the command `kubectl listener why`, which follows the path of an address.
package why

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
)

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	kinds := []command.Kind{command.KindPod, command.KindClaim, command.KindListener}
	cmd := &cobra.Command{
		Use:   "why (POD | [KIND/]NAME)",
		Short: "Say why a Pod, a claim or a Listener has no address",
		Long: `Say why a Pod, a claim or a Listener has no address.

The command follows the path of an address: Pod, claim, volume, Listener, class, Service, Routes, Ingresses or Gateways,
endpoints, PodListeners and the files in the Pod. It prints what it finds at each step, and then the first thing that
is wrong, with what to do about it. A later step may be wrong because of an earlier one.

KIND is pod, claim or listener, or any other name that kubectl has for these kinds. Without a kind, NAME is a Pod, or
else a claim, or else a Listener.

The marks are: ✓ as it should be, ! a warning, ✗ wrong, ? you may not read it.`,
		Example: `  # Why does this Pod not start, or why has it no address?
  kubectl listener why kafka-0

  # The same for a claim, and for a Listener of another namespace
  kubectl listener why claim/listener-kafka-0
  kubectl listener why listener/kafka-bootstrap --namespace shop

  # For programs
  kubectl listener why kafka-0 --output json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteNames(1, kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			o, err := e.Find(cmd.Context(), c, args, kinds...)
			if err != nil {
				return err
			}
			r, err := Examine(cmd.Context(), c, o)
			if err != nil {
				return err
			}
			return e.Print(r, command.WriteSteps)
		},
	}
	e.AddOutputFlag(cmd)
	return cmd
}

// Examine follows the path of an address from a Pod, a claim or a Listener.
func Examine(ctx context.Context, reader client.Reader, o client.Object) (*check.Report, error) {
	w := &walk{check.Examination{Reader: reader}}
	switch o := o.(type) {
	case *corev1.Pod:
		w.fromPod(ctx, o)
	case *corev1.PersistentVolumeClaim:
		w.fromClaim(ctx, o)
	case *listenersv1alpha1.Listener:
		w.fromListener(ctx, o)
	}
	return &w.Report, w.Err
}
