package main

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
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
	cases := map[string]struct {
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
	}
	// One operator for all Pods, which start before the first one is restored: it remembers node ports after a while.
	all, claims, first := newMover(t, nodePortClass()), map[string]string{}, map[string]types.UID{}
	for name := range cases {
		claims[name] = fmt.Sprintf("claim-%d", len(claims))
		first[name] = all.moving(t, claims[name]).start("ports")
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := all.moving(t, claims[name])
			port := fmt.Sprintf("192.0.2.0:%d", m.service().Spec.Ports[0].NodePort)
			m.eventually(first[name], port)
			if !tc.preserved || strings.HasPrefix(tc.order, "L") { // without it, the operator would create a Service with other ports
				m.Eventually(func() map[string]string { return m.readListener(m.claim).Annotations }).Should(HaveKey(names.AnnotationNumbers))
			}
			w, err := observe(t.Context(), m.Client, m.namespace)
			m.Expect(err).NotTo(HaveOccurred())
			m.stop()
			m.Eventually(func() bool {
				left, err := observe(t.Context(), m.Client, m.namespace)
				m.Expect(err).NotTo(HaveOccurred())
				return left.listeners[m.claim] == nil && left.services[m.claim] == nil && left.pods[m.claim] == nil
			}).Should(BeTrue())
			if tc.away {
				all.model.stop()
			}
			backup := map[rune]client.Object{'L': w.listeners[m.claim], 'S': w.services[m.claim], 'C': w.claims[m.claim], 'P': w.pods[m.claim]}
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
					}).Should(ContainElement(And(
						HaveField("Reason", listenersv1alpha1.ReasonWaitingForRestore), HaveField("InvolvedObject.Name", m.claim))))
				}
			}
			if tc.away {
				all.restart()
			}
			pod := &corev1.Pod{}
			m.Expect(m.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: m.claim}, pod)).To(Succeed())
			m.eventually(pod.UID, port)
		})
	}
}
