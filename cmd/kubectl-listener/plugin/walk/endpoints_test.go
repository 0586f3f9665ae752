package walk

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

func TestAPodOfTwoIPFamiliesIsOneEndpoint(t *testing.T) {
	slice := func(address string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{address + "1"}, TargetRef: &corev1.ObjectReference{UID: "one"}},
			{Addresses: []string{address + "2"}, TargetRef: &corev1.ObjectReference{UID: "two"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}},
		}}
	}
	all, ready := countEndpoints([]discoveryv1.EndpointSlice{slice("10.0.0."), slice("fd00::")})
	if len(all) != 2 || ready != 1 || !all.Has("two") {
		t.Errorf("all %v, ready %d", all, ready)
	}
}

func TestRemediesForPodsThatAreNotReadyNameWhatDecides(t *testing.T) {
	class := func(policy listenersv1alpha1.NotReadyAddressPolicy) *listenersv1alpha1.ListenerClass {
		return &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "public"}, Spec: listenersv1alpha1.ListenerClassSpec{NotReadyAddressPolicy: policy}}
	}
	perPodOnly := class(listenersv1alpha1.NotReadyAddressPolicyPerPodOnly)
	claimed := []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "web"}}
	for name, tc := range map[string]struct {
		class               *listenersv1alpha1.ListenerClass
		owners              []metav1.OwnerReference
		says                *bool
		onlyReady, notReady string
	}{
		"the Listener says so": {
			class: class(""), says: ptr.To(true), onlyReady: "notReadyAddressPolicy: PerPodOnly in ListenerClass public", notReady: "set spec.publishNotReadyAddresses",
		},
		"the class is not known": {says: ptr.To(true), onlyReady: "notReadyAddressPolicy: PerPodOnly in ListenerClass public", notReady: "set spec.publishNotReadyAddresses"},
		"an override says so": {
			class: class(""), says: ptr.To(false), onlyReady: "from objectOverrides", notReady: "set spec.publishNotReadyAddresses",
		},
		"an override says so against the class": {
			class: perPodOnly, says: ptr.To(true), onlyReady: "from objectOverrides", notReady: "ListenerClass public has notReadyAddressPolicy: PerPodOnly",
		},
		"Pods share a claim": {class: perPodOnly, owners: claimed, says: ptr.To(true), onlyReady: "a Listener that the Pods share", notReady: "set spec.publishNotReadyAddresses"},
	} {
		t.Run(name, func(t *testing.T) {
			listener := &listenersv1alpha1.Listener{
				ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: tc.owners},
				Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public"), PublishNotReadyAddresses: tc.says},
			}
			if got := onlyReadyRemedy(listener, tc.class); !strings.Contains(got, tc.onlyReady) {
				t.Errorf("for ready Pods only: %s", got)
			}
			if got := notReadyRemedy(listener, tc.class); !strings.Contains(got, tc.notReady) {
				t.Errorf("also for others: %s", got)
			}
		})
	}
}
