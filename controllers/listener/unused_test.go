package listener

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// newSharedState returns a Listener whose node ports do not forward, with a claim's volume on each of three nodes. One
// of the volumes is pinned.
func newSharedState() *state {
	return newState(nodePort).change(func(s *state) {
		s.class.Spec.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	}).with(
		newNode("node-1", "10.0.0.1"), newNode("node-2", "10.0.0.2"), newNode("node-3", "10.0.0.3"),
		newVolume("pv-1", lastMountedOn("node-1")), newVolume("pv-2", pinnedTo("node-2")), newVolume("pv-3", lastMountedOn("node-3")),
	)
}

// replicas returns a Listener whose Pods start and stop, each on the node of its number.
func (s *state) replicas(t *testing.T, started ...int) *operator {
	t.Helper()
	o := s.operator(t, interceptor.Funcs{})
	o.start(started...)
	return o
}

func podOn(n int) []client.Object {
	number := strconv.Itoa(n)
	pod := newHostPortPod(number, "node-"+number, 30080)
	return []client.Object{pod, newMount(number, "node-"+number, "pv-"+number)}
}

func (r *operator) start(numbers ...int) {
	r.t.Helper()
	for _, n := range numbers {
		r.create(podOn(n)...)
	}
}

func (r *operator) stop(numbers ...int) {
	r.t.Helper()
	for _, n := range numbers {
		r.delete(podOn(n)...)
	}
}

// published returns the numbers of the nodes whose addresses are published, with spaces in between.
func (r *operator) published() string {
	r.t.Helper()
	var numbers []string
	_, empty, _ := strings.Cut(observe.Condition(r.listener(), listenersv1alpha1.ListenerReady).Message, "do not forward to others: ")
	for _, a := range r.listener().Status.IngressAddresses {
		number := strings.TrimPrefix(a.Address, "10.0.0.")
		if strings.Contains(empty, "node-"+number) {
			number += "!"
		}
		numbers = append(numbers, number)
	}
	return strings.Join(numbers, " ")
}

