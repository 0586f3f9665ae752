package plugin_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	doctors "github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/doctor"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// doctorCases are what doctor says apart from single faults, in this order.
var doctorCases = []struct {
	name string
	run  func(t *testing.T, i *installed)
}{
	{"OpenShift without the constraints", func(t *testing.T, i *installed) {
		crds.Install(t, i.Client, crds.SecurityContextConstraints)
		defer crds.Remove(t, i.Client, crds.SecurityContextConstraints)
		awaitProblem(t, "SecurityContextConstraints", "does not exist")
		for _, component := range installation.Components() {
			if component.Kind == names.KindSecurityContextConstraints.Kind {
				i.component(t, component)
			}
		}
		NewWithT(t).Eventually(healthy(t), apiserver.Timeout, "50ms").Should(Succeed())
		i.without(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: names.NodeAgent}})
		awaitProblem(t, "ServiceAccount", "use securitycontextconstraints")
	}},
	{"requests for certificates that wait", func(t *testing.T, i *installed) {
		s := i.secured(t)
		request := s.request(t, certificatesv1.PodCertificateRequestStatus{})
		s.event(t, s.pod, listenersv1alpha1.ReasonCertificateWaiting, "volume x has no address yet")
		at := func(now time.Time) []check.Finding {
			x := &check.Examination{Backends: backends.All(), Client: i.Client, Report: check.Report{Gathered: now}}
			doctors.Examine(t.Context(), x, walk.UnusedDays)
			if x.Err != nil {
				t.Fatal(x.Err)
			}
			return slices.DeleteFunc(x.Findings, func(f check.Finding) bool {
				// The client still knows the constraints of the test above.
				return f.State != check.Failed || f.Kind == names.KindSecurityContextConstraints.Kind
			})
		}
		if found := at(time.Now()); len(found) > 0 {
			t.Errorf("at once: %+v", found)
		}
		found := at(time.Now().Add(2 * time.Minute))
		if len(found) != 1 || found[0].Kind != "PodCertificateRequest" || found[0].Namespace != i.namespace || !found[0].ForUsers ||
			!strings.Contains(found[0].Message, "volume x has no address yet") ||
			!strings.Contains(found[0].Remedy, "kubectl listener why pod/secured --namespace shop") {
			t.Errorf("two minutes later: %+v", found)
		}
		// An authority that was damaged, but has signed since.
		i.eventOf(t, "ListenerOperator", i.config, operatorv1alpha1.ReasonCertificateAuthorityDamaged, "the Secret is damaged")
		if found := at(time.Now().Add(2 * time.Minute)); len(found) != 1 || found[0].Kind != "Secret" {
			t.Errorf("without an authority: %+v", found)
		}
		issued := s.issue(t, time.Now(), "203.0.113.7")
		status := statusOf(issued)
		status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Minute))
		request.Status = status
		i.updateStatus(t, request)
		if found := at(time.Now().Add(2 * time.Minute)); len(found) > 0 {
			t.Errorf("after it has signed: %+v", found)
		}
	}},
	{"two operators", func(t *testing.T, i *installed) {
		deployment := i.deployment(t)
		deployment.ResourceVersion, deployment.UID, deployment.Namespace = "", "", i.namespace
		i.create(t, deployment)
		deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		i.updateStatus(t, deployment)
		awaitProblem(t, "Deployment", "exists in 2 namespaces")
	}},
	{"what looks wrong and is not", func(t *testing.T, i *installed) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "windows", Labels: labelsOf("windows")}}
		node.Labels[corev1.LabelOSStable] = "windows"
		i.create(t, node)
		agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: i.agent.Name + "-replaced", Labels: i.agent.Labels}, Spec: i.agent.Spec}
		i.create(t, agent)
		i.beginToDelete(t, agent)
		waiting := i.newClaim("waiting", ofClass(i.class.Name))
		i.create(t, waiting)
		i.event(t, waiting, listenersv1alpha1.ReasonWaitForFirstConsumer, "waiting for a Pod")
		i.says(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForNodePorts))
		forPods := i.newListener("idle", i.class.Name)
		i.create(t, forPods)
		idle := newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForPods)
		idle.LastTransitionTime = longAgo()
		forPods.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}, Conditions: []metav1.Condition{idle}}
		i.updateStatus(t, forPods)
		i.createUnschedulable(t, "created-just-now")
		gated := i.newPod("gated", i.claim.Name)
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
		i.pending(t, gated, "Scheduling is blocked due to non-empty scheduling gates")
		gated.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		i.updateStatus(t, gated)
		other := i.newPod("without-listener", i.claim.Name)
		other.Spec.Volumes, other.Spec.Containers[0].VolumeMounts = nil, nil
		i.pending(t, other, "0/2 nodes are available: 2 Insufficient cpu.")
		i.starting(t, addresses(), "Pulling", "kubelet", "pulling image")
		deleted := i.newClaim("deleted", ofClass("absent"))
		i.create(t, deleted)
		i.beginToDelete(t, deleted)
		healthy(t)(NewWithT(t))
	}},
	{"a node that the node agents are not meant for", func(t *testing.T, i *installed) {
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: labelsOf("other")}}
		delete(other.Labels, pool)
		virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: labelsOf("virtual")}}
		virtual.Labels["type"] = "virtual-kubelet"
		for _, node := range []*corev1.Node{other, virtual} {
			i.create(t, node)
		}
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !strings.Contains(out, "1 of 2 have a node agent that is ready; spec.nodeAgent.nodeSelector of ListenerOperator cluster excludes other; "+
			"the label type=virtual-kubelet excludes virtual\n") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	}},
	{"a namespace occupies the operator", func(t *testing.T, i *installed) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.namespace}}
		i.read(t, namespace)
		i.create(t, &corev1.Event{
			ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "slow"},
			InvolvedObject:      corev1.ObjectReference{Kind: "Namespace", Name: namespace.Name, UID: namespace.UID},
			ReportingController: names.EventReporter, ReportingInstance: "test", Action: "Reconcile", Type: corev1.EventTypeWarning,
			Reason: operatorv1alpha1.ReasonSlowRequest, Message: "the controller listener has worked for long; look for webhooks", EventTime: metav1.NowMicro(),
		})
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !regexp.MustCompile(`! Namespace shop +SlowRequest: the controller listener has worked for long; look for webhooks\n`).MatchString(out) {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	}},
	{"the operator has stopped", func(t *testing.T, i *installed) {
		deployment := i.deployment(t)
		restoring(t, deployment, i.updateStatus)
		deployment.Status = appsv1.DeploymentStatus{Replicas: 1}
		i.updateStatus(t, deployment)
		listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "unseen"}}
		i.create(t, listener)
		out, _ := run(t, apiserver.PlainConfig(t), "doctor")
		if !strings.Contains(out, "was available, version 1.2.3, when the operator last worked") || strings.Contains(out, "See the log of the operator") {
			t.Errorf("output:\n%s", out)
		}
	}},
	{"there is no class", func(t *testing.T, i *installed) {
		i.without(t, i.class)
		out, err := run(t, apiserver.PlainConfig(t), "doctor") // the Listener lacks its class
		if err == nil || !strings.Contains(out, "there are none, so nobody can use listener volumes") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	}},
	{"no port is left, and no Listener waits", func(t *testing.T, i *installed) {
		class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType:  listenersv1alpha1.ServiceTypeLoadBalancer,
			LoadBalancer: &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: "9000-9000"}},
		}}
		i.create(t, class)
		l := i.newListener("shared", class.Name)
		i.create(t, l)
		l.Status = &listenersv1alpha1.ListenerStatus{
			ServiceName: &l.Name, SharedPorts: map[string]int32{"http": 9000}, IngressAddresses: []listenersv1alpha1.IngressAddress{},
		}
		i.updateStatus(t, l)
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !strings.Contains(out, "! ListenerClass full") ||
			!strings.Contains(out, "SharedPortsExhausted: 0 of 1 ports are left in spec.loadBalancer.sharing.portRange (9000-9000)") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	}},
	{"clients are sent to Pods that are not ready", func(t *testing.T, i *installed) {
		i.read(t, i.service)
		labels := map[string]string{"app.kubernetes.io/managed-by": names.ServiceManagedBy}
		i.service.Labels, i.service.Spec.PublishNotReadyAddresses = labels, true
		i.update(t, i.service)
		i.read(t, i.endpoints)
		i.endpoints.Labels["app.kubernetes.io/managed-by"] = names.ServiceManagedBy
		i.endpoints.Endpoints = append(i.endpoints.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)},
		})
		i.update(t, i.endpoints)
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !strings.Contains(out, "1 of 2 Pods ready, and clients are also sent to the others") || strings.Contains(out, "have their addresses") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
		owners := i.listener.OwnerReferences
		i.listener.OwnerReferences = nil // one that was created by name
		i.update(t, i.listener)
		if out, _ := run(t, apiserver.PlainConfig(t), "doctor"); !strings.Contains(out, "notReadyAddressPolicy: PerPodOnly in ListenerClass "+i.class.Name) {
			t.Errorf("the output does not name the field of the class:\n%s", out)
		}
		i.listener.OwnerReferences = owners
		i.update(t, i.listener)
		i.endpoints.Endpoints = i.endpoints.Endpoints[:1]
		i.endpoints.Endpoints[0].Conditions.Ready = ptr.To(false)
		i.update(t, i.endpoints)
		if out, err := run(t, apiserver.PlainConfig(t), "doctor"); err != nil || !strings.Contains(out, "have their addresses") {
			t.Errorf("a single Pod that is not ready: error %v, output:\n%s", err, out)
		}
	}},
	{"many mistakes of users", func(t *testing.T, i *installed) {
		for n := range 12 {
			i.create(t, i.newClaim(fmt.Sprintf("typo-%02d", n), ofClass("absent")))
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: labelsOf("bare")}}
		i.create(t, node)
		out, _ := run(t, apiserver.PlainConfig(t), "doctor")
		atNode, users := strings.Index(out, "✗ Node bare"), strings.Index(out, "\nFor the users of namespaces: 12\n")
		if atNode < 0 || users < atNode || strings.Count(out, "✗ PersistentVolumeClaim") != 10 ||
			!strings.Contains(out, "2 more (2 ClassNotFound)") {
			t.Errorf("output:\n%s", out)
		}
	}},
	{"text", func(t *testing.T, i *installed) {
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !strings.Contains(out, "✓ CSIDriver "+names.Driver) || !strings.HasSuffix(out, "\nThe installation is in order, and the Listeners have their addresses. To test whether Pods respond there, run: kubectl listener connect POD\n") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	}},
	{"a user who may not read whether node agents are registered", func(t *testing.T, i *installed) {
		config := i.clusterUser(t, apiserver.PlainConfig(t),
			rbacv1.PolicyRule{Verbs: []string{"get", "list"}, Resources: []string{"*"}, APIGroups: []string{
				"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apps", "certificates.k8s.io", "discovery.k8s.io", "networking.k8s.io", listenersv1alpha1.GroupVersion.Group, operatorv1alpha1.GroupVersion.Group,
			}},
			rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csidrivers", "storageclasses"}},
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}},
		)
		NewWithT(t).Eventually(func(g Gomega) {
			notSeen := slices.DeleteFunc(resultOf(t, config, "doctor").Findings, func(f found) bool { return f.State == "OK" })
			g.Expect(notSeen).To(HaveLen(1))
			g.Expect(notSeen[0].Kind + " " + notSeen[0].State).To(Equal("CSINode Unknown"))
			out, err := run(t, config, "doctor")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).NotTo(ContainSubstring("is in order"))
		}, apiserver.Timeout, "50ms").Should(Succeed())
	}},
	{"there is no configuration", func(t *testing.T, i *installed) { // at last, because what is installed belongs to it
		i.remove(t, i.config)
		awaitProblem(t, "ListenerOperator", "so nothing is installed")
	}},
}
