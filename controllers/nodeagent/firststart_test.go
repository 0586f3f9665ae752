package nodeagent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestTheGivenSpecTakesPrecedenceOverTheCarriedOverOne(t *testing.T) {
	spec := operatorv1alpha1.ListenerOperatorSpec{Preset: operatorv1alpha1.PresetNone, ClusterDomain: "k8s.example.com"}
	if err := MergeSpec(&spec, `{"preset": "stable-nodes"}`); err != nil {
		t.Fatal(err)
	}
	want := operatorv1alpha1.ListenerOperatorSpec{Preset: operatorv1alpha1.PresetStableNodes, ClusterDomain: "k8s.example.com"}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// The configuration that the operator creates has what its predecessor left; the policy that confines it allows that.
func TestConfigurationIsCreatedWithTheSettingsOfThePredecessor(t *testing.T) {
	c, namespace := fresh(t)
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("own")},
	}
	if err := c.Create(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Delete(t.Context(), l); err != nil {
			t.Error(err)
		}
	}()
	l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{
		Address: "web." + namespace + ".svc.k8s.example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80},
	}}}
	if err := c.Status().Update(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	installRBAC(t, c, namespace)
	operator := asOperator(t, apiserver.Config(t), namespace)
	confine(t, operator, c)
	if err := (&Reconciler{Client: operator, apiReader: operator, Namespace: namespace}).createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := &operatorv1alpha1.ListenerOperator{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config); err != nil {
		t.Fatal(err)
	}
	if config.Spec.Preset != operatorv1alpha1.PresetNone || config.Spec.ClusterDomain != "k8s.example.com" {
		t.Errorf("the configuration is %+v", config.Spec)
	}
}
