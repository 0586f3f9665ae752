package main

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// strip leaves of an object what Velero restores, with or without --preserve-nodeports.
func strip(o client.Object, preserve bool) client.Object {
	metadata := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), Annotations: o.GetAnnotations()}
	if metadata.Labels == nil {
		metadata.Labels = map[string]string{}
	}
	metadata.Labels["velero.io/backup-name"], metadata.Labels["velero.io/restore-name"] = "monday", "monday-tuesday"
	switch o := o.DeepCopyObject().(type) {
	case *corev1.Service:
		o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
		for i := range o.Spec.Ports {
			if !preserve {
				o.Spec.Ports[i].NodePort = 0
			}
		}
		return &corev1.Service{ObjectMeta: metadata, Spec: o.Spec}
	case *corev1.PersistentVolumeClaim:
		delete(metadata.Annotations, "pv.kubernetes.io/bind-completed")
		delete(metadata.Annotations, "pv.kubernetes.io/bound-by-controller")
		delete(metadata.Annotations, "volume.kubernetes.io/storage-provisioner")
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

// TestARestoredNamespaceKeepsItsNodePorts whether the operator runs meanwhile or not, in which order objects come, and
// whether the backup has the node ports.
func TestARestoredNamespaceKeepsItsNodePorts(t *testing.T) {
	const away, preserved = true, true
	for name, tc := range map[string]struct {
		away, preserved bool   // the operator starts after the restore; the Services have their node ports
		order           string // of the kinds
	}{
		"Listeners first":                                     {!away, preserved, "LSCP"},
		"Services first":                                      {!away, preserved, "SLCP"},
		"Listeners first, without the operator":               {away, preserved, "LSCP"},
		"Services first, without the operator":                {away, preserved, "SLCP"},
		"claims, Pods and Services first, without one":        {away, preserved, "CPSL"},
		"no node ports, Listeners first":                      {!away, !preserved, "LSCP"},
		"no node ports and no Services":                       {!away, !preserved, "LCP"},
		"no node ports, in Velero's order, without one":       {away, !preserved, "CPLS"},
		"no node ports, in Velero's order":                    {!away, !preserved, "CPLS"},
		"no node ports and no Services, without the operator": {away, !preserved, "CPL"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMover(t, nodePortClass())
			first := m.start("ports")
			port := fmt.Sprintf("192.0.2.0:%d", m.service().Spec.Ports[0].NodePort)
			m.eventually(first, port)
			if !tc.preserved || strings.HasPrefix(tc.order, "L") { // without it, the operator would create a Service with other ports
				m.Eventually(func() map[string]string { return m.readListener(m.claim).Annotations }).Should(HaveKey(names.AnnotationNumbers))
			}
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
			backup := map[rune]client.Object{'L': w.listeners[m.claim], 'S': w.services[m.claim], 'C': w.claims[m.claim], 'P': w.pods["pod-0"]}
			for _, kind := range tc.order {
				restored := strip(backup[kind], tc.preserved)
				if err := m.Create(t.Context(), restored); err != nil { // what exists already, Velero leaves
					// Of a Service, the API server says before anything else that its node port is allocated.
					m.Expect(m.Get(t.Context(), client.ObjectKeyFromObject(restored), restored)).To(Succeed(), err.Error())
				}
				if kind == 'L' && !tc.away && !tc.preserved {
					m.service() // one kind comes long after the other
				}
				if kind == 'P' && !tc.away && strings.HasSuffix(tc.order, "LS") { // the operator would have created the Listener by now
					var events corev1.EventList
					m.Eventually(func() []corev1.Event {
						m.Expect(m.List(t.Context(), &events, client.InNamespace(m.namespace))).To(Succeed())
						return events.Items
					}).Should(ContainElement(HaveField("Reason", listenersv1alpha1.ReasonWaitingForRestore)))
				}
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
