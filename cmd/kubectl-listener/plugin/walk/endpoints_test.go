package walk

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
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
