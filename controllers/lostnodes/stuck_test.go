package lostnodes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/names"
)

const conflicts = "0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 Insufficient cpu."

// The scheduler says neither which volume that is nor which node it needs.
func TestPodThatWaitsForTheNodeOfItsVolumeIsToldWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"cordoned":                       {all(exists(), cordoned, has(rejected(conflicts))), []string{"Pod web-0 can only run on node node-1, which claim listener-web-0 is pinned to", "because of its taint node.kubernetes.io/unschedulable", names.AnnotationRelease}},
		"full":                           {all(exists(), has(rejected(conflicts))), []string{"node-1", "because of what the scheduler says: 0/2 nodes are available"}},
		"rejected for another reason":    {all(exists(), has(rejected("0/2 nodes are available: 2 Insufficient cpu."))), nil},
		"whose volume is being released": {all(exists(), has(rejected(conflicts)), annotated(ago(0))), nil},
		"whose volume is not pinned":     {func(w *world) { w.Volume.Spec.NodeAffinity, w.pods = nil, []*corev1.Pod{rejected(conflicts)} }, nil},
		"scheduled":                      {all(exists(), has(pod("node-1"))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(tc.change).start(t, interceptor.Funcs{})
			for range 2 {
				r.reconcile()
			}
			got := warnings(r)
			if len(tc.want) == 0 && len(got) > 0 || len(tc.want) > 0 && len(got) != 2 { // one on the claim, one on the Pod
				t.Fatalf("events %q", got)
			}
			for _, part := range tc.want {
				if !strings.Contains(got[0], part) {
					t.Errorf("event %q does not contain %q", got[0], part)
				}
			}
			if len(tc.want) == 0 {
				return
			}
			r.clock.SetTime(start.Add(31 * time.Minute))
			r.reconcile()
			if got := warnings(r); len(got) != 2 {
				t.Errorf("after half an hour: events %q", got)
			}
		})
	}
}

// That the node is lost is confirmed and recorded first.
func TestPodOfALostNodeIsToldWhatFollows(t *testing.T) {
	w := newWorld()
	w.pods = []*corev1.Pod{rejected(conflicts)}
	r := w.start(t, interceptor.Funcs{})
	for _, want := range []int{0, 2} { // one on the claim, one on the Pod
		r.reconcile()
		got := warnings(r)
		if len(got) != want {
			t.Fatalf("events %q, want %d", got, want)
		}
		for _, part := range []string{"Pod web-0 cannot be scheduled: node node-1, which PersistentVolume pvc-claim-uid is pinned to, does not exist", "will be released at"} {
			if want > 0 && !strings.Contains(got[0], part) {
				t.Errorf("event %q does not contain %q", got[0], part)
			}
		}
	}
}

// recordedEvents has the events by the names of their objects.
type recordedEvents map[string][]string

// Eventf implements events.EventRecorder.
func (r recordedEvents) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	name := regarding.(client.Object).GetName()
	r[name] = append(r[name], reason+" "+fmt.Sprintf(note, args...))
}

// A Pod that shares the claim and runs is as it should be.
func TestOnlyThePodsThatWaitForTheNodeOfASharedVolumeAreToldSo(t *testing.T) {
	w := newWorld()
	w.nodes = append(w.nodes, node("node-1"))
	running := pod("node-1")
	running.Name, running.UID = "running", "running-uid"
	first, second := rejected(conflicts), rejected(conflicts)
	first.Name, first.UID, second.Name, second.UID = "waiting-a", "a-uid", "waiting-b", "b-uid"
	w.pods = []*corev1.Pod{running, second, first}
	r, recorded := w.start(t, interceptor.Funcs{}), recordedEvents{}
	r.Events = recorded
	for range 2 {
		r.reconcile()
	}
	for name, about := range map[string]string{"listener-web-0": "waiting-a", "waiting-a": "waiting-a", "waiting-b": "waiting-b"} {
		if got := recorded[name]; len(got) != 1 || !strings.HasPrefix(got[0], "PinnedToNode Pod "+about+" can only run on node node-1") {
			t.Errorf("events of %s: %q, want one about Pod %s", name, got, about)
		}
	}
	if got := recorded["running"]; len(got) != 0 {
		t.Errorf("events of the Pod that runs: %q", got)
	}
}

// warnings returns the warnings PinnedToNode since the last call.
func warnings(r *run) (found []string) {
	for len(r.events) > 0 {
		if e := <-r.events; strings.HasPrefix(e, "Warning PinnedToNode ") {
			found = append(found, e)
		}
	}
	return found
}
