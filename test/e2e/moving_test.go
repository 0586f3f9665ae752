//go:build e2e

package e2e

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// TestTheOperatorWaitsForTheEndOfStackables: while the node driver of Stackable's listener operator runs, whatever its
// release and namespace are named, the operator reports it, and new Pods wait. When it is gone, they start. Pods that
// ran before keep their addresses.
func TestTheOperatorWaitsForTheEndOfStackables(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("before", map[string]map[string]string{"listener": byClass(class.Name)}))
	before := s.awaitPodListener(s.awaitReady("before"), "listener").IngressAddresses[0]

	namespace := &corev1.Namespace{}
	s.get(namespace, client.ObjectKey{Name: s.namespace})
	s.patch(namespace, func() { namespace.Labels["pod-security.kubernetes.io/enforce"] = "privileged" })
	driver := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "sdp-csi-node-driver"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "sdp"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "sdp"}}, Spec: podSpec()},
		},
	}
	driver.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "csi", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/" + names.Driver + "/"},
	}}}
	s.create(driver)
	degraded := func(o *operatorv1alpha1.ListenerOperator) *metav1.Condition {
		return meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionDegraded)
	}
	s.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		c := degraded(o)
		return c != nil && c.Reason == operatorv1alpha1.ReasonOtherOperatorRunning && strings.Contains(c.Message, "DaemonSet "+s.namespace+"/sdp-csi-node-driver")
	})
	s.create(pod("after", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.awaitAnswer(before, "before")

	s.remove(driver)
	s.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		c := degraded(o)
		return c != nil && c.Status == metav1.ConditionFalse && meta.IsStatusConditionTrue(o.Status.Conditions, operatorv1alpha1.ConditionAvailable)
	})
	p := s.awaitReady("after")
	s.awaitAnswer(s.awaitPodListener(p, "listener").IngressAddresses[0], "after")
	s.awaitAnswer(before, "before")
}
