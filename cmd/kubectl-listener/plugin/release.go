package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// fieldManager is that of the plugin's only write.
const fieldManager = "kubectl-listener"

func newReleaseCommand(e *environment) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release CLAIM...",
		Short: "Release the volumes of claims from a lost node",
		Long: `Release the volumes of claims from a lost node, so that their Pods can start on another node.

A pinned volume ties its Pod to one node. The command requests its release, by the annotation
` + names.AnnotationRelease + ` of the claim. The operator carries the request out: Listener, Service and node ports
stay, and only the address of the node changes.

Is the machine really gone? If it still runs, its containers run, too, and two replicas with the same identity may
destroy data. So the command refuses a request while the Node object exists, unless it has the taint
` + corev1.TaintNodeOutOfService + `. With --force it sends the request nevertheless, for example to move a Pod away from a
node that works; the operator then waits until no Pod uses the volume there. --force also replaces the annotation's
value "` + names.ReleaseNever + `".

docs/lost-nodes.md has the whole procedure.`,
		Example: `  # The node of a broker is lost
  kubectl listener release listener-kafka-0 --namespace shop

  # Move a Pod away from a node that works
  kubectl cordon worker-1
  kubectl listener release listener-kafka-0 --force
  kubectl delete pod kafka-0`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames(0, kindClaim),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client()
			if err != nil {
				return err
			}
			r := &releaser{examination: examination{Reader: c}, writer: c, force: force}
			for _, name := range args {
				o, err := e.find(cmd.Context(), c, []string{name}, kindClaim)
				if err != nil {
					return err
				}
				f, err := r.release(cmd.Context(), o.(*corev1.PersistentVolumeClaim))
				if err != nil {
					return err
				}
				r.add(f)
			}
			return e.print(&r.report, writeChecks)
		},
	}
	e.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "Request the release although the node exists, or the claim excludes it.")
	return cmd
}

// releaser requests releases.
type releaser struct {
	examination
	writer client.Writer
	force  bool
}

// release requests the release of the volume of a claim, or returns why not.
func (r *releaser) release(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (finding, error) {
	f := finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
	if pvc.Spec.VolumeName == "" {
		return f.failed("", "has no volume", "Find out why: kubectl listener why claim/"+pvc.Name), nil
	}
	pv := &corev1.PersistentVolume{}
	found := r.get(ctx, types.NamespacedName{Name: pvc.Spec.VolumeName}, pv)
	pinned := index.PinnedNodes(pv)
	switch {
	case r.err != nil:
		return f, r.err
	case found == forbidden && !r.force:
		return f.failed("", "you may not read its PersistentVolume, so it is not known whether the node is lost",
			"Ask an administrator, or use --force if you know that the machine is gone."), nil
	case found == forbidden:
		return r.request(ctx, f, pvc, "its node")
	case found == missing:
		return f.failed("", "its PersistentVolume does not exist", remedyOperator), nil
	case !claim.IsBoundTo(pv, pvc):
		return f.failed("", "has no listener volume", "Name a claim with a listener volume: kubectl listener doctor lists those that are pinned to lost nodes."), nil
	case len(pinned) == 0:
		return f.failed("", "its volume is not pinned to a node by the operator, so there is nothing to release", "Find out what its Pod waits for: kubectl listener why claim/"+pvc.Name), nil
	}
	if refusal, err := r.refusal(ctx, f, pvc, pv, pinned[0]); err != nil || refusal.State != "" {
		return refusal, err
	}
	return r.request(ctx, f, pvc, "node "+pinned[0])
}

// refusal returns why a release is not requested, or an empty finding.
func (r *releaser) refusal(ctx context.Context, f finding, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, node string) (finding, error) {
	value := pvc.Annotations[names.AnnotationRelease]
	if requested, err := time.Parse(time.RFC3339, value); err == nil && pv.CreationTimestamp.Time.Before(requested) {
		return f.warning("", fmt.Sprintf("the release from node %s is already requested, at %s; see kubectl events --for persistentvolumeclaim/%s", node, value, pvc.Name)), nil
	}
	if r.force {
		return finding{}, nil
	}
	if value == names.ReleaseNever {
		return f.failed("", fmt.Sprintf("its annotation %s is %q", names.AnnotationRelease, value), "If this does not apply any more, use --force."), nil
	}
	object := &corev1.Node{}
	found := r.get(ctx, types.NamespacedName{Name: node}, object)
	switch {
	case r.err != nil || found == missing:
		return finding{}, r.err
	case found == forbidden:
		return f.failed("", "you may not read nodes, so it is not known whether node "+node+" is lost",
			"Ask an administrator, or use --force if you know that the machine is gone."), nil
	case claim.NodeLost(object):
		return finding{}, nil
	}
	return f.failed("NodeExists", fmt.Sprintf("node %s exists, so the containers of the Pod may still run there", node),
		fmt.Sprintf("If the machine is off, say so: kubectl taint node %s %s=nodeshutdown:NoExecute. To move the Pod away from a node that works, cordon the node, "+
			"use --force, and delete the Pod.", node, corev1.TaintNodeOutOfService)), nil
}

// request writes the annotation.
func (r *releaser) request(ctx context.Context, f finding, pvc *corev1.PersistentVolumeClaim, from string) (finding, error) {
	before := pvc.DeepCopy()
	if pvc.Annotations == nil {
		pvc.Annotations = map[string]string{}
	}
	pvc.Annotations[names.AnnotationRelease] = time.Now().UTC().Format(time.RFC3339)
	if err := r.writer.Patch(ctx, pvc, client.MergeFrom(before), client.FieldOwner(fieldManager)); err != nil {
		return f, fmt.Errorf("annotating claim %s: %w", client.ObjectKeyFromObject(pvc), err)
	}
	return f.ok("the release from %s is requested; its Pod can then start elsewhere: kubectl events --for persistentvolumeclaim/%s --watch", from, pvc.Name), nil
}
