// Package doctor has the command `kubectl listener doctor`, which examines the installation of the operator. What is
// wrong, and what to do about it, is in package walk: the command selects, finds what explains what, and prints.
package doctor

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
)

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	unusedDays := uint16(walk.UnusedDays)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the installation of the listener operator",
		Long: `Examine the installation of the listener operator, and everything in the cluster that waits for an administrator.

The command checks the CustomResourceDefinitions, the operator's Deployment, its permissions and its configuration, the
objects that the operator installs, the nodes and the node agent of each, the classes, their ranges of ports, the load
balancers, node ports and ports of Gateways that no Pod has mounted for a week, the authorities of certificates, and
namespaces that occupy the operator for long. Then it follows the path of every claim, every Listener and every Pod with
a listener volume, as kubectl listener why does, and reports each cause once.

It prints what is as it should be, and then what is wrong and what to do: first what an administrator has to do, then
what users have to do, at most ten of each. It leaves out what began less than half a minute ago, and everything about
Pods that does not concern their listener volumes, such as containers and probes: see kubectl listener why.

You need the permissions of a cluster administrator. What you may not read is marked with ?. With --from, the command
reads what kubectl listener gather wrote, as of then; what was not gathered is marked with ?.`,
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
const allClear = "The installation is in order, and the Listeners have their addresses. To test whether Pods respond there, run: kubectl listener connect POD"

// Examine examines an installation. Addresses that no Pod has mounted for so many days are reported as unused.
func Examine(ctx context.Context, x *check.Examination, unusedDays uint16) {
	if _, ok := x.Client.(*source.Source); !ok {
		x.Client = source.List(x.Client)
	}
	d := &doctor{Walk: walk.New(x)}
	d.installation = d.Installation(ctx)
	d.Nodes(ctx, d.installation)
	if d.installation.Served {
		d.Classes(ctx)
		d.Ranges(ctx)
		d.Unused(ctx, unusedDays)
		d.Authorities(ctx, d.installation)
	}
	d.SlowRequests(ctx)
	if d.installation.Served {
		d.walks(ctx)
	}
	d.ForAdministrators(d.installation)
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

// doctor examines an installation.
type doctor struct {
	*walk.Walk
	installation *walk.Installation
}
