package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// operatorNamespace is where config/default installs the operator.
const operatorNamespace = "listener-operator"

// rolloutLimit is how long the operator, and then its agents, may take to run everywhere.
const rolloutLimit = 2 * time.Minute

// installOperator builds the operator, installs it, and waits until it can serve Pods on every node.
func (d *demo) installOperator(ctx context.Context) error {
	ref, err := d.loadOperator(ctx)
	if err != nil {
		return err
	}
	d.progress.say("installing the operator: make deploy IMG=%s", ref)
	if _, err := exec.LookPath("make"); err != nil {
		return errors.New("make is missing: apt-get install make")
	}
	kubectl := d.cluster.Kubectl() + " --kubeconfig=" + d.cluster.Kubeconfig()
	if _, err := d.run(ctx, "make", "deploy", "IMG="+ref, "KUBECTL="+kubectl); err != nil {
		return err
	}
	return d.awaitOperator(ctx, ref)
}

// loadOperator builds the operator's programs and gives the nodes an image of them, whose name it returns. The name
// changes with the content: after a change of the code, the demo runs the new operator.
func (d *demo) loadOperator(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "demo-")
	if err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d.progress.say("building the operator (a minute or two, the first time)")
	if err := tools.BuildLocal(ctx, ".", dir, "./cmd/operator", "./cmd/node-agent"); err != nil {
		return "", err
	}
	licenses := filepath.Join(dir, "licenses")
	if _, err := d.run(ctx, "go", "-C", "hack", "run", "./licenses", "-output", licenses, "./cmd/operator", "./cmd/node-agent"); err != nil {
		return "", err
	}
	spec := image.Operator(licenses, dir, "demo", "")
	img, err := image.Build(spec)
	if err != nil {
		return "", fmt.Errorf("making the operator's image: %w", err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("computing the digest of the operator's image: %w", err)
	}
	ref := "listener-operator:demo-" + digest.Hex[:8]
	d.progress.say("loading the image %s into the nodes", ref)
	return ref, d.cluster.LoadImage(ctx, ref, spec)
}

// awaitOperator waits until the operator of the given image, and the agents that it installs, run everywhere.
func (d *demo) awaitOperator(ctx context.Context, ref string) error {
	if _, err := await(ctx, d, "operator", rolloutLimit, &appsv1.DeploymentList{}, func(l *appsv1.DeploymentList) string {
		return rollingOut(l.Items, ref)
	}, client.InNamespace(operatorNamespace), client.MatchingFields{metav1.ObjectNameField: names.Operator}); err != nil {
		return err
	}
	if _, err := await(ctx, d, "node agents", rolloutLimit, &appsv1.DaemonSetList{}, func(l *appsv1.DaemonSetList) string {
		return agentsRollingOut(l.Items, ref)
	}, client.InNamespace(operatorNamespace), client.MatchingFields{metav1.ObjectNameField: names.NodeAgent}); err != nil {
		return err
	}
	_, err := await(ctx, d, "ListenerOperator/"+operatorv1alpha1.ListenerOperatorName, rolloutLimit, &operatorv1alpha1.ListenerOperatorList{},
		func(l *operatorv1alpha1.ListenerOperatorList) string { return unavailable(l.Items) })
	return err
}

// rollingOut tells what the operator's Deployment still lacks, or "".
func rollingOut(deployments []appsv1.Deployment, ref string) string {
	if len(deployments) == 0 {
		return "no Deployment yet"
	}
	d := &deployments[0]
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	switch {
	case !runs(&d.Spec.Template, ref):
		return "the Deployment does not have the image yet"
	case d.Status.ObservedGeneration < d.Generation:
		return "the Deployment has just changed"
	case d.Status.UpdatedReplicas < wanted || d.Status.AvailableReplicas < wanted || d.Status.Replicas > wanted:
		return fmt.Sprintf("%d Pods, %d of them updated, %d available, wanted %d",
			d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas, wanted)
	}
	return ""
}

// agentsRollingOut tells what the agents' DaemonSet still lacks, or "".
func agentsRollingOut(daemonSets []appsv1.DaemonSet, ref string) string {
	if len(daemonSets) == 0 {
		return "no DaemonSet yet"
	}
	d := &daemonSets[0]
	switch {
	case !runs(&d.Spec.Template, ref):
		return "the DaemonSet does not have the image yet"
	case d.Status.ObservedGeneration < d.Generation:
		return "the DaemonSet has just changed"
	case d.Status.UpdatedNumberScheduled < nodes || d.Status.NumberAvailable < nodes:
		return fmt.Sprintf("%d updated, %d available, wanted %d", d.Status.UpdatedNumberScheduled, d.Status.NumberAvailable, nodes)
	}
	return ""
}

// runs tells whether Pods of the template run the image.
func runs(template *corev1.PodTemplateSpec, ref string) bool {
	for i := range template.Spec.Containers {
		if template.Spec.Containers[i].Image == ref {
			return true
		}
	}
	return false
}

// unavailable tells what keeps the operator from serving Pods on every node, or "".
func unavailable(operators []operatorv1alpha1.ListenerOperator) string {
	if len(operators) == 0 {
		return "not created yet"
	}
	o := &operators[0]
	condition := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionAvailable)
	switch {
	case condition == nil || o.Status.ObservedGeneration < o.Generation:
		return "no status yet"
	case condition.Status != metav1.ConditionTrue:
		return fmt.Sprintf("not Available: %s: %s", condition.Reason, condition.Message)
	case o.Status.NodeAgent.Ready < nodes:
		return fmt.Sprintf("%d of %d agents are ready", o.Status.NodeAgent.Ready, nodes)
	}
	return ""
}
