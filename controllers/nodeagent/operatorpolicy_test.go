package nodeagent

import (
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
)

// TestTheOperatorCannotFreeItself has the rights that the operator is installed with.
func TestTheOperatorCannotFreeItself(t *testing.T) {
	admin, namespace := fresh(t)
	grant(t, admin, namespace)
	operator := asOperator(t)
	if err := (&firstStart{writer: operator, live: operator, namespace: namespace}).ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustReconcile(t, reconcilerOf(operator, admin, namespace))
	for _, c := range installation.OperatorPolicy() {
		object := c.Empty()
		if err := admin.Get(t.Context(), c.Key(""), object); err != nil {
			t.Fatal(err)
		}
		freed := object.DeepCopyObject().(client.Object)
		freed.SetLabels(maps.Clone(object.GetLabels()))
		freed.GetLabels()["free"] = "yes"
		for verb, err := range map[string]error{
			"patch":  operator.Patch(t.Context(), freed, client.MergeFrom(object)),
			"update": operator.Update(t.Context(), freed),
			"delete": operator.Delete(t.Context(), object),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s of %s says %v, want forbidden", verb, c.Kind, err)
			}
		}
		if owner := metav1.GetControllerOf(object); owner == nil || owner.Kind != "ListenerOperator" {
			t.Errorf("%s would stay when the configuration is deleted: its owner is %+v", c.Kind, owner)
		}
	}
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	if err := operator.Delete(t.Context(), config); !apierrors.IsForbidden(err) {
		t.Errorf("deleting the configuration says %v, want forbidden", err)
	}
}
