package confinement_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// largeObjects are objects of kinds that our policies match, as large as the API server takes.
func largeObjects(namespace string) map[string]client.Object {
	const entries = 8000
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "large", Annotations: map[string]string{"large": strings.Repeat("x", 250<<10)}}
	service := &corev1.Service{ObjectMeta: *meta.DeepCopy()}
	listener := &listenersv1alpha1.Listener{ObjectMeta: *meta.DeepCopy(), Spec: listenersv1alpha1.ListenerSpec{}}
	listener.Annotations[names.AnnotationRelease] = strings.Repeat(",", 1000)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: *meta.DeepCopy()}
	app := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
	ingress := &networkingv1.Ingress{ObjectMeta: *meta.DeepCopy()}
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
	config := &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{}}
	labelled := &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy()}
	labelled.Labels = map[string]string{}
	event := &eventsv1.Event{ObjectMeta: *meta.DeepCopy(), EventTime: metav1.NowMicro(), ReportingController: "a", ReportingInstance: "a"}
	event.Action, event.Reason, event.Type = "A", "A", "Normal"
	event.Regarding = corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web"}
	for i := range entries {
		app.Values = append(app.Values, fmt.Sprint("v", i))
		config.Data[fmt.Sprint("key-", i)] = "value"
		labelled.Labels[fmt.Sprint("key-", i)] = "value"
		listener.Spec.Ports = append(listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: fmt.Sprint("p", i), Port: 80})
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("h%d.example.com", i)})
	}
	for i := range 1000 { // Kubernetes compares each with each
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprint("p", i), Port: int32(i + 1), TargetPort: intstr.FromInt32(80), //nolint:gosec // few
		})
	}
	policy.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{app}
	ingress.Spec.DefaultBackend = &backend
	return map[string]client.Object{
		"Service": service, "Listener": listener, "NetworkPolicy": policy, "Ingress": ingress, "Event": event,
		"ConfigMap": config, "ConfigMap with many labels": labelled,
	}
}

// Whoever may create objects, if only by a dry run, could else have the API server work for long. It is compared with
// itself in a namespace without the policies.
func TestPoliciesCostUsersLittle(t *testing.T) {
	const times = 4
	w := operator.NewWorld(t, apiserver.Config(t))
	confined := w.Operator()
	installNodeAgent(w)()
	w.Confine(confined)
	without := apiserver.NamespaceWithoutPolicies(t)
	unconfined := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: without, Name: "web"}}
	unconfined.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	w.Eventually(func() error { return confined.Create(t.Context(), unconfined.DeepCopy(), client.DryRunAll) }).Should(Succeed())
	create := func(o client.Object) func() {
		return func() {
			for range times {
				check.Must(t, w.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll))
			}
		}
	}
	reference := largeObjects(without)
	for kind, o := range largeObjects(w.Namespace) {
		took, tookWithout, twice := apiserver.ComputesTwice(t, create(o), create(reference[kind]))
		t.Logf("%d large objects of kind %s: %s instead of %s", times, kind, took, tookWithout)
		if twice {
			t.Errorf("a large %s needs %s, and %s without policies", kind, took, tookWithout)
		}
	}
}
