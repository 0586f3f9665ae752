package listener

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
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
		})
	}
}