// An address without a Pod is left out after half an hour, and is there again with its Pod. What is ordinary changes
// nothing, and needs no write.
func TestUnusedNodesAreLeftOut(t *testing.T) {
	type step struct {
		start, stop []int
		restart     bool // of the operator
		change      func(*operator)
		after       time.Duration
		want        string        // the numbers of the published nodes
		again       time.Duration // when to reconcile again
	}
	all := []int{1, 2, 3}
	for name, steps := range map[string][]step{
		"scaled down and up": {
			{start: all, want: "1 2 3"},
			{stop: []int{2, 3}, want: "1 2 3", again: time.Minute},
			{after: 29 * time.Minute, want: "1 2! 3!", again: time.Minute},
			{after: time.Minute, want: "1"},
			{after: 23 * time.Hour, want: "1"},
			{start: []int{2}, want: "1 2"},
			{start: []int{3}, want: "1 2 3"},
		},
		"the operator restarts": {
			{start: all, want: "1 2 3"},
			{stop: []int{3}, want: "1 2 3", again: time.Minute},
			{after: 29 * time.Minute, restart: true, want: "1 2 3", again: time.Minute},
			{after: 30 * time.Minute, want: "1 2"},
			{restart: true, want: "1 2"},
			{stop: []int{2}, want: "1 2", again: time.Minute},
			{restart: true, want: "1 2", again: time.Minute},
		},
		"the operator restarts when a node without a Pod is reported": {
			{start: all, want: "1 2 3"},
			{stop: []int{3}, want: "1 2 3", again: time.Minute},
			{after: time.Minute, want: "1 2 3!", again: 29 * time.Minute},
			{restart: true, want: "1 2 3!", again: 30 * time.Minute},
			{start: []int{3}, want: "1 2 3"},
		},
		"a Pod restarts": {
			{start: all, want: "1 2 3"},
			{stop: []int{3}, want: "1 2 3", again: time.Minute},
			{after: 29 * time.Minute, start: []int{3}, want: "1 2 3"},
			{after: 20 * time.Minute, stop: []int{3}, want: "1 2 3", again: time.Minute},
		},
		"the Pods restart one after the other": {
			{start: all, want: "1 2 3"},
			{stop: []int{3}, want: "1 2 3", again: time.Minute},
			{after: 20 * time.Minute, start: []int{3}, stop: []int{2}, want: "1 2 3", again: time.Minute},
			{after: 20 * time.Minute, start: []int{2}, stop: []int{1}, want: "1 2 3", again: time.Minute},
		},
		"stopped, and started one after the other": {
			{start: all, want: "1 2 3"},
			{stop: all, want: "1 2 3"},
			{after: 23 * time.Hour, start: []int{1}, want: "1 2 3", again: time.Minute},
			{after: 29 * time.Minute, start: []int{2}, want: "1 2 3", again: time.Minute},
			{after: 29 * time.Minute, start: []int{3}, want: "1 2 3"},
		},
		"scaled down, then stopped, and started elsewhere": {
			{start: all, want: "1 2 3"},
			{stop: []int{2, 3}, want: "1 2 3", again: time.Minute},
			{after: 30 * time.Minute, want: "1"},
			{stop: []int{1}, want: "1"},
			{after: 23 * time.Hour, restart: true, want: "1"},
			{start: []int{2}, want: "1 2", again: time.Minute},
			{after: 30 * time.Minute, want: "2"},
		},
		"the last node is deleted": {
			{start: all, want: "1 2 3"},
			{stop: []int{2, 3}, want: "1 2 3", again: time.Minute},
			{after: 30 * time.Minute, want: "1"},
			{change: func(r *operator) { r.delete(newNode("node-1", "")) }, want: "2 3"},
		},
		"the class is deleted and created again": {
			{start: all, want: "1 2 3"},
			{stop: []int{2, 3}, want: "1 2 3", again: time.Minute},
			{after: 30 * time.Minute, want: "1"},
			{change: func(r *operator) { r.delete(newSharedState().class) }, want: "1"},
			{change: func(r *operator) { r.create(newSharedState().class) }, want: "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, last := newSharedState().replicas(t), ""
			for i, step := range steps {
				r.now.SetTime(r.now.Now().Add(step.after))
				r.start(step.start...)
				r.stop(step.stop...)
				if step.restart {
					r.restart()
				}
				if step.change != nil {
					step.change(r)
				}
				again, writes := r.reconcileAfter(0)
				if got := r.published(); got != step.want || again != step.again {
					t.Errorf("step %d: published %q, again after %s; want %q and %s", i+1, got, again, step.want, step.again)
				}
				if written := slices.Contains(writes, "apply status"); written != (step.want != last) && step.change == nil {
					t.Errorf("step %d: writes %q", i+1, writes)
				}
				last = step.want
			}
		})
	}
}

// Nothing is left out that may answer, nor from what a claim has for itself.
func TestNodesThatMayAnswerAreNotLeftOut(t *testing.T) {
	const all, used = "1 2 3", "1"
	overrides := func(spec string) func(*state) {
		return func(s *state) { s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":` + spec + `}`) }
	}
	for name, tc := range map[string]struct {
		change func(*state)
		want   string
	}{
		"Local":                      {func(*state) {}, used},
		"Local by an override":       {overrides(`{"externalTrafficPolicy":"Local"}`), used},
		"a selector of the class":    {overrides(`{"selector":{"app":"other"}}`), all},
		"the default traffic policy": {func(s *state) { s.class.Spec.ServiceExternalTrafficPolicy = nil }, all},
		"the traffic policy Cluster": {overrides(`{"externalTrafficPolicy":"Cluster"}`), all},
		"host ports": {func(s *state) {
			withHostPorts(s)
			s.class.Spec.ServiceExternalTrafficPolicy = nil
		}, used},
		"no address would remain": {func(s *state) { s.others[0].(*corev1.Node).Status.Addresses = nil }, "2 3"},
		"the Listener of a claim": {func(s *state) {
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: key.Name, UID: "claim"}}
		}, all},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSharedState().change(tc.change).replicas(t, 1, 2, 3)
			r.reconcileAfter(0)
			r.stop(2, 3)
			r.reconcileAfter(0)
			again, _ := r.reconcileAfter(30 * time.Minute)
			if got := r.published(); got != tc.want || again != 0 {
				t.Errorf("published %q, want %q; again after %s", got, tc.want, again)
			}
			status, ready := r.listener().Status, observe.Condition(r.listener(), listenersv1alpha1.ListenerReady)
			if tc.want == used && (!slices.Equal(status.UnusedNodes, []string{"node-2", "node-3"}) || status.Summary.Nodes != "node-1" ||
				!strings.Contains(ready.Message, "node-2 (no Pod on it mounts the Listener)")) {
				t.Errorf("unused nodes %q, summary %q, message %q", status.UnusedNodes, status.Summary.Nodes, ready.Message)
			}
		})
	}
}

