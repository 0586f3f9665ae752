package nodeagent

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// TestSecurityContextConstraintsFollowTheirAPI adds and removes the API while the operator runs.
func TestSecurityContextConstraintsFollowTheirAPI(t *testing.T) {
	h, _ := onServer(t)
	crds.Remove(t, h.admin, crds.SecurityContextConstraints)
	h.run()
	available := func() string {
		if !h.hasConfig() {
			return ""
		}
		return h.message(operatorv1alpha1.ConditionAvailable)
	}
	const fine = "listener volumes can be provisioned, and mounted on the nodes that have an agent"
	h.Eventually(available).Should(Equal(fine))

	crds.Install(t, h.admin, crds.SecurityContextConstraints)
	constraints := componentOf(t, "SecurityContextConstraints")
	object := constraints.Empty().(*unstructured.Unstructured)
	read := func() error { return h.admin.Get(t.Context(), constraints.Key(h.Namespace), object) }
	h.Eventually(read).Should(Succeed())
	want, err := constraints.Desired(h.config(), installation.Settings{Namespace: h.Namespace})
	h.must(err)
	for field, value := range contentOf(want) {
		got, sent := object.Object[field]
		h.Expect(sent).To(BeTrue(), "field %s", field)
		h.equal(field, value, got)
	}
	h.Expect(metav1.IsControlledBy(object, h.config())).To(BeTrue())

	// A changed or deleted object is repaired.
	h.merge(object, `{"allowPrivilegedContainer":true}`)
	h.Eventually(func() any {
		h.must(read())
		return object.Object["allowPrivilegedContainer"]
	}).Should(BeFalse())
	h.deleteAll(object)
	h.Eventually(read).Should(Succeed())

	crds.Remove(t, h.admin, crds.SecurityContextConstraints)
	// The object may be gone before the operator sees that its kind is, so this may be true, then false, and then true.
	h.Eventually(func(g Gomega) { g.Consistently(available, "1s", "50ms").Should(Equal(fine)) }).Should(Succeed())
	crds.Install(t, h.admin, crds.SecurityContextConstraints)
	h.Eventually(read).Should(Succeed())
	crds.Remove(t, h.admin, crds.SecurityContextConstraints)
}

