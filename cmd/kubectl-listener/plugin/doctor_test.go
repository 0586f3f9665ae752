package plugin_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/config/injection"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// operators is the namespace of the operator in these tests.
const operators = "listener-operator"

// installed is a cluster with the operator, as it is if nothing is wrong, and one Pod with a listener volume. It is on
// an API server without other tests, because doctor looks at everything.
type installed struct {
	*world
	config *operatorv1alpha1.ListenerOperator
	agent  *corev1.Pod
}

// install returns the cluster. The tests of one API server share it, and leave it as it was.
func install(t *testing.T) *installed {
	t.Helper()
	scheme := apiserver.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(apiserver.PlainConfig(t), client.Options{Scheme: scheme})
	check.Must(t, err)
	for _, namespace := range []string{operators, "shop"} {
		check.Must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	i := &installed{world: newWorldWith(t, c, "shop")}
	for _, file := range []string{"rbac/operator.yaml", "rbac/node-agent.yaml", "manager/deployment.yaml"} {
		i.apply(t, file)
	}
	deployment := i.deployment(t)
	deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	i.updateStatus(t, deployment)
	i.configure(t)
	for _, o := range injectionPolicies(t) {
		i.create(t, o)
	}
	for _, component := range installation.Components() {
		if component.Optional.Empty() {
			i.component(t, component)
		}
	}
	i.agent = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: "listener-node-agent-x", Labels: installation.NodeAgentLabels()},
		Spec:       corev1.PodSpec{NodeName: i.node.Name, Containers: []corev1.Container{{Name: "node-agent", Image: "x"}}},
	}
	i.create(t, i.agent)
	i.agent.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	i.updateStatus(t, i.agent)
	return i
}

// apply creates the objects of a file in config.
func (i *installed) apply(t *testing.T, file string) {
	t.Helper()
	root, err := checkout.Root()
	check.Must(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "config", file))
	check.Must(t, err)
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		object := &unstructured.Unstructured{}
		check.Must(t, yaml.Unmarshal([]byte(document), object))
		if !strings.HasPrefix(object.GetKind(), "Cluster") {
			object.SetNamespace(operators)
		}
		i.create(t, object)
	}
}

// configure creates ListenerOperator/cluster with the status of an operator that has nothing to do.
func (i *installed) configure(t *testing.T) {
	i.config = &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	i.config.Spec.NodeAgent.NodeSelector, i.config.Spec.Injection = map[string]string{pool: "apps"}, operatorv1alpha1.InjectionEnabled
	i.create(t, i.config)
	i.config.Status = operatorv1alpha1.ListenerOperatorStatus{
		ObservedGeneration: i.config.Generation, Version: "1.2.3",
		Conditions: []metav1.Condition{
			newCondition(operatorv1alpha1.ConditionAvailable, metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected),
			newCondition(operatorv1alpha1.ConditionDegraded, metav1.ConditionFalse, operatorv1alpha1.ReasonAsExpected),
		},
	}
	i.updateStatus(t, i.config)
}

// component creates an object that the operator installs.
func (i *installed) component(t *testing.T, c installation.Component) {
	t.Helper()
	desired, err := c.Desired(i.config, installation.Settings{Namespace: operators, Image: "listener-operator:test", ServiceAccount: "uid"})
	check.Must(t, err)
	if err := i.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(names.FieldManagerOperator)); err != nil {
		t.Fatalf("applying %s %s: %v", c.Kind, c.Name, err)
	}
}

func (i *installed) read(t *testing.T, o client.Object) {
	t.Helper()
	check.Must(t, i.Get(lasting(t), client.ObjectKeyFromObject(o), o))
}

// deployment returns the Deployment of the operator.
func (i *installed) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
	i.read(t, deployment)
	return deployment
}

// without deletes an object, which exists again when the test ends.
func (i *installed) without(t *testing.T, o client.Object) {
	t.Helper()
	i.read(t, o)
	i.remove(t, o)
	o.SetResourceVersion("")
	o.SetUID("")
	t.Cleanup(func() { i.createForever(t, o) })
}

// restoring has a function write an object as it is now when the test ends.
func restoring[T any, O interface {
	*T
	client.Object
}](t *testing.T, o O, write func(*testing.T, client.Object)) {
	before := *o.DeepCopyObject().(O)
	t.Cleanup(func() {
		version := o.GetResourceVersion()
		*o = before
		o.SetResourceVersion(version)
		write(t, o)
	})
}

// doctor runs `kubectl listener doctor`.
func doctor(t *testing.T) result {
	t.Helper()
	return resultOf(t, apiserver.PlainConfig(t), "doctor")
}

// longAgo is when something began to wait that ought to be over.
func longAgo() metav1.Time { return metav1.NewTime(time.Now().Add(-time.Hour)) }

// says lets the Listener have a condition until the test ends.
func (i *installed) says(t *testing.T, condition metav1.Condition) {
	t.Helper()
	restoring(t, i.listener, i.updateStatus)
	i.notReady(t, condition)
}

// pending creates a Pod that has been waiting for long, for the scheduler if that says something.
func (i *installed) pending(t *testing.T, pod *corev1.Pod, scheduler string) {
	t.Helper()
	i.create(t, pod)
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: longAgo()}
	if scheduler != "" {
		scheduled.Status, scheduled.Reason, scheduled.Message = corev1.ConditionFalse, corev1.PodReasonUnschedulable, scheduler
	}
	pod.Status.Conditions = []corev1.PodCondition{scheduled}
	i.updateStatus(t, pod)
}

