package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

func TestPodListenersAreNamedAfterTheirPod(t *testing.T) {
	const uid = types.UID("0b0b0b0b-1111-2222-3333-444444444444")
	const name = "pod-0b0b0b0b-1111-2222-3333-444444444444" // contract: PodListeners
	if got := listenersv1alpha1.PodListenersName(uid); got != name {
		t.Errorf("name %q, want %q", got, name)
	}
	for name, want := range map[string]types.UID{name: uid, "web-0": "", "pod-": ""} {
		if got := listenersv1alpha1.PodUID(name); got != want {
			t.Errorf("uid in %q: %q, want %q", name, got, want)
		}
	}
}
