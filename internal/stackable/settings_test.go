package stackable

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// exposed returns a Listener shop/web of a class, at this address, and with a node port if nodePort is true.
func exposed(class, address string, nodePort bool) listenersv1alpha1.Listener {
	l := listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: &class},
		Status: &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{
			Address: address, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80},
		}}},
	}
	if nodePort {
		l.Status.NodePorts = map[string]int32{"http": 30080}
	}
	return l
}

func class(name string, serviceType listenersv1alpha1.ServiceType) listenersv1alpha1.ListenerClass {
	return listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: serviceType}}
}

func TestSettingsAreWhatClassesAndListenersShow(t *testing.T) {
	type (
		classes   = []listenersv1alpha1.ListenerClass
		listeners = []listenersv1alpha1.Listener
		spec      = operatorv1alpha1.ListenerOperatorSpec
	)
	const nodePort, clusterIP = listenersv1alpha1.ServiceTypeNodePort, listenersv1alpha1.ServiceTypeClusterIP
	for name, tc := range map[string]struct {
		classes   classes
		listeners listeners
		resolver  string
		want      spec
	}{
		"an empty cluster":      {},
		"classes without users": {classes: classes{class("own", nodePort)}},
		"a preset that was turned off": {
			classes: classes{class("own", nodePort)}, listeners: listeners{exposed("own", "192.0.2.1", true)},
			want: spec{Preset: operatorv1alpha1.PresetNone},
		},
		"a preset that was turned off, and all classes deleted": {
			listeners: listeners{exposed("own", "192.0.2.1", true)}, want: spec{Preset: operatorv1alpha1.PresetNone},
		},
		"Listeners that nobody has exposed yet": {
			classes: classes{class("own", nodePort)}, listeners: listeners{{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("own")}}},
		},
		"stable nodes": {
			classes: classes{class("external-stable", nodePort)}, want: spec{Preset: operatorv1alpha1.PresetStableNodes},
		},
		"ephemeral nodes": {
			classes: classes{class("external-stable", listenersv1alpha1.ServiceTypeLoadBalancer)}, listeners: listeners{exposed("own", "192.0.2.1", true)},
		},
		"stable nodes whose classes were deleted with the chart": {
			listeners: listeners{exposed("own", "192.0.2.1", true), exposed("external-stable", "192.0.2.1", true)},
			want:      spec{Preset: operatorv1alpha1.PresetStableNodes},
		},
		"ephemeral nodes whose classes were deleted with the chart": {listeners: listeners{exposed("external-stable", "192.0.2.1", false)}},
		"the domain of the resolver": {
			classes: classes{class("cluster-internal", clusterIP)}, listeners: listeners{exposed("cluster-internal", "web.shop.svc.k8s.example.com", false)},
			resolver: "k8s.example.com",
		},
		"another domain than that of the resolver": {
			classes: classes{class("cluster-internal", clusterIP)}, listeners: listeners{exposed("cluster-internal", "web.shop.svc.k8s.example.com", false)},
			want: spec{ClusterDomain: "k8s.example.com"},
		},
		"several domains": {
			classes: classes{class("cluster-internal", clusterIP)}, listeners: listeners{
				exposed("cluster-internal", "web.shop.svc.k8s.example.com", false), exposed("cluster-internal", "web.shop.svc.other.example.com", false),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "settings", tc.want, Settings(tc.classes, tc.listeners, tc.resolver))
		})
	}
}

// presetClasses are known here, because one of them decides which preset an installation had.
func TestPresetClassesAreThoseOfThePresets(t *testing.T) {
	for _, preset := range []operatorv1alpha1.Preset{operatorv1alpha1.PresetEphemeralNodes, operatorv1alpha1.PresetStableNodes} {
		classes, err := listenerclass.Preset(preset)
		check.Must(t, err)
		var got []string
		for i := range classes {
			got = append(got, classes[i].Name)
		}
		if diff := cmp.Diff(presetClasses, got); diff != "" {
			t.Errorf("classes of %s (-want +got):\n%s", preset, diff)
		}
	}
}
