package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// owner is the field manager of the tests.
const owner = "listener-operator-scorecard"

// named selects the objects with a name, in all namespaces.
func named(name string) client.ListOption {
	return client.MatchingFields{metav1.ObjectNameField: name}
}

// operatorComesUp fails unless each Deployment of the bundle is available, and the operator itself created
// ListenerOperator/cluster and installed the node agent.
func operatorComesUp(ctx context.Context, e *environment) error {
	for _, spec := range e.bundle.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		if _, err := await(ctx, e, "Deployment "+spec.Name, &appsv1.DeploymentList{}, notRolledOut, named(spec.Name)); err != nil {
			return err
		}
	}
	config, err := installed(ctx, e)
	if err != nil {
		return err
	}
	if others := otherManagers(config); len(others) > 0 {
		return fmt.Errorf("ListenerOperator %s was changed by %v, so the test cannot determine whether the operator creates it; run it on a new installation",
			config.Name, others)
	}
	return nil
}

// notRolledOut returns why no Deployment in the list is available, or "".
func notRolledOut(l *appsv1.DeploymentList) string {
	for i := range l.Items {
		// The condition Available is also true for a Deployment without a Pod.
		if d := &l.Items[i]; d.Status.AvailableReplicas > 0 && d.Status.ObservedGeneration >= d.Generation {
			return ""
		}
	}
	if len(l.Items) == 0 {
		return "not found in any namespace"
	}
	return "not available in namespace " + l.Items[0].Namespace
}

// installed waits until ListenerOperator/cluster exists and everything is installed.
func installed(ctx context.Context, e *environment) (*operatorv1alpha1.ListenerOperator, error) {
	l, err := await(ctx, e, "ListenerOperator "+operatorv1alpha1.ListenerOperatorName, &operatorv1alpha1.ListenerOperatorList{}, notInstalled,
		named(operatorv1alpha1.ListenerOperatorName))
	if err != nil {
		return nil, err
	}
	return &l.Items[0], nil
}

// notInstalled returns what is not installed yet, or "".
func notInstalled(l *operatorv1alpha1.ListenerOperatorList) string {
	if len(l.Items) == 0 {
		return "not found"
	}
	o := &l.Items[0]
	c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionAvailable)
	switch {
	case c == nil || o.Status.ObservedGeneration < o.Generation:
		return "no current status"
	case c.Status != metav1.ConditionTrue:
		return fmt.Sprintf("not available: %s: %s", c.Reason, c.Message)
	case o.Status.NodeAgent.Desired == 0:
		return "no node for an agent"
	case o.Status.NodeAgent.Ready < o.Status.NodeAgent.Desired:
		return fmt.Sprintf("%d of %d agents are ready", o.Status.NodeAgent.Ready, o.Status.NodeAgent.Desired)
	}
	return ""
}

// otherManagers returns the field managers of the configuration, except for the operator and these tests.
func otherManagers(config *operatorv1alpha1.ListenerOperator) []string {
	var others []string
	for _, f := range config.ManagedFields {
		if f.Manager != names.FieldManagerOperator && f.Manager != owner {
			others = append(others, f.Manager)
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}
