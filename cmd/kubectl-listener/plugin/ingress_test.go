package plugin_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// ingressOf returns an Ingress that belongs to a Listener.
func ingressOf(listener *listenersv1alpha1.Listener) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: listener.Namespace, Name: listener.Name + "-http",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(listener, listenersv1alpha1.GroupVersion.WithKind("Listener"))},
		},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "web.example"}}},
	}
}

// waitForIngress gives the Listener a class of Ingresses, and an Ingress without an address.
func (w *world) waitForIngress(t *testing.T) {
	w.class.Spec = listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: &listenersv1alpha1.IngressExposure{
		ClassName: w.class.Name, HostTemplate: "{listener}.{namespace}.example",
	}}
	w.update(t, w.class)
	w.create(t, ingressOf(w.listener))
	w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForIngress))
}
