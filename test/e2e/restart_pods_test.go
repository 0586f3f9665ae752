//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// The load balancer that all Pods share gets another address. The Pods of a StatefulSet with a PodDisruptionBudget are
// evicted, one at a time; then the program that reads its address once has the new one. So are those of a Deployment
// and a DaemonSet. A Pod without a controller keeps running, with new files, and an event says why.
func TestPodsRestartOneAtATimeWhenTheirAddressChanges(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	first, second := s.freeAddress(), s.freeAddress()
	class := s.createBalancedClass(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.OnAddressChange = listenersv1alpha1.OnAddressChangeRestart
		spec.LoadBalancer = &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: "9100-9131"}}
		spec.LoadBalancerAllocateNodePorts = ptr.To(false)
		spec.ServiceAnnotations = map[string]string{"metallb.io/allow-shared-ip": s.namespace}
	})
	s.setPool(first)
	s.create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "broker"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "broker"}}, MinAvailable: ptr.To(intstr.FromInt32(2)),
	}})
	s.create(statefulSet("broker", 3, byClass(class.Name)))
	template := func(name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		p := pod(name, byClass(class.Name))
		return &metav1.LabelSelector{MatchLabels: p.Labels}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
	}
	deployment, daemons := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "front"}}, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}
	deployment.Spec.Selector, deployment.Spec.Template = template("front")
	daemons.Spec.Selector, daemons.Spec.Template = template("edge")
	daemons.Spec.Template.Spec.NodeSelector = onNode(testbed.NodeName(testbed.Nodes()[0]))
	s.create(deployment)
	s.create(daemons)
	s.create(pod("single", byClass(class.Name)))

	before := map[string]*corev1.Pod{}
	for _, name := range []string{"broker-0", "broker-1", "broker-2", "single"} {
		before[name] = s.awaitReady(name)
		s.awaitStarted(s.awaitPodAddress(before[name], first), first)
	}
	for _, app := range []string{"front", "edge"} {
		before[app] = s.awaitReadyOf(app, "")
		s.awaitPodAddress(before[app], first)
	}
	unavailable := s.watchUnavailable("broker")

	s.setPool(second)
	for _, name := range []string{"broker-0", "broker-1", "broker-2"} {
		p := s.awaitReady(name, before[name])
		own := s.awaitPodAddress(p, second)
		s.awaitAnswer(own, name)
		s.awaitFilesAt(own, own)
		s.awaitStarted(own, second)
		t.Logf("event: %s", s.awaitEvent("Pod", name, listenersv1alpha1.ReasonAddressChanged, first, second))
	}
	for _, app := range []string{"front", "edge"} {
		s.awaitStarted(s.awaitPodAddress(s.awaitReadyOf(app, before[app].UID), second), second)
	}
	if most := unavailable(); most != 1 {
		t.Errorf("%d Pods of the StatefulSet were not available at a time", most)
	}
	t.Logf("event: %s", s.awaitEvent("Pod", "single", listenersv1alpha1.ReasonNotEvicted, first, second, "no controller"))
	single := s.awaitReady("single")
	own := s.awaitPodAddress(single, second)
	s.awaitFilesAt(own, own)
	s.awaitStarted(own, first)
	if single.UID != before["single"].UID || single.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the Pod without a controller was restarted")
	}
}

// awaitStarted waits until the test server at an address says that it has read this address when it started.
func (s *scenario) awaitStarted(at listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		got, err := request(ctx, at, "/started")
		if err == nil && got != want {
			err = fmt.Errorf("the program started with %s, want %s", got, want)
		}
		return err
	})
}

// awaitReadyOf waits until a Pod with the label app is ready, other than the one with this uid, and returns it.
func (s *scenario) awaitReadyOf(app string, before types.UID) *corev1.Pod {
	s.Helper()
	options := &client.ListOptions{Namespace: s.namespace, LabelSelector: labels.SelectorFromSet(labels.Set{"app": app})}
	found, err := watchUntil(s.timeoutContext(), &corev1.Pod{}, options, func(kind watch.EventType, p *corev1.Pod) bool {
		return kind != watch.Deleted && p.UID != before && isReady(p)
	})
	if err != nil {
		s.Fatalf("waiting for a Pod of %s: %v", app, err)
	}
	return found
}

// watchUnavailable watches the Pods with the label app, which are available. The function that it returns returns how
// many of their names had no available Pod at a time, at most, until then.
func (s *scenario) watchUnavailable(app string) func() int {
	s.Helper()
	changes, err := api.Watch(s.ctx, &corev1.PodList{}, client.InNamespace(s.namespace), client.MatchingLabels{"app": app})
	if err != nil {
		s.Fatalf("watching Pods: %v", err)
	}
	result := make(chan int)
	go func() {
		available, most := map[string]bool{}, 0
		for change := range changes.ResultChan() {
			p, ok := change.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			available[p.Name] = change.Type != watch.Deleted && p.DeletionTimestamp == nil && isReady(p)
			missing := 0
			for _, is := range available {
				if !is {
					missing++
				}
			}
			most = max(most, missing)
		}
		result <- most
	}()
	return func() int {
		changes.Stop()
		return <-result
	}
}
