// Package release has the command `kubectl listener release`, which requests the release of volumes from lost nodes.
package release

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

func NewCommand(e *command.Environment) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release CLAIM...",
		Short: "Release the volumes of claims from a lost node",
		Long: `Release the volumes of claims from a lost node, so that their Pods can start on another node.

A pinned volume ties its Pod to one node. The command requests the release of the volume, with the annotation
` + names.AnnotationRelease + ` of the claim. The operator then releases it: Listener, Service and node ports stay, and
only the address of the node changes.

Is the machine really gone? If it still runs, so do its containers, and two replicas with the same identity may destroy
data. The command therefore refuses while the Node object exists, unless the Node has the taint
` + corev1.TaintNodeOutOfService +
			`. With --force, it sends the request anyway, for example to move a Pod away from a node
that works; the operator then waits until no Pod uses the volume there. --force also replaces the value
"` + names.ReleaseNever + `" of the annotation.

docs/lost-nodes.md has the whole procedure.`,
		Example: `  # The node of a broker is lost
  kubectl listener release listener-kafka-0 --namespace shop

  # Move a Pod away from a node that works
  kubectl cordon worker-1
  kubectl listener release listener-kafka-0 --force
  kubectl delete pod kafka-0`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.CompleteNames(0, command.KindClaim),
		RunE: e.Examine(func(out io.Writer, r *check.Report) {
			command.WriteChecksOr(out, r, "") // it does not look for anything else that may be wrong
		}, func(ctx context.Context, x *check.Examination, args []string) error {
			r := &releaser{Examination: x, force: force}
			for _, name := range args {
				o, err := e.Find(ctx, x.Client, []string{name}, command.KindClaim)
				if err != nil {
					return err
				}
				r.Add(r.release(ctx, o.(*corev1.PersistentVolumeClaim)))
			}
			return nil
		}),
	}
	e.AddOutputFlag(cmd)
	cmd.Flags().BoolVar(&force, "force", false,
		"Request the release even if the node exists or the claim excludes a release.")
	return cmd
}

type releaser struct {
	*check.Examination
	force bool
}

func (r *releaser) release(ctx context.Context, pvc *corev1.PersistentVolumeClaim) check.Finding {
	f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
	if pvc.Spec.VolumeName == "" {
		return f.Failed("", "has no volume", "Find out why: kubectl listener why claim/"+pvc.Name)
	}
	pv := &corev1.PersistentVolume{}
	found := r.Get(ctx, types.NamespacedName{Name: pvc.Spec.VolumeName}, pv)
	pinned := claim.PinnedNodes(pv)
	switch {
	case found == check.Forbidden && !r.force:
		return f.Failed("", "you may not read its PersistentVolume, so the command cannot find out whether the node "+
			"is lost", remedyForbidden)
	case found == check.Forbidden:
		return r.request(ctx, f, pvc, "its node")
	case found == check.Missing:
		return f.LeftToOperator("", "its PersistentVolume does not exist")
	case !claim.IsBoundTo(pv, pvc):
		return f.Failed("", "has no listener volume",
			"Name a claim with a listener volume. To list the volumes on lost nodes, run: kubectl listener doctor")
	case len(pinned) == 0:
		return f.Failed("", "its volume is not pinned to a node by the operator, so there is nothing to release",
			"Find out what its Pod waits for: kubectl listener why claim/"+pvc.Name)
	}
	if refusal := r.refusal(ctx, f, pvc, pv, pinned[0]); refusal.State != "" {
		return refusal
	}
	return r.request(ctx, f, pvc, "node "+pinned[0])
}

const remedyForbidden = "Ask an administrator, or use --force if you know that the machine is gone."

// refusal returns why a release is not requested, or an empty finding.
func (r *releaser) refusal(ctx context.Context, f check.Finding, pvc *corev1.PersistentVolumeClaim,
	pv *corev1.PersistentVolume, name string) check.Finding {
	value := pvc.Annotations[names.AnnotationRelease]
	if requested, err := time.Parse(time.RFC3339, value); err == nil && pv.CreationTimestamp.Time.Before(requested) {
		return f.Warning("", fmt.Sprintf("the release from node %s is already requested, at %s; see kubectl events "+
			"--for persistentvolumeclaim/%s", name, value, pvc.Name))
	}
	if r.force {
		return check.Finding{}
	}
	if value == names.ReleaseNever {
		return f.Failed("", fmt.Sprintf("its annotation %s is %q", names.AnnotationRelease, value),
			"If the claim may be released after all, use --force.")
	}
	node := &corev1.Node{}
	switch found := r.Get(ctx, types.NamespacedName{Name: name}, node); {
	case found == check.Missing || found == check.Present && claim.NodeLost(node):
		return check.Finding{}
	case found == check.Forbidden:
		return f.Failed("", "you may not read nodes, so the command cannot find out whether node "+name+" is lost",
			remedyForbidden)
	}
	return f.Failed("NodeExists", fmt.Sprintf("node %s exists, so the containers of the Pod may still run there", name),
		fmt.Sprintf("If the machine is off, run: kubectl taint node %s %s=nodeshutdown:NoExecute. To move the Pod "+
			"away from a node that works, cordon the node, use --force, and delete the Pod.", name,
			corev1.TaintNodeOutOfService))
}

func (r *releaser) request(ctx context.Context, f check.Finding, pvc *corev1.PersistentVolumeClaim,
	from string) check.Finding {
	if r.Err != nil {
		return f
	}
	before := pvc.DeepCopy()
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, names.AnnotationRelease, time.Now().UTC().Format(time.RFC3339))
	if err := r.Client.Patch(ctx, pvc, client.MergeFrom(before), client.FieldOwner("kubectl-listener")); err != nil {
		r.Err = fmt.Errorf("annotating claim %s: %w", client.ObjectKeyFromObject(pvc), err)
	}
	return f.OK("the release from %s is requested; its Pod can then start elsewhere: kubectl events --for "+
		"persistentvolumeclaim/%s --watch", from, pvc.Name)
}