// componentOf returns the only component of a kind.
func componentOf(t *testing.T, kind string) installation.Component {
	t.Helper()
	i := slices.IndexFunc(installation.Components(), func(c installation.Component) bool { return c.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no component of kind %s", kind)
	}
	return installation.Components()[i]
}

// isAvailable reports whether the components are installed, as the status says.
func (h *harness) isAvailable() bool {
	return h.hasConfig() && h.condition(operatorv1alpha1.ConditionAvailable).Status == metav1.ConditionTrue
}

func TestOperatorInstallsRepairsAndRemovesByWatches(t *testing.T) {
	h, _ := onServer(t)
	h.run()
	h.Eventually(h.isAvailable).Should(BeTrue())

	// Changed and deleted objects are repaired, and the status follows that of the DaemonSet.
	h.deleteAll(class())
	h.Eventually(func() bool { return h.exists(class()) }).Should(BeTrue())
	agents := h.agents()
	agents.Spec.Template.Spec.Containers[0].Image = "something-else"
	h.must(h.admin.Patch(t.Context(), agents, client.MergeFrom(h.agents())))
	h.Eventually(func() string { return h.agents().Spec.Template.Spec.Containers[0].Image }).Should(Equal(operator.Image))
	h.Eventually(func() error { // the repair is a replacement, and then an apply
		agents := h.agents()
		agents.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: agents.Generation, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 2,
		}
		return h.admin.Status().Update(t.Context(), agents)
	}).Should(Succeed())
	h.Eventually(func() bool {
		return h.isAvailable() && h.config().Status.NodeAgent.Ready == 2 && h.condition(operatorv1alpha1.ConditionProgressing).Status == metav1.ConditionFalse
	}).Should(BeTrue())

	// A removal waits for a volume, with a message that names its users, and continues when the volume is deleted.
	pv, pod := volume("in-use", "claim", corev1.VolumeBound), podWithClaims("web", "claim")
	pv.Spec.ClaimRef.Namespace, pod.Namespace = h.Namespace, h.Namespace
	h.create(pv, pod)
	h.deleteConfig()
	degraded := func() string { return h.message(operatorv1alpha1.ConditionDegraded) }
	h.Eventually(degraded).Should(HaveSuffix(": Pods " + h.Namespace + "/web"))
	h.must(h.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	h.Eventually(degraded).Should(HaveSuffix(": claims without a Pod " + h.Namespace + "/claim"))
	pv.Finalizers = nil
	h.update(pv)
	h.deleteAll(pv)

	// The other components wait for the agents' Pods.
	h.Eventually(func() []string { return h.agents().Finalizers }).Should(ConsistOf(metav1.FinalizerDeleteDependents))
	h.Expect(h.exists(class())).To(BeFalse())
	h.Expect(h.exists(driver())).To(BeTrue())
	h.Expect(degraded()).To(Equal("no problem is known"))
	h.collectGarbage(h.agents())
	h.Eventually(h.hasConfig).Should(BeFalse())
	h.expectNothingInstalled()

	// A deleted configuration is not created again, except by an administrator.
	h.firstStart("")()
	h.Expect(h.hasConfig()).To(BeFalse())
	h.createConfig()
	h.Eventually(h.isAvailable).Should(BeTrue())
}

func TestAgentsAreInstalledOnceThoseInAnotherNamespaceAreDeleted(t *testing.T) {
	h, _ := onServer(t)
	left := agentsIn(apiserver.Namespace(t), h.createConfig())
	h.create(left)
	h.run()
	h.Eventually(func() []string {
		h.read(left)
		return left.Finalizers
	}).Should(ConsistOf(metav1.FinalizerDeleteDependents))
	agents := componentOf(t, "DaemonSet")
	h.Expect(h.object(agents)).To(BeNil())
	h.collectGarbage(left)
	h.Eventually(func() client.Object { return h.object(agents) }).ShouldNot(BeNil())
}

// TestPlacementChangesWhenNoPodBlocksItAnyMore checks the watches of Pods and Nodes.
func TestPlacementChangesWhenNoPodBlocksItAnyMore(t *testing.T) {
	h, _ := onServer(t)
	h.createConfig()
	h.run()
	narrowed := func(selector string, want map[string]string) {
		t.Helper()
		h.merge(h.config(), `{"spec":{"nodeAgent":{"nodeSelector":`+selector+`}}}`)
		if want != nil {
			h.Eventually(func() map[string]string { return h.agents().Spec.Template.Spec.NodeSelector }).Should(Equal(want))
		}
	}
	h.Eventually(h.isAvailable).Should(BeTrue())
	for name, tc := range map[string]struct {
		pod *corev1.Pod
		end func(*corev1.Pod, *corev1.Node)
	}{
		"the Pod is deleted": {podWithClaims("deleted", "claim"), func(pod *corev1.Pod, _ *corev1.Node) {
			h.must(h.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		}},
		"the Pod with an inline volume finishes": {podWithInlineVolume("finished", ""), func(pod *corev1.Pod, _ *corev1.Node) {
			pod.Status.Phase = corev1.PodSucceeded
			h.updateStatus(pod)
		}},
		"the node is selected again": {podWithClaims("selected", "claim"), func(_ *corev1.Pod, node *corev1.Node) {
			h.merge(node, `{"metadata":{"labels":{"infra":""}}}`)
		}},
	} {
		worker := node("worker-of-"+tc.pod.Name+"-"+h.Namespace, linux())
		pv := volume("in-use-"+tc.pod.Name+"-"+h.Namespace, "claim", corev1.VolumeBound)
		pod := at(worker.Name, tc.pod)
		pv.Spec.ClaimRef.Namespace, pod.Namespace = h.Namespace, h.Namespace
		h.create(worker, pv, pod)
		narrowed(`{"infra":""}`, nil)
		h.Eventually(func() string { return h.message(operatorv1alpha1.ConditionDegraded) }).Should(HaveSuffix(": Pods "+h.Namespace+"/"+pod.Name), name)
		tc.end(pod, worker)
		h.Eventually(func() map[string]string { return h.agents().Spec.Template.Spec.NodeSelector }).Should(Equal(linux("infra")), name)
		for _, o := range []client.Object{pod, pv, worker} {
			free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			h.must(client.IgnoreNotFound(errors.Join(h.admin.Patch(t.Context(), o, free), h.admin.Delete(t.Context(), o, client.GracePeriodSeconds(0)))))
		}
		narrowed("null", linux())
	}
}

// They follow it when it is changed, but not when it is deleted, because the operator is being uninstalled then.
func TestAgentsFollowTheOperatorDeployment(t *testing.T) {
	h, _ := onServer(t)
	deployment := operatorDeployment(h.Namespace)
	h.create(deployment)
	h.createConfig()
	h.run()
	pod := func() corev1.PodSpec {
		if agents := h.object(componentOf(t, "DaemonSet")); agents != nil {
			return agents.(*appsv1.DaemonSet).Spec.Template.Spec
		}
		return corev1.PodSpec{}
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
	h.Eventually(noProxy).Should(Equal(".cluster.local,10.0.0.0/8"))
	h.Expect(pod().NodeSelector).To(Equal(linux()))

	deployment.Spec.Template.Spec.Containers[0].Env[0].Value = "10.0.0.0/8"
	deployment.Spec.Template.Spec.ImagePullSecrets = nil
	h.update(deployment)
	h.Eventually(noProxy).Should(Equal("10.0.0.0/8"))
	h.Expect(pod().ImagePullSecrets).To(BeEmpty())
	h.merge(h.config(), `{"spec":{"nodeAgent":{"placement":"LikeOperator"}}}`)
	h.Eventually(func() map[string]string { return pod().NodeSelector }).Should(HaveKey("node-role.kubernetes.io/infra"))

	h.deleteAll(deployment)
	h.merge(h.config(), `{"spec":{"nodeAgent":{"logLevel":"debug"}}}`)
	h.Eventually(func() []string { return pod().Containers[0].Args }).Should(ContainElement("--log-level=debug"))
	h.Expect(pod().NodeSelector).To(HaveKey("node-role.kubernetes.io/infra"))
	h.Expect(noProxy()).To(Equal("10.0.0.0/8"))
}

// operatorDeployment returns the operator's Deployment as OLM creates it for a Subscription with settings.
func operatorDeployment(namespace string) *appsv1.Deployment {
	labels := map[string]string{"app": "operator"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.Operator}}
	d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	d.Spec.Template.Spec = corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "mirror"}},
		NodeSelector:     map[string]string{"node-role.kubernetes.io/infra": ""},
		Containers: []corev1.Container{{
			Name: "operator", Image: "operator", Env: []corev1.EnvVar{{Name: "NO_PROXY", Value: ".cluster.local,10.0.0.0/8"}},
		}},
	}
	return d
}

// Without the label of the namespace, its monitoring of users' workloads would reject the ServiceMonitor, and the
// alerts would report metrics that nobody collects.
func TestAlertsFollowTheMonitoringOfOpenShift(t *testing.T) {
	h, _ := onServer(t)
	crds.Install(t, h.admin, crds.ServiceMonitors, crds.PrometheusRules)
	defer crds.Remove(t, h.admin, crds.ServiceMonitors, crds.PrometheusRules)
	label := func(value string) {
		h.merge(&corev1.Namespace{ObjectMeta: objectMeta(h.Namespace)}, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, installation.LabelMonitored, value))
	}
	installed := func() (kinds []string) {
		for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
			if h.object(componentOf(t, kind)) != nil {
				kinds = append(kinds, kind)
			}
		}
		return kinds
	}
	label(`"true"`)
	h.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: installation.ServiceCA}})
	h.run()
	h.Eventually(installed).Should(ConsistOf("ServiceMonitor", "PrometheusRule"))
	label("null")
	h.Eventually(installed).Should(BeEmpty())
	label(`"true"`)
	h.Eventually(installed).Should(ConsistOf("ServiceMonitor", "PrometheusRule"))
}
