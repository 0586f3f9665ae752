package listener

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/write"
	"github.com/listener-operator/listener-operator/internal/names"
)

// withAddress gives the Listener a node with an address.
func (s *state) withAddress() *state {
	return s.with(newNode("node-1", "10.0.0.1"), newVolume("pv-1", lastMountedOn("node-1")))
}

// The write costs nothing while Pods start, and is not repeated.
func TestNumbersAreRememberedWhenAListenerHasExistedForAMoment(t *testing.T) {
	s := newState(nodePort).withAddress()
	created := time.Unix(1_800_000_000, 0)
	s.listener.CreationTimestamp = metav1.NewTime(created)
	patches := 0
	o := s.operator(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		patches++
		return c.Patch(ctx, o, p, options...)
	}})
	for _, step := range []struct {
		age, next time.Duration
		node      int32
		want      string
		patches   int
	}{
		{age: 2 * time.Second, next: write.RememberAfter - 2*time.Second},
		{age: write.RememberAfter + 1, want: `{"nodePorts":{"http":30080}}`, patches: 1},
		{age: time.Hour, want: `{"nodePorts":{"http":30080}}`, patches: 1},
		{age: time.Hour, node: 30081, want: `{"nodePorts":{"http":30081}}`, patches: 2},
	} {
		o.now.SetTime(created.Add(step.age))
		if step.node != 0 {
			change(o, key.Name, func(service *corev1.Service) { service.Spec.Ports[0].NodePort = step.node })
		}
		if next, _ := o.reconcileAfter(0); step.next != 0 && next != step.next {
			t.Fatalf("after %s, again after %s, want %s", step.age, next, step.next)
		}
		if got := o.listener().Annotations[names.AnnotationNumbers]; got != step.want || patches != step.patches {
			t.Errorf("after %s, the annotation is %q after %d patches, want %q after %d", step.age, got, patches, step.want, step.patches)
		}
	}
}

// Users may write the annotation, where no policy denies it.
func TestRememberedNumbersAreRequestedIfTheyAreAllowedAndFree(t *testing.T) {
	range30 := func(s *state) { s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Range: "30000-30099"} }
	other := func(s *state) {
		o := s.listener.DeepCopy()
		o.Name, o.UID, o.Status = "other", "other", &listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": 30042}}
		s.with(o)
	}
	sharing := func(s *state) {
		s.class.Spec.ServiceType = loadBalancer
		s.class.Spec.LoadBalancer = &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: "20000-20000"}}
	}
	wide := func(s *state) { s.class.Spec.LoadBalancer.Sharing.PortRange = "20000-20099" }
	routed := func(s *state) {
		s.class.Spec.ServiceType = clusterIP
		s.class.Spec.ClusterIPs = &listenersv1alpha1.ClusterIPs{CIDRs: []listenersv1alpha1.CIDR{"10.97.0.8/30"}}
	}
	const restored = "Normal Restored"
	for name, tc := range map[string]struct {
		text   string
		change []func(*state)
		want   string // of the requested Service
		events []string
	}{
		"node port":                              {`{"nodePorts":{"http":30042}}`, nil, "node port 30042", []string{restored}},
		"node port of a range":                   {`{"nodePorts":{"http":30042}}`, []func(*state){range30}, "node port 30042", []string{restored}},
		"node port outside of the class's range": {`{"nodePorts":{"http":31042}}`, []func(*state){range30}, "", []string{restored, "http: 30061 instead of 31042 (the class has another range)"}},
		"no port":                                {`{"nodePorts":{"http":-1}}`, nil, "node port 0", []string{restored}},
		"node port of another Listener":          {`{"nodePorts":{"http":30042}}`, []func(*state){other}, "node port 0", []string{restored}},
		"node port of another Listener, in a range": {`{"nodePorts":{"http":30042}}`, []func(*state){other, range30}, "", []string{restored,
			"instead of 30042 (another Service or Listener has it)"}},
		"node port of another name":       {`{"nodePorts":{"https":30042}}`, nil, "node port 0", []string{restored}},
		"not JSON":                        {`nodePorts`, nil, "node port 0", []string{restored}},
		"an unknown field":                {`{"nodePorts":{"http":30042},"more":1}`, nil, "node port 0", []string{restored}},
		"a field twice":                   {`{"nodePorts":{"http":30042},"nodePorts":{"http":30043}}`, nil, "node port 0", []string{restored}},
		"too long":                        {`{"nodePorts":{"http":30042}` + strings.Repeat(" ", observe.MaxNumbers) + `}`, nil, "node port 0", []string{restored}},
		"port at a shared address":        {`{"sharedPorts":{"http":20042}}`, []func(*state){sharing, wide}, "port 20042", []string{restored}},
		"port outside of the range":       {`{"sharedPorts":{"http":25000}}`, []func(*state){sharing}, "port 20000", []string{restored, "Warning NumbersChanged"}},
		"cluster IP":                      {`{"clusterIPs":["10.97.0.10"]}`, []func(*state){routed}, "cluster IP 10.97.0.10", []string{restored}},
		"cluster IP outside the range":    {`{"clusterIPs":["10.98.0.10"]}`, []func(*state){routed}, "", []string{restored, "instead of 10.98.0.10"}},
		"a cluster IP that is no address": {`{"clusterIPs":["everything"]}`, []func(*state){routed}, "", []string{restored, "instead of everything"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(nodePort).withAddress()
			s.service, s.listener.Annotations = nil, map[string]string{names.AnnotationNumbers: tc.text}
			for _, change := range tc.change {
				change(s)
			}
			got := s.reconcile(t, 1, interceptor.Funcs{}, func(r *Reconciler) { observePorts(t, r) })
			if got.err != nil || got.service == nil {
				t.Fatalf("the Service is %+v, error %v", got.service, got.err)
			}
			port := got.service.Spec.Ports[0]
			requested := fmt.Sprintf("node port %d, port %d, cluster IP %s", port.NodePort, port.Port, got.service.Spec.ClusterIP)
			if !strings.Contains(requested, tc.want) {
				t.Errorf("requested %s, want %s", requested, tc.want)
			}
			got.events = slices.DeleteFunc(got.events, func(e string) bool { return strings.HasPrefix(e, "Normal WaitingFor") })
			for _, want := range tc.events {
				if !slices.ContainsFunc(got.events, func(e string) bool { return strings.Contains(e, want) }) {
					t.Errorf("no event %q: %q", want, got.events)
				}
			}
			if len(got.events) != len(tc.events) {
				t.Errorf("the events are %q", got.events)
			}
		})
	}
}
