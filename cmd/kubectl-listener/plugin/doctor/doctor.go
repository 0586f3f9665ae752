// Package doctor has the command `kubectl listener doctor`, which examines the installation of the operator.
package doctor

import (
	"context"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
)

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the installation of the listener operator",
		Long: `Examine the installation of the listener operator, and everything in the cluster that waits for an administrator.

The command checks the CustomResourceDefinitions, the operator's Deployment and its configuration, the objects that the
operator installs (admission policies, CSIDriver, StorageClass, DaemonSet, on OpenShift the SecurityContextConstraints),
the node agent of each node, the permissions of operator and node agents, the classes and their ranges of ports, volumes
that are pinned to lost nodes, claims without a volume, claims and Pods that a ResourceQuota keeps waiting, Pods that
started with other addresses, and Listeners of several Pods whose clients are sent to Pods that are not ready. It prints
what is as it should be, and then what is wrong and what to do: first what an administrator has to do, then what users
have to, at most ten of each.

It needs the permissions of a cluster administrator. What you may not read is marked with ?.`,
		Example: `  # Is everything in order?
  kubectl listener doctor

  # Only what is wrong, for programs
  kubectl listener doctor --output json | jq '.findings[] | select(.state == "Failed")'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: e.Examine(command.WriteChecks, func(ctx context.Context, x *check.Examination, _ []string) error {
			(&doctor{Examination: x}).examine(ctx)
			return nil
		}),
	}
	e.AddOutputFlag(cmd)
	return cmd
}

// doctor examines an installation. The fields are what was found of it.
type doctor struct {
	*check.Examination
	// namespace is the operator's, or empty if it was not found.
	namespace string
	// served reports whether all definitions exist, so that the objects of these kinds can be read.
	served bool
	// config is nil if it does not exist or cannot be read.
	config *operatorv1alpha1.ListenerOperator
	// daemonSet is nil if it does not exist or cannot be read.
	daemonSet *appsv1.DaemonSet
}

// examine runs all checks. A later one may use what an earlier one found.
func (d *doctor) examine(ctx context.Context) {
	for _, check := range []func(context.Context){
		d.definitions, d.operator, d.configuration, d.components, d.agents, d.permissions, d.classes, d.ranges, d.volumes, d.claims, d.quotas,
		d.outdated, d.endpoints,
	} {
		check(ctx)
	}
}
