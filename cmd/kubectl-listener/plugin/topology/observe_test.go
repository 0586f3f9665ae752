package topology

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

func TestTheFirstOfTheWorstFindingsIsShown(t *testing.T) {
	findings := []check.Finding{
		{Kind: "Node", State: check.OK}, {Kind: "Pod", State: check.Failed}, {Kind: "Service", State: check.Warning},
		{Kind: "Route", State: check.Unknown}, {Kind: "Route", State: check.Unknown, Name: "second"},
	}
	if got := worst(findings, func(kind string) bool { return kind != "Pod" }); got != findings[3] {
		t.Errorf("%+v", got)
	}
}

// A Pod may mount a Listener more than once.
func TestPodIsLinkedToAListenerOnce(t *testing.T) {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "uid"}}
	object.Spec.Volumes = []corev1.Volume{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	published := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(object), object.UID, "node-1")
	published.Spec.Listeners = map[string]listenersv1alpha1.PodListener{"a": {ListenerName: "web"}, "b": {ListenerName: "web"}, "c": {ListenerName: "own"}}
	want := []string{"web", "own"}
	w := walk.New(&check.Examination{Backends: backends.All(), Client: fake.NewClientBuilder().WithScheme(fakeclient.Scheme()).WithObjects(published).Build()})
	if got := newPod(t.Context(), w, object).listeners; !slices.Equal(got, want) {
		t.Errorf("Listeners %q, want %q", got, want)
	}
}

func TestNodeHasWhatIsKnownAboutIt(t *testing.T) {
	g, own := &graph{nodes: map[string]*subject{}}, check.Finding{Kind: "Node", Name: "node-1", State: check.OK}
	g.addPod(&subject{node: "node-1", report: &check.Report{Findings: []check.Finding{
		own, {Kind: "Node", Name: "node-2", State: check.Failed}, {Kind: "Pod", Name: "node-1", State: check.Failed},
	}}})
	g.addPod(&subject{node: "node-3", report: &check.Report{}})
	if got := g.nodes["node-1"].says; got != own {
		t.Errorf("node-1: %+v", got)
	}
	if got := g.nodes["node-3"].says.State; got != check.Unknown {
		t.Errorf("node-3: %s", got)
	}
}