// A Listener has reservations on the nodes of its volumes and of the Pods that mount them.
func TestReservedNodes(t *testing.T) {
	given := func(objects ...client.Object) *state { return newState(nodePort).with(objects...) }
	const pending, running, failed, succeeded = corev1.PodPending, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded
	unmounted := func(*corev1.PersistentVolume) {}
	// ofTheListener returns a Listener that was created for a claim, of a Pod of a StatefulSet if pod is not empty.
	ofTheListener := func(pod string, change func(*corev1.PersistentVolume), objects ...client.Object) *state {
		s := given(newClaim(key.Name, ""), newVolume("pv-1", boundTo(key.Name, change))).with(objects...)
		ofClaim(s.listener, pod)
		return s
	}
	labelled := func(uid, node string) *corev1.Pod { return newLabelledPod(uid, node, key.Name, running) }
	original := labelled("1", "a")
	original.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true)}}
	ofTwo := newMount("2", "b", "pv-2") // a Pod with a volume of this Listener and one of another one
	ofTwo.Spec.Listeners["another"] = listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: "pv-3", ListenerName: "another"}
	ofAnother := newLabelledPod("1", "a", "pvc-1", running)
	ofAnother.Labels = map[string]string{names.PodMountLabel("another-uid"): "another"}
	pinnedAndMounted := func(pv *corev1.PersistentVolume) {
		pinnedTo("a")(pv)
		lastMountedOn("c")(pv)
	}
	ofDeletedClaim := func(pv *corev1.PersistentVolume) {
		lastMountedOn("b")(pv)
		pv.Spec.ClaimRef.UID = "deleted-claim-of-this-name"
	}
	ofOtherDriver := func(pv *corev1.PersistentVolume) {
		lastMountedOn("a")(pv)
		pv.Spec.CSI.Driver = "other.example.com"
	}
	for name, tc := range map[string]struct {
		state *state
		want  string // names of nodes
	}{
		"nodes that volumes are pinned to or were mounted on":                   {given(newVolume("pv-1", lastMountedOn("b")), newVolume("pv-2", pinnedTo("a"))), "a b"},
		"current mount takes precedence over the last mount":                    {given(newVolume("pv-1", lastMountedOn("a")), newMount("1", "b", "pv-1"), newPod("1", pending)), "b"},
		"Pod that was deleted does not mount, although its PodListeners exists": {given(newVolume("pv-1", lastMountedOn("a")), newMount("1", "b", "pv-1")), "a"},
		"copy of a Pod with a controller does not count": {
			ofTheListener("", unmounted, newMount("1", "a", "pv-1"), newMount("2", "b", "pv-1"), original, labelled("2", "b")), "a",
		},
		"copy of a Pod of a StatefulSet does not count, even while that does not exist": {
			ofTheListener("web-0", lastMountedOn("a"), newMount("2", "b", "pv-1"), labelled("2", "b")), "a",
		},
		"Pods without a controller all count": {
			ofTheListener("", unmounted, newMount("1", "a", "pv-1"), newMount("2", "b", "pv-1"), labelled("1", "a"), labelled("2", "b")), "a b",
		},
		"pinned node takes precedence over mounts": {
			given(newVolume("pv-1", pinnedTo("a")), newMount("1", "b", "pv-1"), newPod("1", running), newVolume("pv-2", pinnedAndMounted)), "a",
		},
		"volume mounted by several Pods": {
			given(newVolume("pv-1", nil), newMount("1", "b", "pv-1"), newMount("2", "a", "pv-1"), newPod("1", running), newPod("2", running)), "a b",
		},
		"Pod that mounts a volume which does not exist any more": {
			given(newMount("1", "a", "pv-1"), newPod("1", running), ofTwo, newPod("2", running), newVolume("pv-2", pinnedTo("a"))), "a",
		},
		"Pods with the label of the Listener, before the PodListeners of Stackable's operator are written again": {
			given(newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", unmounted)),
				newMount("1", "", ""), newLabelledPod("1", "a", "pvc-1", running), newMount("2", "b", "pv-1"), newLabelledPod("2", "b", "pvc-1", running),
				newLabelledPod("3", "c", "pvc-1", succeeded), newLabelledPod("4", "d", "another", running), newLabelledPod("5", "", "pvc-1", pending)), "a b",
		},
		"Pod with the label of another Listener, or without one, before its PodListeners are written": {
			given(newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", unmounted)), ofAnother), "",
		},
		"finished Pod does not mount": {
			given(newVolume("pv-1", lastMountedOn("a")), newMount("1", "a", "pv-1"), newMount("2", "b", "pv-1"), newPod("1", failed), newPod("2", running)), "b",
		},
		"volume of a finished Pod stays reserved for the next Pod": {
			given(newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))), newMount("1", "a", "pv-1"), newPod("1", failed)), "a",
		},
		"ephemeral volume of a finished Pod": {
			given(newClaim("pvc-1", "1"), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))), newMount("1", "a", "pv-1"), newPod("1", succeeded),
				newClaim("pvc-2", "2"), newVolume("pv-2", boundTo("pvc-2", lastMountedOn("b"))), newMount("2", "b", "pv-2"), newPod("2", running)), "b",
		},
		"ephemeral volume of a deleted Pod": {given(newClaim("pvc-1", "1"), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a")))), ""},
		"volume of a deleted claim": {
			given(newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))), newClaim("pvc-2", ""), newVolume("pv-2", boundTo("pvc-2", ofDeletedClaim))), "",
		},
		"pinned volume of a finished Pod": {
			given(newClaim("pvc-1", "1"), newVolume("pv-1", boundTo("pvc-1", pinnedTo("a"))), newMount("1", "a", "pv-1"), newPod("1", succeeded)), "a",
		},
		"volume of another driver with our labels": {given(newVolume("pv-1", ofOtherDriver), newMount("1", "a", "pv-1"), newPod("1", running)), ""},
	} {
		got, err := reservation.Placement(t.Context(), tc.state.newClient(t), tc.state.listener, true)
		if nodes := strings.Join(got.MissingNodes, " "); nodes != tc.want || err != nil {
			t.Errorf("%s: nodes %q, want %q (%v)", name, nodes, tc.want, err)
		}
	}
}

