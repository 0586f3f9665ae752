package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

func TestOfTheProvisionerLibraryOnlyWarningsAreEmitted(t *testing.T) {
	server := fake.NewClientset()
	sink := corev1client.EventSinkImpl{Interface: quietClientset{server}.CoreV1().Events("")} // as the library does
	for name, kind := range map[string]string{"succeeded": corev1.EventTypeNormal, "failed": corev1.EventTypeWarning} {
		if _, err := sink.Create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: kind}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := server.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "failed" {
		t.Errorf("events %v, want the warning only", list.Items)
	}
}
