// Package doctor has the command `kubectl listener doctor`, which examines the installation of the operator. What is
// wrong, and what to do about it, is in package walk: the command selects, finds what explains what, and prints.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/claim"
)

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
		RunE: e.Examine(command.WriteChecks, func(ctx context.Context, x *check.Examination, _ []string) error {
			Examine(ctx, x, unusedDays)
			return nil
		}),
	}
	e.AddOutputFlag(cmd)
	e.AddFromFlag(cmd)
	cmd.Flags().Uint16Var(&unusedDays, "unused-days", unusedDays,
		"After how many days without a Pod a load balancer, node port or port of a Gateway is reported as unused.")
	return cmd
}

// allClear is what is known if nothing is wrong. The command does not examine why Pods do not run or respond.
const allClear = "The installation is in order, and the Listeners have their addresses. To test whether Pods respond " +
	"there, run: kubectl listener connect POD"

// Examine examines an installation. Addresses that no Pod has mounted for so many days are reported as unused.
func Examine(ctx context.Context, x *check.Examination, unusedDays uint16) {
	if _, ok := x.Client.(*source.Source); !ok {
		x.Client = source.List(x.Client)
	}
	x.Right = allClear
	d := &doctor{Walk: walk.New(x), elsewhere: sets.New[string]()}
	d.installation = d.ExamineInstallation(ctx)
	d.Nodes(ctx, d.installation)
	d.SlowRequests(ctx)
	if d.installation.Served {
		d.Classes(ctx)
		d.Ranges(ctx)
		d.Unused(ctx, unusedDays)
		d.Authorities(ctx, d.installation)
		for f := range check.Each(d.Findings) {
			if f.State == check.Failed {
				d.elsewhere.Insert(f.Kind)
			}
		}
		d.walks(ctx)
		d.Ignored(ctx)
	}
	d.ForAdministrators(d.installation)
}

type doctor struct {
	*walk.Walk
	installation *walk.Installation
	// elsewhere are kinds whose findings may explain the problems of claims, Listeners and Pods.
	elsewhere sets.Set[string]
}

// walks adds the problem of each claim, Listener and Pod with a listener volume, unless it began a moment ago.
func (d *doctor) walks(ctx context.Context) {
	var all corev1.PersistentVolumeClaimList
	var listeners listenersv1alpha1.ListenerList
	var pods corev1.PodList
	if !d.All(ctx, &all, &listeners, &pods, &corev1.PersistentVolumeList{}, &listenersv1alpha1.ListenerClassList{},
		&listenersv1alpha1.PodListenersList{}) {
		return
	}
	d.All(ctx, &corev1.EventList{}) // without them, walks say less
	var claims, exposed, mounting []client.Object
	byKey := map[types.NamespacedName]bool{}
	for pvc := range check.Each(all.Items) {
		if walk.RequestsListener(pvc) {
			claims = append(claims, pvc)
			byKey[client.ObjectKeyFromObject(pvc)] = true
		}
	}
	for l := range check.Each(listeners.Items) {
		exposed = append(exposed, l)
	}
	for pod := range check.Each(pods.Items) {
		isListener := func(claim string) bool {
			return byKey[types.NamespacedName{Namespace: pod.Namespace, Name: claim}]
		}
		if (!claim.PodFinished(pod) || pod.DeletionTimestamp != nil) && walk.Concerns(pod, isListener) {
			mounting = append(mounting, pod)
		}
	}
	d.each(ctx, claims, "PersistentVolumeClaims", "%d have a volume, or wait for a Pod")
	d.each(ctx, exposed, "Listeners", "%d are ready, or wait for a Pod")
	d.each(ctx, mounting, "Pods", "%d have what they need for their listener volumes")
}

func (d *doctor) each(ctx context.Context, objects []client.Object, kind, format string) {
	fine := 0
	for _, o := range objects {
		w := d.Apart()
		w.Step(ctx, o)
		if d.Err = cmp.Or(d.Err, w.Err); d.Err != nil {
			return
		}
		d.addWarnings(w.Findings)
		problem := w.Lasting()
		if problem == nil || d.explained(problem) {
			fine++
			continue
		}
		w.ForAdministrators(d.installation)
		problem.ForUsers = problem.Actor != reasons.Administrator
		separator := "; more: "
		if strings.HasSuffix(problem.Remedy, ".") {
			separator = " More: "
		}
		problem.Remedy += separator + d.Command("why", o)
		d.Add(*problem)
	}
	if fine > 0 {
		d.Add(check.Finding{Kind: kind}.OK(format, fine))
	}
}

// addWarnings adds warnings about keys, Listeners and their endpoints, and the kinds that the user may not read.
func (d *doctor) addWarnings(findings []check.Finding) {
	for _, f := range findings {
		why := reasons.Of(f.Reason)
		switch {
		case f.State == check.Unknown:
			d.Add(check.Finding{Kind: f.Kind}.Unreadable())
		case f.State == check.Warning && f.Reason == reasons.IgnoredKey:
			d.Add(f)
		case f.IsAside() && f.Reason == reasons.NotInjected: // no container is listed, which may be meant
			d.Add(f.Warning(f.Reason, f.Message))
		case f.State == check.Warning && !f.IsAside() && slices.Contains([]string{"Listener", "Endpoints"}, f.Kind) &&
			why.Severity == reasons.Warning && len(why.Causes) == 0:
			d.Add(f)
		}
	}
}

// explained reports whether nobody has to act on a problem, or another finding says why it exists.
func (d *doctor) explained(f *check.Finding) bool {
	why := reasons.Of(f.Reason)
	return why.Actor == reasons.Nobody || d.installation.Stopped && f.Actor == reasons.Operator ||
		d.elsewhere.HasAny(why.Causes...) ||
		slices.ContainsFunc(d.Findings, func(other check.Finding) bool {
			return other.State == check.Failed && other.Object() == f.Object()
		})
}