// ofClaim has the claim with the name of the Listener own it and, if pod is not empty, this Pod of a StatefulSet.
func ofClaim(listener *listenersv1alpha1.Listener, pod string) {
	listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: key.Name, UID: types.UID(key.Name)}}
	if pod != "" {
		listener.Labels = map[string]string{appsv1.StatefulSetPodNameLabel: pod}
	}
}

// Clients are led to other nodes before the Pods of a node that is drained have ended, and back when it takes Pods
// again. A cordon alone changes nothing. If all nodes are drained, their addresses stay.
func TestDrainedNodesAreLeftOut(t *testing.T) {
	s := newSharedState()
	s.class.Spec.ServiceExternalTrafficPolicy = nil
	r := s.replicas(t, 1, 2, 3)
	cordon := func(name string, cordoned bool) {
		change(r, name, func(node *corev1.Node) { node.Spec.Unschedulable = cordoned })
	}
	end := func(n int) {
		pod := podOn(n)[0].(*corev1.Pod)
		check.Must(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		pod.Finalizers = []string{"example.com/keep"}
		check.Must(t, errors.Join(r.api.Update(t.Context(), pod), r.api.Delete(t.Context(), pod)))
	}
	for i, step := range []struct {
		do   func()
		want string
		says string // of the nodes that are left out
	}{
		{func() { cordon("node-2", true) }, "1 2 3", ""},
		{func() { end(2) }, "1 3", "left out: node-2 (is being drained)"},
		{func() { cordon("node-2", false) }, "1 2 3", ""},
		{func() { cordon("node-1", true); cordon("node-2", true); end(1) }, "3", "node-1 (is being drained), node-2 (is being drained)"},
		{func() { cordon("node-3", true) }, "3", "node-1"},
		{func() { end(3) }, "1 2 3", ""},
		{func() { cordon("node-1", false) }, "1", "node-3 (is being drained)"},
	} {
		step.do()
		r.reconcile(key.Name)
		message := observe.Condition(r.listener(), listenersv1alpha1.ListenerReady).Message
		if got := r.published(); got != step.want || !strings.Contains(message, step.says) {
			t.Errorf("step %d: published %q, want %q; message %q", i+1, got, step.want, message)
		}
	}
}
