package lostnodes

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// start is the time at which the tests begin. The volume was created an hour earlier.
var start = time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)

// ago returns an earlier time as annotations have it.
func ago(d time.Duration) string { return start.Add(-d).Format(time.RFC3339) }

// world is the shared one, with other Pods and nodes.
type world struct {
	*objects.World
	pods  []*corev1.Pod
	nodes []*corev1.Node
}

// newWorld returns the claim of the replica web-0, whose volume is pinned to node-1, which does not exist. node-2
// exists. The class releases volumes after ten minutes. No Pod exists. All that is before the changes.
func newWorld(changes ...func(*world)) *world {
	w := &world{World: objects.NewWorld(), nodes: []*corev1.Node{node("node-2")}}
	w.Node, w.Pod = nil, nil
	w.Class.Spec.Pinning = &listenersv1alpha1.Pinning{
		Policy: listenersv1alpha1.PinningPolicyRequired, ReleaseAfter: &metav1.Duration{Duration: 10 * time.Minute},
	}
	w.Claim.Annotations[names.AnnotationProvisioner] = names.Driver
	w.Listener.Generation = 1
	w.Volume.CreationTimestamp, w.Volume.Finalizers = metav1.NewTime(start.Add(-time.Hour)), []string{finalizerProtection}
	w.Volume.Annotations = map[string]string{}
	w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-1")
	w.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	w.ownedBy("PersistentVolume", w.Volume.Name, w.Volume.UID) // as Stackable's listener operator leaves it
	all(changes...)(w)
	return w
}

func (w *world) ownedBy(kind, name string, uid types.UID) {
	w.Listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: uid}}
}

// all makes several changes.
func all(changes ...func(*world)) func(*world) {
	return func(w *world) {
		for _, change := range changes {
			change(w)
		}
	}
}

// exists lets node-1 exist, with these taints.
func exists(taints ...corev1.Taint) func(*world) {
	return func(w *world) { w.nodes = append(w.nodes, node("node-1", taints...)) }
}

// has lets these Pods exist.
func has(pods ...*corev1.Pod) func(*world) { return func(w *world) { w.pods = pods } }

// requirement is what the volume requires of its node.
func (w *world) requirement() *corev1.NodeSelectorRequirement {
	return &w.Volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
}

// deleted marks an object as being deleted, with a finalizer that is not removed.
func deleted[T client.Object](o T) T {
	o.SetDeletionTimestamp(ptr.To(metav1.Now()))
	o.SetFinalizers([]string{"a.example/b"})
	return o
}

// preferred gives the class the policy Preferred, and lets node-1 exist.
func (w *world) preferred() {
	w.Class.Spec.Pinning = &listenersv1alpha1.Pinning{Policy: listenersv1alpha1.PinningPolicyPreferred}
	exists()(w)
}

// node returns a node that has an agent.
func node(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.TopologyKey: name}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
}

// pod returns a Pod that uses the claim, on a node or on none yet.
func pod(onNode string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop", UID: "pod-uid"},
		Spec:       corev1.PodSpec{NodeName: onNode, Volumes: []corev1.Volume{objects.ClaimVolume("listener", "listener-web-0")}},
	}
}

// rejected returns a Pod that the scheduler finds no node for.
func rejected(verdict string) *corev1.Pod {
	p := pod("")
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: verdict,
	}}
	return p
}

func (w *world) objects() []client.Object {
	all := w.Objects()
	for _, p := range w.pods {
		all = append(all, p)
	}
	for _, n := range w.nodes {
		all = append(all, n)
	}
	return all
}

// run is a Reconciler on a fake client.
type run struct {
	*Reconciler
	t      *testing.T
	api    client.WithWatch
	clock  *testingclock.FakePassiveClock
	events chan string
}

// start returns a Reconciler, at the time of start.
func (w *world) start(t *testing.T, intercept interceptor.Funcs) *run {
	t.Helper()
	c := fakeclient.New(t, intercept, w.objects()...)
	recorder := events.NewFakeRecorder(100)
	r := &run{t: t, api: c, clock: testingclock.NewFakePassiveClock(start), events: recorder.Events}
	r.Reconciler = &Reconciler{
		Client: fakeclient.Cached(c, "operators"), APIReader: c, Events: recorder, Clock: r.clock,
		Applier: apply.New(c, names.FieldManagerVolume), conditions: apply.New(c, names.FieldManagerLostNodes),
	}
	return r
}
