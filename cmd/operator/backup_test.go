package main

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// strip leaves of an object what Velero restores with --preserve-nodeports.
func strip(o client.Object) client.Object {
	metadata := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), Annotations: o.GetAnnotations()}
	if metadata.Labels == nil {
		metadata.Labels = map[string]string{}
	}
	metadata.Labels["velero.io/restore-name"] = "monday"
	switch o := o.DeepCopyObject().(type) {
	case *corev1.Service:
		o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
		return &corev1.Service{ObjectMeta: metadata, Spec: o.Spec}
	case *corev1.PersistentVolumeClaim:
		delete(metadata.Annotations, "pv.kubernetes.io/bind-completed")
		delete(metadata.Annotations, "pv.kubernetes.io/bound-by-controller")
		o.Spec.VolumeName = ""
		return &corev1.PersistentVolumeClaim{ObjectMeta: metadata, Spec: o.Spec}
	case *corev1.Pod:
		o.Spec.NodeName = ""
		return &corev1.Pod{ObjectMeta: metadata, Spec: o.Spec}
	case *listenersv1alpha1.Listener:
		return &listenersv1alpha1.Listener{ObjectMeta: metadata, Spec: o.Spec}
	}
	return nil
}

// TestARestoredNamespaceKeepsItsNodePorts whether the operator runs meanwhile or not, and whether Listeners or Services
// come first.
func TestARestoredNamespaceKeepsItsNodePorts(t *testing.T) {
	for name, tc := range map[string]struct {
		away          bool // the operator starts after the restore
		servicesFirst bool
		podsFirst     bool
	}{
		"Listeners first": {},
		"Services first":  {servicesFirst: true},
		"Listeners first, while the operator is away":  {away: true},
		"Services first, while the operator is away":   {away: true, servicesFirst: true},
		"claims and Pods first, without the operator":  {away: true, podsFirst: true},
		"claims, Pods and Services first, without one": {away: true, podsFirst: true, servicesFirst: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMover(t, map[string]listenersv1alpha1.ListenerClassSpec{"ports": {ServiceType: listenersv1alpha1.ServiceTypeNodePort}})
			first := m.start("ports")
			port := fmt.Sprintf("192.0.2.0:%d", m.service().Spec.Ports[0].NodePort)
			m.eventually(first, port)
			w, err := observe(t.Context(), m.Client, m.namespace)
			m.Expect(err).NotTo(HaveOccurred())
			m.stop()
			for _, list := range []client.ObjectList{&listenersv1alpha1.ListenerList{}, &corev1.ServiceList{}, &corev1.PodList{}} {
				m.Eventually(func() int {
					m.Expect(m.List(t.Context(), list, client.InNamespace(m.namespace))).To(Succeed())
					return meta.LenList(list)
				}).Should(BeZero())
			}
			if tc.away {
				m.model.stop()
			}
			exposing := []client.Object{strip(w.listeners[m.claim]), strip(w.services[m.claim])}
			if tc.servicesFirst {
				exposing[0], exposing[1] = exposing[1], exposing[0]
			}
			all := append(exposing, strip(w.claims[m.claim]), strip(w.pods["pod-0"]))
			if tc.podsFirst {
				all = append(all[2:], all[:2]...)
			}
			for _, o := range all { // what exists already, Velero leaves
				m.Expect(client.IgnoreAlreadyExists(m.Create(t.Context(), o))).To(Succeed())
			}
			if tc.away {
				m.model.stop = startOperator(t, apiserver.Config(t), m.namespace)
			}
			pod := &corev1.Pod{}
			m.Expect(m.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: "pod-0"}, pod)).To(Succeed())
			m.eventually(pod.UID, port)
		})
	}
}