// starting creates a Pod that has been starting for long, with an event. ingress are the addresses of its volume.
func (i *installed) starting(t *testing.T, ingress []listenersv1alpha1.IngressAddress, reason, reporter, message string) {
	t.Helper()
	pod := i.newPod("bound", i.claim.Name)
	pod.Spec.NodeName = i.node.Name
	i.pending(t, pod, "")
	i.publishTo(t, pod, ingress)
	i.kubernetesSays(t, pod, reason, reporter, message)
}

// publishTo creates PodListeners as the operator does. ingress are the addresses of the Pod's volume.
func (i *installed) publishTo(t *testing.T, pod *corev1.Pod, ingress []listenersv1alpha1.IngressAddress) {
	t.Helper()
	published, operator := i.newPodListeners(pod, ingress), i.operator(t)
	check.Must(t, operator.Create(t.Context(), published))
	t.Cleanup(func() { check.Must(t, operator.Delete(lasting(t), published)) })
}

// secured creates a Pod that runs, and mounts the claim and a certificate.
func (i *installed) secured(t *testing.T) *secured {
	t.Helper()
	s := newUnpublished(t, i.world)
	i.publishTo(t, s.pod, addresses())
	return s
}

// kubernetesSays creates an event about a Pod in the form of Kubernetes' own components.
func (i *installed) kubernetesSays(t *testing.T, pod *corev1.Pod, reason, reporter, message string) {
	t.Helper()
	i.create(t, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "event-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Source:         corev1.EventSource{Component: reporter}, Reason: reason, Message: message, Type: corev1.EventTypeWarning,
	})
}

// pinned is what the scheduler says about a Pod whose volume is pinned to a node that does not take it.
const pinned = "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) were unschedulable."

// newEphemeral returns a Pod with an ephemeral listener volume, whose claim does not exist yet.
func (i *installed) newEphemeral(name string) *corev1.Pod {
	pod := i.newPod(name, "")
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: objects.ClaimSpec(names.Driver)},
	}}
	return pod
}

// operator returns a client of the operator: an admission policy denies writes of PodListeners to all others.
func (i *installed) operator(t *testing.T) client.Client {
	t.Helper()
	operator, err := client.New(apiserver.WithToken(t, apiserver.PlainConfig(t), operators, names.Operator), client.Options{Scheme: apiserver.Scheme()})
	check.Must(t, err)
	return operator
}

// fault breaks an installation, which is repaired when the test ends.
type fault struct {
	breakIt func(t *testing.T, i *installed)
	// kind, name and text of the only finding that is wrong.
	kind, name, text string
}

// injectionPolicies returns the policies for annotated Pods, each followed by its binding.
func injectionPolicies(t *testing.T) []client.Object {
	t.Helper()
	objects, err := injection.Objects()
	check.Must(t, err)
	return objects
}

// healthy passes if doctor finds nothing wrong.
func healthy(t *testing.T) func(Gomega) {
	return func(g Gomega) {
		r := doctor(t)
		g.Expect(r.Problem).To(BeNil())
		g.Expect(r.Findings).NotTo(BeEmpty())
	}
}

// awaitProblem waits until doctor finds a problem of the kind first.
func awaitProblem(t *testing.T, kind, text string) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		p := doctor(t).Problem
		g.Expect(p).NotTo(BeNil())
		g.Expect(p.Kind).To(Equal(kind))
		g.Expect(p.Message).To(ContainSubstring(text))
	}, apiserver.Timeout, "50ms").Should(Succeed())
}

// checkFault checks that a fault is the only finding, also in what gather writes.
func (i *installed) checkFault(t *testing.T, tc fault) {
	tc.breakIt(t, i)
	NewWithT(t).Eventually(func(g Gomega) {
		wrong := slices.DeleteFunc(doctor(t).Findings, func(f found) bool { return f.State != "Failed" })
		g.Expect(wrong).To(HaveLen(1))
		g.Expect(wrong[0].Kind).To(Equal(tc.kind))
		g.Expect(wrong[0].Name).To(ContainSubstring(tc.name))
		g.Expect(wrong[0].Message).To(ContainSubstring(tc.text))
		g.Expect(wrong[0].Remedy).NotTo(BeEmpty())
	}, apiserver.Timeout, "50ms").Should(Succeed())
	i.same(t, apiserver.PlainConfig(t), gathered(t, apiserver.PlainConfig(t)), "doctor")
}

// TestDoctorNamesEachFault injects one fault at a time.
func TestDoctorNamesEachFault(t *testing.T) {
	i := install(t)
	// Permissions, and versions of definitions, take effect a moment after they change.
	NewWithT(t).Eventually(healthy(t), apiserver.Timeout, "50ms").Should(Succeed())
	gatherHealthy(t, i)
	for _, faults := range []map[string]fault{installationFaults, nodeFaults, listenerFaults} {
		for name, tc := range faults {
			t.Run(name, func(t *testing.T) { i.checkFault(t, tc) })
			NewWithT(t).Eventually(healthy(t), apiserver.Timeout, "50ms").Should(Succeed(), "after "+name)
		}
	}
	for _, tc := range doctorCases {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, i) })
	}
}

func TestDoctorSaysThatNothingIsInstalled(t *testing.T) {
	if p := resultOf(t, apiserver.Config(t), "doctor").Problem; p == nil || p.Kind != "Deployment" || !strings.Contains(p.Remedy, "Install the operator") {
		t.Errorf("problem %+v", p)
	}
}

func TestDoctorSaysWhatTheUserMayNotRead(t *testing.T) {
	r := resultOf(t, apiserver.WithToken(t, apiserver.Config(t), apiserver.Namespace(t), "nobody"), "doctor")
	for _, f := range r.Findings {
		if f.State != "Unknown" {
			t.Errorf("%+v", f)
		}
	}
	if r.Problem != nil || len(r.Findings) < 5 {
		t.Errorf("problem %+v, findings %+v", r.Problem, r.Findings)
	}
}
