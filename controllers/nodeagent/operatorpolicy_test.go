package nodeagent

import (
	"fmt"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
)

// TestOperatorCannotChangeItsPolicy uses the permissions that the operator is installed with.
func TestOperatorCannotChangeItsPolicy(t *testing.T) {
	admin, namespace := fresh(t)
	installRBAC(t, admin, namespace)
	operator := asOperator(t)
	if err := (&firstStart{writer: operator, live: operator, namespace: namespace}).ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustReconcile(t, reconcilerWithRBAC(operator, admin, namespace))
	for _, c := range installation.OperatorPolicy() {
		object := c.Empty()
		if err := admin.Get(t.Context(), c.Key(""), object); err != nil {
			t.Fatal(err)
		}
		changed := object.DeepCopyObject().(client.Object)
		changed.SetLabels(maps.Clone(object.GetLabels()))
		changed.GetLabels()["changed"] = "yes"
		for verb, err := range map[string]error{
			"patch":  operator.Patch(t.Context(), changed, client.MergeFrom(object)),
			"update": operator.Update(t.Context(), changed),
			"delete": operator.Delete(t.Context(), object),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s of %s returns %v, want forbidden", verb, c.Kind, err)
			}
		}
		if owner := metav1.GetControllerOf(object); owner == nil || owner.Kind != "ListenerOperator" {
			t.Errorf("%s would not be deleted with the configuration: its owner is %+v", c.Kind, owner)
		}
	}
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	if err := operator.Delete(t.Context(), config); !apierrors.IsForbidden(err) {
		t.Errorf("deleting the configuration returns %v, want forbidden", err)
	}
}

// TestExistingOperatorPolicyIsNeverModified even if another client created it.
func TestExistingOperatorPolicyIsNeverModified(t *testing.T) {
	var existing []client.Object
	for _, c := range installation.OperatorPolicy() {
		object := c.Empty()
		object.SetName(c.Name)
		object.SetUID("existing")
		existing = append(existing, object)
	}
	h := newHarness(t, interceptor.Funcs{}, append(existing, newConfig())...)
	before := map[string]string{}
	for _, o := range existing {
		h.exists(o)
		before[fmt.Sprintf("%T", o)] = o.GetResourceVersion()
	}
	h.mustReconcile()
	for _, o := range existing {
		if !h.exists(o) || o.GetUID() != "existing" || o.GetResourceVersion() != before[fmt.Sprintf("%T", o)] {
			t.Errorf("%T was modified", o)
		}
	}
}
