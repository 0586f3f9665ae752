// Package doctor has the command `kubectl listener doctor`, which examines the installation of the operator.
package doctor

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
)

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	unusedDays := uint16(UnusedDays)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the installation of the listener operator",
		Long: `Examine the installation of the listener operator, and everything in the cluster that waits for an administrator.

The command checks the CustomResourceDefinitions, the operator's Deployment and its configuration, the objects that the
operator installs (admission policies, CSIDriver, StorageClass, DaemonSet, on OpenShift the SecurityContextConstraints),
the nodes and the node agent of each, the permissions of operator and node agents, the classes, their ranges of ports,
the load balancers, node ports and ports of Gateways that no Pod has mounted for a week, and the authorities of
certificates. Then it follows the path of every claim, every Listener and every Pod with a listener volume, as kubectl
listener why does, and reports each cause once. It leaves out what began less than half a minute ago, and what concerns
Pods beside their listener volumes, such as their containers and probes: use kubectl listener why. The command prints
what is as it should be, and then what is wrong and what to do: first what an administrator has to do, then what users
have to, at most ten of each.

It needs the permissions of a cluster administrator. What you may not read is marked with ?. With --from, it reads what
kubectl listener gather wrote, as it was then; what was not gathered is marked with ?.`,
		Example: `  # Is everything in order?
  kubectl listener doctor

  # Only what is wrong, for programs
  kubectl listener doctor --output json | jq '.findings[] | select(.state == "Failed")'

  # A cluster that only others can reach, from what they gathered
  kubectl listener doctor --from listener-gather.tar.gz`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: e.Examine(Write, func(ctx context.Context, x *check.Examination, _ []string) error {
			Examine(ctx, x, unusedDays)
			return nil
		}),
	}
	e.AddOutputFlag(cmd)
	e.AddFromFlag(cmd)
	cmd.Flags().Uint16Var(&unusedDays, "unused-days", unusedDays, "After how many days without a Pod a load balancer, node port or port of a Gateway is reported as unused.")
	return cmd
}

// allClear is what is known if nothing is wrong. The command does not examine what may keep a Pod from running or
// responding beside its listener volumes.
const allClear = "The installation is in order, and the Listeners have their addresses. Whether Pods respond there: kubectl listener connect POD"

// Examine examines an installation. Addresses that no Pod has mounted for so many days are reported as unused.
func Examine(ctx context.Context, x *check.Examination, unusedDays uint16) {
	if x.Gathered.IsZero() {
		x.Client = source.List(x.Client)
	}
	(&doctor{Examination: x, unusedDays: unusedDays}).examine(ctx)
}

// Write writes a report as text.
func Write(out io.Writer, r *check.Report) {
	open := func(f check.Finding) bool { return f.State == check.Warning || f.State == check.Unknown }
	if slices.ContainsFunc(r.Findings, open) {
		command.WriteChecks(out, r)
		return
	}
	command.WriteChecksOr(out, r, allClear)
}

// doctor examines an installation. The fields are what was found of it.
type doctor struct {
	*check.Examination
	unusedDays uint16
	// namespace is the operator's, or empty if it was not found.
	namespace string
	// stopped reports whether the operator does not run, so that no status is up to date.
	stopped bool
	// served reports whether all definitions exist, so that the objects of these kinds can be read.
	served bool
	// config is nil if it does not exist or cannot be read.
	config *operatorv1alpha1.ListenerOperator
	// daemonSet is nil if it does not exist or cannot be read.
	daemonSet *appsv1.DaemonSet
	// registered are the nodes whose kubelet knows the node agent, or nil if that cannot be read.
	registered sets.Set[string]
	objects
}

// examine runs all checks. A later one may use what an earlier one found.
func (d *doctor) examine(ctx context.Context) {
	for _, examine := range []func(context.Context){
		d.definitions, d.observe, d.operator, d.configuration, d.components, d.agents, d.permissions, d.examineClasses, d.ranges, d.unused,
		d.certificates, d.walks,
	} {
		examine(ctx)
	}
	for i := range d.Findings { // which are also those of why, and send its reader here
		d.Findings[i].Remedy = strings.Replace(d.Findings[i].Remedy, check.RemedyOperator, d.operatorLog(), 1)
	}
}
