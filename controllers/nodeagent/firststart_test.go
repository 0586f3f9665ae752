package nodeagent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// firstStart returns the controller of the first start, with the permissions of the Reconciler.
func (h *harness) firstStart(spec string) func() {
	first := &FirstStart{Client: h.Client, APIReader: h.apiReader, Namespace: h.Namespace, Spec: spec}
	return func() {
		h.t.Helper()
		h.must(first.createConfiguration(h.t.Context()))
	}
}

// What an administrator has set before the first start is part of the configuration that the operator creates; other
// fields have their defaults. Afterwards, only the object counts, and a deleted one is not created again.
func TestConfigurationIsCreatedOnce(t *testing.T) {
	given := newConfig().Spec
	given.Preset, given.NodeAgent.LogLevel = operatorv1alpha1.PresetNone, "debug"
	for spec, want := range map[string]operatorv1alpha1.ListenerOperatorSpec{
		"": newConfig().Spec, `{"preset": "none", "nodeAgent": {"logLevel": "debug"}}`: given,
	} {
		t.Run("with the spec "+spec, func(t *testing.T) {
			h, _ := onServer(t)
			h.firstStart(spec)()
			h.equal("spec", want, h.config().Spec)
			again := h.firstStart(`{"preset": "stable-nodes"}`)
			again()
			h.equal("spec after another start", want, h.config().Spec)
			h.deleteConfig()
			again()
			h.Expect(h.hasConfig()).To(BeFalse())
		})
	}
}

func TestExistingConfigurationIsNotModified(t *testing.T) {
	h, _ := onServer(t)
	before := h.createConfig()
	h.firstStart("")()
	h.equal("resource version", before.ResourceVersion, h.config().ResourceVersion)
	h.read(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: names.Operator}}) // records its creation
}

func TestTheGivenSpecTakesPrecedenceOverTheCarriedOverOne(t *testing.T) {
	spec := operatorv1alpha1.ListenerOperatorSpec{Preset: operatorv1alpha1.PresetNone, ClusterDomain: "k8s.example.com"}
	want := operatorv1alpha1.ListenerOperatorSpec{Preset: operatorv1alpha1.PresetStableNodes, ClusterDomain: "k8s.example.com"}
	if err := MergeSpec(&spec, `{"preset": "stable-nodes"}`); err != nil || !cmp.Equal(want, spec) {
		t.Errorf("spec is %+v, %v", spec, err)
	}
}

// The configuration that the operator creates has what its predecessor left; the policy that confines it allows that.
func TestConfigurationIsCreatedWithTheSettingsOfThePredecessor(t *testing.T) {
	h, _ := confined(t)
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "web"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("own")},
	}
	h.create(l)
	defer h.deleteAll(l)
	l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{
		Address: "web." + h.Namespace + ".svc.k8s.example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80},
	}}}
	h.updateStatus(l)
	h.firstStart("")()
	if spec := h.config().Spec; spec.Preset != operatorv1alpha1.PresetNone || spec.ClusterDomain != "k8s.example.com" {
		t.Errorf("the configuration is %+v", spec)
	}
}
