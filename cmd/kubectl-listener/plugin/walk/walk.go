// Package walk follows the path of an address from one object to the next, and says what it finds, with a file for each
// kind of object. `why` prints the walk that begins at an object, `doctor` what those of all objects find, and `map`
// shows it. It must change nothing, and repeat no rule: what the operator knows is in conditions, events and its own
// packages, and what reasons mean is in package reasons.
package walk

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Walk follows the path of an address, and adds what it finds to a report.
type Walk struct{ *check.Examination }

// Examine follows the path of an address from a Pod, a claim, a Listener or a workload, and reports what it finds.
func Examine(ctx context.Context, x *check.Examination, o client.Object) {
	w := &Walk{x}
	switch o := o.(type) {
	case *corev1.Pod:
		w.fromPod(ctx, o)
	case *corev1.PersistentVolumeClaim:
		w.fromClaim(ctx, o)
	case *listenersv1alpha1.Listener:
		w.fromListener(ctx, o)
	default:
		w.fromWorkload(ctx, o)
	}
	w.operator(ctx)
	x.Unseen = "This command does not test whether the program responds. Run, from where the clients are: " + w.connectCommand(o)
}

// Step is the part of the path that no other object of its kind is on: of a claim, without its Pods and its Listener,
// and of a Listener, without its Pods.
func Step(ctx context.Context, x *check.Examination, o client.Object) {
	w := &Walk{x}
	switch o := o.(type) {
	case *corev1.Pod:
		w.fromPod(ctx, o)
	case *corev1.PersistentVolumeClaim:
		f := w.Claim(ctx, o)
		w.Add(f)
		if o.Spec.VolumeName != "" && f.State != check.Failed {
			w.volume(ctx, o)
		}
	case *listenersv1alpha1.Listener:
		w.listener(ctx, o, nil)
	}
}

// connectCommand returns the command that tries the addresses of an object. Those of a claim are those of its Pods.
func (w *Walk) connectCommand(o client.Object) string {
	kind, _ := w.Client.GroupVersionKindFor(o) // which was read as one of the scheme
	target := Argument(kind.Kind) + "/" + o.GetName()
	if _, isClaim := o.(*corev1.PersistentVolumeClaim); isClaim {
		target = "POD"
	}
	return fmt.Sprintf("kubectl listener connect %s --namespace %s", target, o.GetNamespace())
}

// operator reports that the operator does not run, as far as the user may know that, and replaces the advice to wait
// for it.
func (w *Walk) operator(ctx context.Context) {
	waits := func(f check.Finding) bool { return f.Remedy == check.RemedyOperator }
	var deployments appsv1.DeploymentList
	w.List(ctx, &deployments, client.MatchingFields{"metadata.name": names.Operator})
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		if deployment.Status.AvailableReplicas > 0 {
			return
		}
		w.Add(check.Finding{Kind: "Deployment", Namespace: deployment.Namespace, Name: deployment.Name}.Warning("", "the operator does not run, so nothing follows changes"))
		for j := range w.Findings {
			if waits(w.Findings[j]) {
				w.Findings[j].Remedy = "The operator does not run, so it does nothing about this. See why: " + Describe("deployment", &deployments.Items[i])
			}
		}
	}
}

// Describe returns the command that shows an object of a namespace, and its events.
func Describe(kind string, o client.Object) string {
	return fmt.Sprintf("kubectl describe %s %s --namespace %s", kind, o.GetName(), o.GetNamespace())
}

// Argument returns the name of a kind in the arguments of commands.
func Argument(kind string) string {
	if kind == "PersistentVolumeClaim" {
		return "claim"
	}
	return strings.ToLower(kind)
}
