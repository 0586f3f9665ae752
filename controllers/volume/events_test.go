package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestOfTheProvisionerLibraryOnlyWarningsAreEmitted(t *testing.T) {
	server, recorder := fake.NewClientset(), events.NewFakeRecorder(4)
	sink := corev1client.EventSinkImpl{Interface: libraryClientset{server, recorder}.CoreV1().Events("")} // as the library does
	for _, event := range []corev1.Event{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Type: corev1.EventTypeNormal, Reason: "ProvisioningSucceeded", Message: "done"},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}, Type: corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: "100% full"},
	} {
		if _, err := sink.Create(&event); err != nil {
			t.Error(err)
		}
		if _, err := sink.Patch(&event, []byte(`{"count":2}`)); err != nil {
			t.Error(err)
		}
	}
	close(recorder.Events)
	var got []string
	for event := range recorder.Events {
		got = append(got, event)
	}
	if diff := cmp.Diff([]string{"Warning ProvisioningFailed 100% full", "Warning ProvisioningFailed 100% full"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if requests := server.Actions(); len(requests) > 0 {
		t.Errorf("requests of the library's own events: %v", requests)
	}
}
