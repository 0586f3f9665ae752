package restart_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/restart"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// Each is evicted when the one before is replaced and ready, although the PodDisruptionBudget permits more, and
// although the operator restarts after each eviction. A budget that permits none is respected.
func TestPodsOfAControllerAreEvictedOneAtATime(t *testing.T) {
	g := NewWithT(t)
	s := &set{T: t, Client: apiserver.Client(t), namespace: apiserver.Namespace(t)}
	s.createAll(3)
	cfg := apiserver.Config(t)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &watchedEvictions{set: s, next: next} })
	stop := s.startOperator(cfg)

	g.Eventually(s.events).WithTimeout(apiserver.Timeout).Should(ContainElement(HavePrefix(listenersv1alpha1.ReasonEvictionRefused)))
	if evicted := s.terminating(); len(evicted) != 0 {
		t.Fatalf("the budget permits no eviction, and there is one of %v", evicted)
	}
	s.permit(10)
	stop()
	for range 3 {
		stop := s.startOperator(cfg)
		g.Eventually(s.terminating).WithTimeout(apiserver.Timeout).Should(HaveLen(1))
		stop()
		stop = s.startOperator(cfg) // remembers nothing, and finds a Pod that is being deleted
		s.replace(s.terminating()[0])
		stop()
	}
	for i := range 3 {
		if name := fmt.Sprintf("web-%d", i); s.replaced[name] != 1 {
			t.Errorf("%s was replaced %d times", name, s.replaced[name])
		}
	}
}

// set is a StatefulSet whose controller is the test.
type set struct {
	*testing.T
	client.Client
	namespace string
	set       *appsv1.StatefulSet
	budget    *policyv1.PodDisruptionBudget
	// gracePeriod is that of the Pods. If it is 0, a Pod is gone when it is evicted; nil means Kubernetes' default.
	gracePeriod *int64
	// replaced has how often a Pod was replaced, by name.
	replaced map[string]int
}

// startOperator starts the controller, and returns a function that stops it.
func (s *set) startOperator(cfg *rest.Config) (stop func()) {
	s.Helper()
	_, stop = apiserver.RunManager(s.T, cfg, "operators", func(mgr ctrl.Manager) error {
		return (&restart.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(names.EventReporter), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	return stop
}

func (s *set) must(err error) {
	s.Helper()
	check.Must(s, err)
}

// createAll creates the StatefulSet, its Pods, which are ready and outdated, and a budget that permits no eviction.
func (s *set) createAll(replicas int32) {
	s.Helper()
	s.replaced = map[string]int{}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.set = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: selector, ServiceName: "web",
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		},
	}}
	s.must(s.Create(s.Context(), s.set))
	s.budget = &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: ptr.To(intstr.FromInt32(1))},
	}
	s.must(s.Create(s.Context(), s.budget))
	s.permit(0)
	for i := range replicas {
		s.createPod(fmt.Sprintf("web-%d", i), outdated)
	}
}

// permit lets the budget permit evictions, as its controller does.
func (s *set) permit(disruptions int32) {
	s.Helper()
	s.must(s.Get(s.Context(), client.ObjectKeyFromObject(s.budget), s.budget))
	s.budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: s.budget.Generation, DisruptionsAllowed: disruptions, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3}
	s.must(s.Status().Update(s.Context(), s.budget))
}

// outdated are addresses of a Pod that has others now.
var outdated = []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: "IP", Ports: map[string]int32{"http": 80}}}

// createPod creates a ready Pod of the StatefulSet, if there is one, with the address 192.0.2.2, that started with
// these addresses, or with that one.
func (s *set) createPod(name string, start []listenersv1alpha1.IngressAddress) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: name, Labels: map[string]string{"app": "web"},
	}, Spec: corev1.PodSpec{
		NodeName: "node-1", TerminationGracePeriodSeconds: s.gracePeriod, Containers: []corev1.Container{{Name: "web", Image: "web"}},
		Volumes: []corev1.Volume{objects.ClaimVolume("listener", "listener-"+name)},
	}}
	if s.set != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	}
	s.must(s.Create(s.Context(), pod))
	now := []listenersv1alpha1.IngressAddress{{Address: "192.0.2.2", AddressType: "IP", Ports: map[string]int32{"http": 80}}}
	object := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, "node-1")
	object.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{Scope: "Node", IngressAddresses: now}
	if start == nil {
		start = now
	}
	object.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": start}
	object.Spec.RestartOnChange = []string{"listener"}
	s.must(s.Create(s.Context(), object))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.must(s.Status().Update(s.Context(), pod))
}

// pods returns the Pods.
func (s *set) pods() []corev1.Pod {
	var all corev1.PodList
	if err := s.List(s.Context(), &all, client.InNamespace(s.namespace)); err != nil {
		s.Error(err)
	}
	return all.Items
}

// terminating returns the names of the Pods that are being deleted.
func (s *set) terminating() (names []string) {
	for _, p := range s.pods() {
		if p.DeletionTimestamp != nil {
			names = append(names, p.Name)
		}
	}
	return names
}

// events returns the reasons and notes of the events.
func (s *set) events() (found []string) {
	var all corev1.EventList
	if err := s.List(s.Context(), &all, client.InNamespace(s.namespace)); err != nil {
		s.Error(err)
	}
	for _, e := range all.Items {
		found = append(found, e.Reason+": "+e.Message)
	}
	return found
}

// replace deletes a Pod that is being deleted, as the kubelet does when it has ended, and creates its successor.
func (s *set) replace(name string) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	s.must(s.Delete(s.Context(), pod, client.GracePeriodSeconds(0)))
	NewWithT(s).Eventually(func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), client.ObjectKeyFromObject(pod), pod))
	}).WithTimeout(apiserver.Timeout).Should(BeTrue())
	s.replaced[name]++
	s.createPod(name, nil)
}

// watchedEvictions checks, at each eviction that a client requests, that all other Pods are there and ready.
type watchedEvictions struct {
	*set
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w *watchedEvictions) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, "/eviction") {
		return w.next.RoundTrip(request)
	}
	pods := w.pods()
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp != nil || !claim.PodReady(p) {
			w.Errorf("%s while %s is not ready", request.URL.Path, p.Name)
		}
	}
	if len(pods) != 3 {
		w.Errorf("%s while there are %d Pods", request.URL.Path, len(pods))
	}
	return w.next.RoundTrip(request)
}
