package nodeagent

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// operatorDeployment returns the operator's Deployment as OLM creates it for a Subscription with settings.
func operatorDeployment(namespace string) *appsv1.Deployment {
	labels := map[string]string{"app": "operator"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.Operator},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ImagePullSecrets: []corev1.LocalObjectReference{{Name: "mirror"}},
					NodeSelector:     map[string]string{"node-role.kubernetes.io/infra": ""},
					Containers: []corev1.Container{{
						Name: "operator", Image: "operator", Env: []corev1.EnvVar{{Name: "NO_PROXY", Value: ".cluster.local,10.0.0.0/8"}},
					}},
				},
			},
		},
	}
}

// They follow it when it is changed, but not when it is deleted, because the operator is being uninstalled then.
func TestAgentsFollowTheOperatorDeployment(t *testing.T) {
	c, namespace := fresh(t)
	g := NewWithT(t)
	deployment := operatorDeployment(namespace)
	g.Expect(c.Create(t.Context(), deployment)).To(Succeed())
	config := createConfig(t, c)
	apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: "listener-operator:test", APIs: optionalAPIs(t), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	agents := &appsv1.DaemonSet{}
	pod := func() corev1.PodSpec {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return agents.Spec.Template.Spec
	}
	noProxy := func() string {
		for _, container := range pod().Containers {
			for _, e := range container.Env {
				if e.Name == "NO_PROXY" {
					return e.Value
				}
			}
		}
		return ""
	}
	g.Eventually(noProxy, apiserver.Timeout, "20ms").Should(Equal(".cluster.local,10.0.0.0/8"))
	g.Expect(pod().NodeSelector).To(Equal(map[string]string{corev1.LabelOSStable: "linux"}))

	deployment.Spec.Template.Spec.Containers[0].Env[0].Value = "10.0.0.0/8"
	deployment.Spec.Template.Spec.ImagePullSecrets = nil
	g.Expect(c.Update(t.Context(), deployment)).To(Succeed())
	g.Eventually(noProxy, apiserver.Timeout, "20ms").Should(Equal("10.0.0.0/8"))
	g.Expect(pod().ImagePullSecrets).To(BeEmpty())

	like := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeAgent":{"placement":"LikeOperator"}}}`))
	g.Expect(c.Patch(t.Context(), config, like)).To(Succeed())
	g.Eventually(func() map[string]string { return pod().NodeSelector }, apiserver.Timeout, "20ms").Should(HaveKey("node-role.kubernetes.io/infra"))

	g.Expect(c.Delete(t.Context(), deployment)).To(Succeed())
	verbose := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeAgent":{"logLevel":"debug"}}}`))
	g.Expect(c.Patch(t.Context(), config, verbose)).To(Succeed())
	g.Eventually(func() []string { return pod().Containers[0].Args }, apiserver.Timeout, "20ms").Should(ContainElement("--log-level=debug"))
	g.Expect(pod().NodeSelector).To(HaveKey("node-role.kubernetes.io/infra"))
	g.Expect(noProxy()).To(Equal("10.0.0.0/8"))
}
