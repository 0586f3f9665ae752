package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// With the race detector, this fails if registering the core types writes to the scheme of client-go.
func TestTheSchemeOfClientGoIsNotWrittenWhileItIsRead(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if _, _, err := clientgoscheme.Scheme.ObjectKinds(&corev1.Pod{}); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 100 {
		if err := corev1.AddToScheme(clientgoscheme.Scheme); err != nil {
			t.Error(err)
		}
	}
	<-done
	other := runtime.NewScheme()
	if err := corev1.AddToScheme(other); err != nil || !other.IsGroupRegistered("") {
		t.Errorf("the core types are not registered in another scheme: %v", err)
	}
}
