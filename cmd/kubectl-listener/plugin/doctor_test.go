package plugin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	doctors "github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/doctor"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/config/injection"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
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
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{operators, "shop"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			t.Fatal(err)
		}
	}
	i := &installed{world: newWorldWith(t, c, "shop")}
	for _, file := range []string{"rbac/operator.yaml", "rbac/node-agent.yaml", "manager/deployment.yaml"} {
		i.apply(t, file)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
	i.read(t, deployment)
	deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	i.updateStatus(t, deployment)
	i.configure(t)
	policy, binding := injectionPolicy(t)
	i.create(t, policy)
	i.create(t, binding)
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
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "config", file))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(names.FieldManagerOperator)); err != nil {
		t.Fatalf("applying %s %s: %v", c.Kind, c.Name, err)
	}
}

func (i *installed) read(t *testing.T, o client.Object) {
	t.Helper()
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
}

// recreate deletes an object, and returns a function that creates it again.
func (i *installed) recreate(t *testing.T, o client.Object) func() {
	t.Helper()
	i.read(t, o)
	i.remove(t, o)
	return func() { i.createAgain(t, o) }
}

// createAgain creates a deleted object for the tests that follow: the end of this one does not delete it.
func (i *installed) createAgain(t *testing.T, o client.Object) {
	t.Helper()
	o.SetResourceVersion("")
	o.SetUID("")
	i.createForever(t, o)
}

// doctor runs `kubectl listener doctor`.
func doctor(t *testing.T) result {
	t.Helper()
	out, err := run(t, apiserver.PlainConfig(t), "doctor", "--output", "json")
	return decode(t, out, err)
}

// longAgo is when something began to wait that ought to be over.
func longAgo() metav1.Time { return metav1.NewTime(time.Now().Add(-time.Hour)) }

// says lets the Listener have a condition, and returns a function that restores its status.
func (i *installed) says(t *testing.T, condition metav1.Condition) func() {
	t.Helper()
	status := i.listener.Status.DeepCopy()
	i.notReady(t, condition)
	return func() {
		i.listener.Status = status
		i.updateStatus(t, i.listener)
	}
}

// pending creates a Pod that has been waiting for long, for the scheduler if that says something.
func (i *installed) pending(t *testing.T, pod *corev1.Pod, scheduler string) func() {
	t.Helper()
	i.create(t, pod)
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: longAgo()}
	if scheduler != "" {
		scheduled.Status, scheduled.Reason, scheduled.Message = corev1.ConditionFalse, corev1.PodReasonUnschedulable, scheduler
	}
	pod.Status.Conditions = []corev1.PodCondition{scheduled}
	i.updateStatus(t, pod)
	return func() { i.remove(t, pod) }
}

// starting creates a Pod that has been starting for long, with an event. ingress are the addresses of its volume.
func (i *installed) starting(t *testing.T, ingress []listenersv1alpha1.IngressAddress, reason, reporter, message string) func() {
	t.Helper()
	pod := i.newPod("bound", i.claim.Name)
	pod.Spec.NodeName = i.node.Name
	repair := i.pending(t, pod, "")
	known := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, i.node.Name)
	known.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{
		Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: ingress, PersistentVolumeName: i.volume.Name, ListenerName: i.listener.Name,
	}
	operator := i.operator(t)
	if err := operator.Create(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	i.kubernetesSays(t, pod, reason, reporter, message)
	return func() {
		if err := operator.Delete(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		repair()
	}
}

// secured creates a Pod that runs, and mounts the claim and a certificate, and returns a function that removes it.
func (i *installed) secured(t *testing.T) (*secured, func()) {
	t.Helper()
	s, operator := newUnpublished(t, i.world), i.operator(t)
	published := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(s.pod), s.pod.UID, i.node.Name)
	published.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{
		Scope: listenersv1alpha1.ListenerScopeNode, ListenerName: i.listener.Name, IngressAddresses: addresses(), PersistentVolumeName: i.volume.Name,
	}
	if err := operator.Create(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	return s, func() {
		if err := operator.Delete(t.Context(), published); err != nil {
			t.Fatal(err)
		}
		i.remove(t, s.pod)
	}
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

// forgetEvents deletes the events.
func (i *installed) forgetEvents(t *testing.T) {
	t.Helper()
	if err := i.DeleteAllOf(t.Context(), &corev1.Event{}, client.InNamespace(i.namespace)); err != nil {
		t.Error(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return operator
}

// fault breaks an installation.
type fault struct {
	// breakIt returns a function that repairs what it breaks.
	breakIt func(t *testing.T, i *installed) (repair func())
	// kind, name and text of the only finding that is wrong.
	kind, name, text string
}

// injectionPolicy returns the policy for annotated Pods and its binding.
func injectionPolicy(t *testing.T) (*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	t.Helper()
	policy, binding, err := injection.Policy()
	if err != nil {
		t.Fatal(err)
	}
	return policy, binding
}

func faults() map[string]fault {
	return map[string]fault{
		"the policy for annotated Pods is not bound": {
			breakIt: func(t *testing.T, i *installed) func() {
				_, binding := injectionPolicy(t)
				return i.recreate(t, binding)
			},
			kind: "MutatingAdmissionPolicyBinding", name: names.InjectionPolicy, text: "does not exist, so annotations of Pods are not acted on",
		},
		"the policy for annotated Pods was changed": {
			breakIt: func(t *testing.T, i *installed) func() {
				policy, _ := injectionPolicy(t)
				changed := policy.DeepCopy()
				i.read(t, changed)
				changed.Spec.MatchConstraints.NamespaceSelector = nil
				i.update(t, changed)
				return func() {
					changed.Spec = policy.Spec
					i.update(t, changed)
				}
			},
			kind: "MutatingAdmissionPolicy", name: names.InjectionPolicy, text: "differs from the one of this version",
		},
		"an annotated Pod has no volume": {
			breakIt: func(t *testing.T, i *installed) func() {
				pod := annotatedPod(i.world)
				i.create(t, pod)
				return func() { i.remove(t, pod) }
			},
			kind: "Pod", name: "annotated", text: "the namespace does not opt in",
		},
		"a claim is being deleted while a Pod mounts it": {
			breakIt: func(t *testing.T, i *installed) func() {
				pvc, pod := i.newClaim("leaving", map[string]string{names.AnnotationListenerClass: i.class.Name}), i.newPod("leaving", "leaving")
				i.create(t, pvc)
				i.create(t, pod)
				i.beginToDelete(t, pvc)
				return func() {
					i.remove(t, pod)
					pvc.Finalizers = nil
					i.update(t, pvc)
				}
			},
			kind: "PersistentVolumeClaim", name: "leaving", text: "with its Listener and its address, as soon as it is not mounted any more: leaving",
		},
		"a Pod cannot end, because its node has no agent any more": {
			breakIt: func(t *testing.T, i *installed) func() {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "former", Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
				i.create(t, node)
				csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "former"}}
				i.create(t, csiNode)
				pod := i.newPod("ending", i.claim.Name)
				pod.Spec.NodeName = node.Name
				i.create(t, pod)
				if err := i.Delete(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				pod.Status.Phase, pod.ResourceVersion = corev1.PodSucceeded, ""
				i.updateStatus(t, pod)
				return func() {
					i.remove(t, pod)
					i.remove(t, csiNode)
					i.remove(t, node)
				}
			},
			kind: "Node", name: "former", text: "so no Pod with a listener volume starts or ends there",
		},
		"a definition is not served": {
			breakIt: func(t *testing.T, i *installed) func() {
				crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "podlisteners.listeners.stackable.tech"}}
				i.read(t, crd)
				crd.Spec.Versions[0].Served = false
				other := crd.Spec.Versions[0].DeepCopy()
				other.Name, other.Served, other.Storage = "v2", true, false
				crd.Spec.Versions = append(crd.Spec.Versions, *other)
				i.update(t, crd)
				return func() {
					i.read(t, crd)
					crd.Spec.Versions = crd.Spec.Versions[:1]
					crd.Spec.Versions[0].Served = true
					i.update(t, crd)
				}
			},
			kind: "CustomResourceDefinition", name: "podlisteners.listeners.stackable.tech", text: "does not serve version v1alpha1",
		},
		"the operator does not run": {
			breakIt: func(t *testing.T, i *installed) func() {
				deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
				i.read(t, deployment)
				status := deployment.Status
				deployment.Status = appsv1.DeploymentStatus{Replicas: 1}
				i.updateStatus(t, deployment)
				return func() {
					deployment.Status = status
					i.updateStatus(t, deployment)
				}
			},
			kind: "Deployment", name: names.Operator, text: "has no available Pod",
		},
		"the operator is scaled to 0": {
			breakIt: func(t *testing.T, i *installed) func() {
				deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
				i.read(t, deployment)
				replicas := deployment.Spec.Replicas
				deployment.Spec.Replicas = ptr.To[int32](0)
				i.update(t, deployment)
				return func() {
					deployment.Spec.Replicas = replicas
					i.update(t, deployment)
				}
			},
			kind: "Deployment", name: names.Operator, text: "is scaled to 0 replicas",
		},
		"no operator renews the lease": {
			breakIt: func(t *testing.T, i *installed) func() {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
				i.create(t, lease)
				lease.Spec = coordinationv1.LeaseSpec{
					HolderIdentity: ptr.To("x"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(time.Now())),
				}
				i.update(t, lease)
				if p := doctor(t).Problem; p != nil {
					t.Errorf("although the lease was renewed: %+v", p)
				}
				lease.Spec.RenewTime.Time = longAgo().Time
				i.update(t, lease)
				return func() { i.remove(t, lease) }
			},
			kind: "Deployment", name: names.Operator, text: "has available Pods, but none that works: the lease of the leader expired 59m ago",
		},
		"the operator's own update hangs": {
			breakIt: func(t *testing.T, i *installed) func() {
				deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
				i.read(t, deployment)
				status := deployment.Status
				deployment.Status = appsv1.DeploymentStatus{
					Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UnavailableReplicas: 1,
					Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, LastUpdateTime: longAgo()}},
				}
				i.updateStatus(t, deployment)
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: "listener-operator-new", Labels: deployment.Spec.Selector.MatchLabels},
					Spec:       corev1.PodSpec{NodeName: i.node.Name, Containers: []corev1.Container{{Name: "operator", Image: "absent"}}},
				}
				i.create(t, pod)
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: "operator", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}},
				}}
				i.updateStatus(t, pod)
				return func() {
					i.remove(t, pod)
					i.read(t, deployment)
					deployment.Status = status
					i.updateStatus(t, deployment)
				}
			},
			kind: "Deployment", name: names.Operator,
			text: "1 Pod is available, and Pod listener-operator-new, which should replace it or run beside it, is not ready: ErrImagePull: container operator does not run on node node-shop: not found",
		},
		"a node has lost its label": {
			breakIt: func(t *testing.T, i *installed) func() {
				i.read(t, i.node)
				delete(i.node.Labels, names.TopologyKey)
				i.update(t, i.node)
				repair := i.pending(t, i.newPod("stuck", i.claim.Name), pinned)
				return func() {
					repair()
					i.node.Labels = labelsOf(i.node.Name)
					i.update(t, i.node)
				}
			},
			kind: "Node", name: "node-shop", text: "has a node agent, but not the label listeners.stackable.tech/hostname=node-shop",
		},
		"the operator is degraded": {
			breakIt: func(t *testing.T, i *installed) func() {
				set := func(status metav1.ConditionStatus, reason string) {
					meta.SetStatusCondition(&i.config.Status.Conditions, newCondition(operatorv1alpha1.ConditionDegraded, status, reason))
					i.updateStatus(t, i.config)
				}
				set(metav1.ConditionTrue, operatorv1alpha1.ReasonAgentsNotCreated)
				return func() { set(metav1.ConditionFalse, operatorv1alpha1.ReasonAsExpected) }
			},
			kind: "ListenerOperator", name: "cluster", text: "message of AgentsNotCreated",
		},
		"there is no CSIDriver": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.recreate(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}})
			},
			kind: "CSIDriver", name: names.Driver, text: "does not exist",
		},
		"the StorageClass has another binding mode": {
			breakIt: func(t *testing.T, i *installed) func() {
				class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}}
				repair := i.recreate(t, class)
				other := class.DeepCopy()
				other.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
				i.createAgain(t, other)
				return func() {
					i.remove(t, other)
					repair()
				}
			},
			kind: "StorageClass", name: names.Driver, text: "differs from what the operator installs, in volumeBindingMode",
		},
		"an admission policy is missing": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.recreate(t, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: names.PodListenersPolicy}})
			},
			kind: "ValidatingAdmissionPolicy", name: names.PodListenersPolicy, text: "does not exist",
		},
		"another installation owns the DaemonSet": {
			breakIt: func(t *testing.T, i *installed) func() {
				daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.NodeAgent}}
				i.read(t, daemonSet)
				owners := daemonSet.OwnerReferences
				daemonSet.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "chart", UID: "x", Controller: ptr.To(true)}}
				i.update(t, daemonSet)
				return func() {
					daemonSet.OwnerReferences = owners
					i.update(t, daemonSet)
				}
			},
			kind: "DaemonSet", name: names.NodeAgent, text: "belongs to ConfigMap chart",
		},
		"a node has no agent": {
			breakIt: func(t *testing.T, i *installed) func() {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: labelsOf("bare")}}
				i.create(t, node)
				return func() { i.remove(t, node) }
			},
			kind: "Node", name: "bare", text: "has no node agent",
		},
		"an agent is not ready": {
			breakIt: func(t *testing.T, i *installed) func() {
				i.agent.Status.Conditions[0].Status = corev1.ConditionFalse
				i.updateStatus(t, i.agent)
				return func() {
					i.agent.Status.Conditions[0].Status = corev1.ConditionTrue
					i.updateStatus(t, i.agent)
				}
			},
			kind: "Node", name: "node-shop", text: "is not ready",
		},
		"a node has just stopped responding, with its agent": {
			breakIt: func(t *testing.T, i *installed) func() {
				set := func(agent corev1.ConditionStatus, conditions ...corev1.NodeCondition) {
					i.agent.Status.Conditions[0].Status = agent
					i.updateStatus(t, i.agent)
					i.read(t, i.node)
					i.node.Status.Conditions = conditions
					i.updateStatus(t, i.node)
				}
				soon := metav1.NewTime(time.Now().Add(time.Hour)) // so that it is a moment ago for as long as the test takes
				set(corev1.ConditionFalse, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: soon})
				return func() { set(corev1.ConditionTrue) }
			},
			kind: "Node", name: "node-shop", text: "is not ready, so its addresses may not respond",
		},
		"two ports of a Listener have the same name": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.says(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonDuplicatePortName))
			},
			kind: "Listener", name: "web", text: "message of DuplicatePortName",
		},
		"no Pod has the labels that a Listener selects": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.says(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonNoMatchingPods))
			},
			kind: "Listener", name: "web", text: "message of NoMatchingPods",
		},
		"two containers of a Pod have a port of the same name": {
			breakIt: func(t *testing.T, i *installed) func() {
				pod := i.newPod("twice", i.claim.Name)
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
					Name: "sidecar", Image: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 81}},
				})
				return i.pending(t, pod, "")
			},
			kind: "Pod", name: "twice", text: "http",
		},
		"the authorities are damaged": {
			breakIt: func(t *testing.T, i *installed) func() {
				i.eventOf(t, "ListenerOperator", i.config, operatorv1alpha1.ReasonCertificateAuthorityDamaged, "the Secret is damaged")
				return func() { i.forgetEvents(t) }
			},
			kind: "Secret", name: names.CertificateAuthoritySecret, text: "the Secret is damaged",
		},
		"a request for a certificate was denied": {
			breakIt: func(t *testing.T, i *installed) func() {
				s, unpublish := i.secured(t)
				denied := newCondition(certificatesv1.PodCertificateRequestConditionTypeDenied, metav1.ConditionTrue, "InvalidUserConfig")
				request := s.request(t, certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{denied}})
				return func() {
					i.remove(t, request)
					unpublish()
				}
			},
			kind: "PodCertificateRequest", text: "denied: message of InvalidUserConfig",
		},
		"an agent is not registered": {
			breakIt: func(t *testing.T, i *installed) func() {
				drivers := i.csiNode.Spec.Drivers
				i.csiNode.Spec.Drivers = nil
				i.update(t, i.csiNode)
				return func() {
					i.csiNode.Spec.Drivers = drivers
					i.update(t, i.csiNode)
				}
			},
			kind: "Node", name: "node-shop", text: "not registered with the kubelet",
		},
		"an agent cannot be scheduled": {
			breakIt: func(t *testing.T, i *installed) func() {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: labelsOf("full")}}
				i.create(t, node)
				agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: "listener-node-agent-full", Labels: i.agent.Labels}, Spec: *i.agent.Spec.DeepCopy()}
				agent.Spec.NodeName = ""
				agent.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
						{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name}},
					}}},
				}}}
				repair := i.pending(t, agent, "0/2 nodes are available: 1 Insufficient cpu.")
				return func() {
					repair()
					i.remove(t, node)
				}
			},
			kind: "Node", name: "full", text: "the node agent listener-node-agent-full is not ready, so no Pod with a listener volume starts there: Unschedulable: 0/2 nodes are available: 1 Insufficient cpu.",
		},
		"the image of an agent cannot be pulled": {
			breakIt: func(t *testing.T, i *installed) func() {
				status := i.agent.Status.DeepCopy()
				i.agent.Status.Conditions[0].Status = corev1.ConditionFalse
				i.agent.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: "node-agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}},
				}}
				i.updateStatus(t, i.agent)
				return func() {
					i.agent.Status = *status
					i.updateStatus(t, i.agent)
				}
			},
			kind: "Node", name: "node-shop", text: "ErrImagePull: container node-agent does not run on node node-shop: not found",
		},
		"the agent of a node waits for its volumes": {
			breakIt: func(t *testing.T, i *installed) func() {
				status := i.agent.Status.DeepCopy()
				i.agent.Status.Phase, i.agent.Status.Conditions[0].Status = corev1.PodPending, corev1.ConditionFalse
				i.agent.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: "node-agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
				}}
				i.updateStatus(t, i.agent)
				i.kubernetesSays(t, i.agent, "FailedMount", "kubelet", "hostPath type check failed: /elsewhere is not a directory")
				return func() {
					i.agent.Status = *status
					i.updateStatus(t, i.agent)
				}
			},
			kind: "Node", name: "node-shop", text: "is Pending on node node-shop: hostPath type check failed: /elsewhere is not a directory",
		},
		"a Pod is on a node without an agent": {
			breakIt: func(t *testing.T, i *installed) func() {
				i.read(t, i.node)
				delete(i.node.Labels, pool)
				i.update(t, i.node)
				return func() {
					i.node.Labels = labelsOf(i.node.Name)
					i.update(t, i.node)
				}
			},
			kind: "Node", name: "node-shop", text: "has no node agent, because spec.nodeAgent.nodeSelector of ListenerOperator cluster excludes it",
		},
		"a node is not ready": {
			breakIt: func(t *testing.T, i *installed) func() {
				set := func(conditions ...corev1.NodeCondition) {
					i.read(t, i.node)
					i.node.Status.Conditions = conditions
					i.updateStatus(t, i.node)
				}
				set(corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: longAgo()})
				// A Pod that waits for the node is a consequence.
				repair := i.pending(t, i.newPod("stuck", i.claim.Name), "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) had untolerated taint(s).")
				return func() {
					repair()
					set()
				}
			},
			kind: "Node", name: "node-shop", text: "is not ready, so its addresses may not respond; Listeners that Pods there mount: 1",
		},
		"permissions are missing": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.recreate(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: names.Operator}})
			},
			kind: "ServiceAccount", name: names.Operator, text: "may not watch listenerclasses.listeners.stackable.tech",
		},
		"permissions of the node agents are missing": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.recreate(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: names.NodeAgent}})
			},
			kind: "ServiceAccount", name: names.NodeAgent, text: "may not watch podlisteners.listeners.stackable.tech",
		},
		"a class needs Routes": {
			breakIt: func(t *testing.T, i *installed) func() {
				class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "routed"}, Spec: listenersv1alpha1.ListenerClassSpec{
					ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Route: &listenersv1alpha1.RouteExposure{},
				}}
				i.create(t, class)
				return func() { i.remove(t, class) }
			},
			kind: "ListenerClass", name: "routed", text: "does not serve route.openshift.io/v1",
		},
		"a claim is stuck": {
			breakIt: func(t *testing.T, i *installed) func() {
				pvc := i.newClaim("stuck", map[string]string{names.AnnotationListenerClass: "absent"})
				i.create(t, pvc)
				return func() { i.remove(t, pvc) }
			},
			kind: "PersistentVolumeClaim", name: "stuck", text: `ListenerClass "absent" does not exist`,
		},
		"no port is left for a Listener": {
			breakIt: func(t *testing.T, i *installed) func() {
				class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "narrow"}, Spec: listenersv1alpha1.ListenerClassSpec{
					ServiceType: listenersv1alpha1.ServiceTypeNodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: "30070-30071"},
				}}
				i.create(t, class)
				service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "foreign"}, Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "a", Port: 80, NodePort: 30070}, {Name: "b", Port: 81, NodePort: 30071}},
				}}
				i.create(t, service)
				waiting := &listenersv1alpha1.Listener{
					ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "waiting"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &class.Name},
				}
				i.create(t, waiting)
				waiting.Status = &listenersv1alpha1.ListenerStatus{
					IngressAddresses: []listenersv1alpha1.IngressAddress{}, Summary: listenersv1alpha1.ListenerSummary{Reason: listenersv1alpha1.ReasonNodePortsExhausted},
				}
				i.updateStatus(t, waiting)
				return func() {
					i.remove(t, waiting)
					i.remove(t, service)
					i.remove(t, class)
				}
			},
			kind: "ListenerClass", name: "narrow", text: "0 of 2 ports are left in spec.nodePorts.range (30070-30071); Listeners that wait for one: 1",
		},
		"a quota forbids the PodListeners of a Pod": {
			breakIt: func(t *testing.T, i *installed) func() {
				pod := i.newPod("refused", i.claim.Name)
				pod.Spec.NodeName = i.node.Name
				repair := i.pending(t, pod, "")
				i.eventOf(t, "Pod", pod, listenersv1alpha1.ReasonQuotaExceeded, "exceeded quota: addresses")
				return repair
			},
			kind: "PodListeners", text: "exceeded quota: addresses",
		},
		"a Pod started with another address": {
			breakIt: func(t *testing.T, i *installed) func() {
				operator := i.operator(t)
				patch := func(start string) {
					t.Helper()
					if err := operator.Patch(t.Context(), i.podListeners, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"startAddresses":`+start+`}}`))); err != nil {
						t.Fatal(err)
					}
				}
				patch(`{"listener":[{"address":"203.0.113.6","addressType":"IP","ports":{"http":31337}}]}`)
				return func() { patch("null") }
			},
			kind: "PodListeners", text: "the Pod started with 203.0.113.6:31337",
		},
		"a quota forbids the Service of a Listener": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.says(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonQuotaExceeded))
			},
			kind: "Listener", name: "web", text: "message of QuotaExceeded",
		},
		"a Listener waits for a load balancer": {
			breakIt: func(t *testing.T, i *installed) func() {
				waiting := newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer)
				waiting.LastTransitionTime = longAgo()
				return i.says(t, waiting)
			},
			kind: "Service", name: "web", text: "message of WaitingForLoadBalancer",
		},
		"the class of a Listener was deleted": {
			breakIt: func(t *testing.T, i *installed) func() { return i.recreate(t, i.class) },
			kind:    "ListenerClass", name: "class-shop", text: "does not exist",
		},
		"a Pod waits for the node of its volume": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.pending(t, i.newPod("stuck", i.claim.Name), pinned)
			},
			kind: "PersistentVolume", text: "is pinned to node node-shop, and Pod stuck cannot be scheduled: 0/2 nodes are available",
		},
		"a Pod waits for the node of its volume, and the operator says so": {
			breakIt: func(t *testing.T, i *installed) func() {
				pod := i.newPod("stuck", i.claim.Name)
				repair := i.pending(t, pod, pinned)
				i.eventOf(t, "PersistentVolumeClaim", i.claim, listenersv1alpha1.ReasonPinnedToNode, "node node-shop is cordoned")
				return func() {
					repair()
					i.forgetEvents(t)
				}
			},
			kind: "PersistentVolume", text: "node node-shop is cordoned",
		},
		"a Pod cannot be scheduled": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.pending(t, i.newEphemeral("large"), "0/2 nodes are available: 2 Insufficient cpu.")
			},
			kind: "Pod", name: "large", text: "2 Insufficient cpu",
		},
		"a Pod waits for the agent of a node": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.pending(t, i.newPod("early", i.claim.Name), "0/1 nodes are available: 1 listeners.stackable.tech CSI driver is not installed on the node.")
			},
			kind: "Pod", name: "early", text: "1 listeners.stackable.tech CSI driver is not installed on the node",
		},
		"a quota forbids the claim of an ephemeral volume": {
			breakIt: func(t *testing.T, i *installed) func() {
				pod := i.newEphemeral("refused")
				repair := i.pending(t, pod, "waiting for ephemeral volume controller to create the persistentvolumeclaim")
				i.kubernetesSays(t, pod, "FailedBinding", "ephemeral_volume", "exceeded quota: addresses")
				return repair
			},
			kind: "PersistentVolumeClaim", name: "refused-listener", text: "exceeded quota: addresses",
		},
		"a Pod waits for the operator": {
			breakIt: func(t *testing.T, i *installed) func() {
				pod := i.newPod("bound", i.claim.Name)
				pod.Spec.NodeName = i.node.Name
				return i.pending(t, pod, "")
			},
			kind: "PodListeners", text: "does not exist, although Pod bound is bound to node",
		},
		"a policy rejects what the operator writes for a Pod": {
			breakIt: func(t *testing.T, i *installed) func() {
				pod := i.newPod("rejected", i.claim.Name)
				pod.Spec.NodeName = i.node.Name
				repair := i.pending(t, pod, "")
				i.kubernetesSays(t, pod, listenersv1alpha1.ReasonRequestRejected, names.EventReporter, "no labels here")
				return repair
			},
			kind: "PodListeners", text: "no labels here",
		},
		"a Pod waits for an address": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.starting(t, nil, listenersv1alpha1.ReasonWaitingForAddress, names.EventReporter, "no Pod of the Listener has a host port")
			},
			kind: "PodListeners", text: "no Pod of the Listener has a host port",
		},
		"a volume cannot be mounted": {
			breakIt: func(t *testing.T, i *installed) func() {
				return i.starting(t, addresses(), "FailedMount", "kubelet", `MountVolume.SetUp failed for volume "listener" : disk full`)
			},
			kind: "Volume", name: "listener", text: "disk full",
		},
		"a volume is pinned to a node that is out of service": {
			breakIt: func(t *testing.T, i *installed) func() {
				i.read(t, i.node)
				i.node.Spec.Taints = append(i.node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
				i.update(t, i.node)
				return func() {
					i.node.Spec.Taints = i.node.Spec.Taints[:len(i.node.Spec.Taints)-1]
					i.update(t, i.node)
				}
			},
			kind: "PersistentVolume", text: "of claim shop/web is pinned to node node-shop, which is out of service",
		},
	}
}

// TestDoctorNamesEachFault injects one fault at a time.
func TestDoctorNamesEachFault(t *testing.T) {
	i := install(t)
	healthy := func(g Gomega) {
		r := doctor(t)
		g.Expect(r.Problem).To(BeNil())
		g.Expect(r.Findings).NotTo(BeEmpty())
	}
	// Permissions, and versions of definitions, take effect a moment after they change.
	NewWithT(t).Eventually(healthy, apiserver.Timeout, "50ms").Should(Succeed())
	gatherHealthy(t, i)
	for name, tc := range faults() {
		t.Run(name, func(t *testing.T) {
			repair := tc.breakIt(t, i)
			defer func() {
				repair()
				NewWithT(t).Eventually(healthy, apiserver.Timeout, "50ms").Should(Succeed())
			}()
			NewWithT(t).Eventually(func(g Gomega) {
				wrong := slices.DeleteFunc(doctor(t).Findings, func(f found) bool { return f.State != "Failed" })
				g.Expect(wrong).To(HaveLen(1))
				g.Expect(wrong[0].Kind).To(Equal(tc.kind))
				g.Expect(wrong[0].Name).To(ContainSubstring(tc.name))
				g.Expect(wrong[0].Message).To(ContainSubstring(tc.text))
				g.Expect(wrong[0].Remedy).NotTo(BeEmpty())
			}, apiserver.Timeout, "50ms").Should(Succeed())
			dir, out, err := gatherInto(t, apiserver.PlainConfig(t))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			i.same(t, apiserver.PlainConfig(t), dir, "doctor")
		})
	}
	problem := func(t *testing.T, kind, text string) {
		t.Helper()
		NewWithT(t).Eventually(func(g Gomega) {
			p := doctor(t).Problem
			g.Expect(p).NotTo(BeNil())
			g.Expect(p.Kind).To(Equal(kind))
			g.Expect(p.Message).To(ContainSubstring(text))
		}, apiserver.Timeout, "50ms").Should(Succeed())
	}
	t.Run("OpenShift without the constraints", func(t *testing.T) {
		crds.Install(t, i.Client, crds.SecurityContextConstraints)
		defer crds.Remove(t, i.Client, crds.SecurityContextConstraints)
		problem(t, "SecurityContextConstraints", "does not exist")
		for _, component := range installation.Components() {
			if component.Kind == names.KindSecurityContextConstraints.Kind {
				i.component(t, component)
			}
		}
		NewWithT(t).Eventually(healthy, apiserver.Timeout, "50ms").Should(Succeed())
		defer i.recreate(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: names.NodeAgent}})()
		problem(t, "ServiceAccount", "use securitycontextconstraints")
	})
	t.Run("requests for certificates that wait", func(t *testing.T) {
		s, unpublish := i.secured(t)
		defer unpublish()
		request := s.request(t, certificatesv1.PodCertificateRequestStatus{})
		defer i.remove(t, request)
		s.event(t, s.pod, listenersv1alpha1.ReasonCertificateWaiting, "volume x has no address yet")
		at := func(now time.Time) []check.Finding {
			x := &check.Examination{Client: i.Client, Report: check.Report{Gathered: now}}
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
		defer i.forgetEvents(t)
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
	})
	t.Run("two operators", func(t *testing.T) {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
		i.read(t, deployment)
		deployment.ResourceVersion, deployment.UID, deployment.Namespace = "", "", i.namespace
		i.create(t, deployment)
		defer i.remove(t, deployment)
		deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		i.updateStatus(t, deployment)
		problem(t, "Deployment", "exists in 2 namespaces")
	})
	t.Run("what looks wrong and is not", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "windows", Labels: labelsOf("windows")}}
		node.Labels[corev1.LabelOSStable] = "windows"
		i.create(t, node)
		defer i.remove(t, node)
		agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: i.agent.Name + "-replaced", Labels: i.agent.Labels}, Spec: i.agent.Spec}
		i.create(t, agent)
		i.beginToDelete(t, agent)
		defer i.remove(t, agent)
		waiting := i.newClaim("waiting", map[string]string{names.AnnotationListenerClass: i.class.Name})
		i.create(t, waiting)
		defer i.remove(t, waiting)
		i.event(t, waiting, listenersv1alpha1.ReasonWaitForFirstConsumer, "waiting for a Pod")
		defer i.says(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForNodePorts))()
		forPods := &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "idle"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &i.class.Name},
		}
		i.create(t, forPods)
		defer i.remove(t, forPods)
		idle := newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForPods)
		idle.LastTransitionTime = longAgo()
		forPods.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}, Conditions: []metav1.Condition{idle}}
		i.updateStatus(t, forPods)
		i.createUnschedulable(t, "created-just-now")
		defer i.remove(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "created-just-now"}})
		gated := i.newPod("gated", i.claim.Name)
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
		defer i.pending(t, gated, "Scheduling is blocked due to non-empty scheduling gates")()
		gated.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		i.updateStatus(t, gated)
		other := i.newPod("without-listener", i.claim.Name)
		other.Spec.Volumes, other.Spec.Containers[0].VolumeMounts = nil, nil
		defer i.pending(t, other, "0/2 nodes are available: 2 Insufficient cpu.")()
		defer i.starting(t, addresses(), "Pulling", "kubelet", "pulling image")()
		deleted := i.newClaim("deleted", map[string]string{names.AnnotationListenerClass: "absent"})
		i.create(t, deleted)
		i.beginToDelete(t, deleted)
		defer func() {
			deleted.Finalizers = nil
			i.update(t, deleted)
		}()
		healthy(NewWithT(t))
	})
	t.Run("a node that the node agents are not meant for", func(t *testing.T) {
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: labelsOf("other")}}
		delete(other.Labels, pool)
		virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: labelsOf("virtual")}}
		virtual.Labels["type"] = "virtual-kubelet"
		for _, node := range []*corev1.Node{other, virtual} {
			i.create(t, node)
			defer i.remove(t, node)
		}
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !strings.Contains(out, "1 of 2 have a node agent that is ready; spec.nodeAgent.nodeSelector of ListenerOperator cluster excludes other; "+
			"the label type=virtual-kubelet excludes virtual\n") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	})
	t.Run("a namespace occupies the operator", func(t *testing.T) {
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
	})
	t.Run("the operator has stopped", func(t *testing.T) {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
		i.read(t, deployment)
		status := deployment.Status
		deployment.Status = appsv1.DeploymentStatus{Replicas: 1}
		i.updateStatus(t, deployment)
		defer func() {
			deployment.Status = status
			i.updateStatus(t, deployment)
		}()
		listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "unseen"}}
		i.create(t, listener)
		defer i.remove(t, listener)
		out, _ := run(t, apiserver.PlainConfig(t), "doctor")
		if !strings.Contains(out, "was available, version 1.2.3, when the operator last worked") || strings.Contains(out, "See the log of the operator") {
			t.Errorf("output:\n%s", out)
		}
	})
	t.Run("there is no class", func(t *testing.T) {
		defer i.recreate(t, i.class)()
		out, err := run(t, apiserver.PlainConfig(t), "doctor") // the Listener lacks its class
		if err == nil || !strings.Contains(out, "there are none, so nobody can use listener volumes") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	})
	t.Run("no port is left, and no Listener waits", func(t *testing.T) {
		class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType:  listenersv1alpha1.ServiceTypeLoadBalancer,
			LoadBalancer: &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: "9000-9000"}},
		}}
		i.create(t, class)
		defer i.remove(t, class)
		l := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "shared"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &class.Name}}
		i.create(t, l)
		defer i.remove(t, l)
		l.Status = &listenersv1alpha1.ListenerStatus{
			ServiceName: &l.Name, SharedPorts: map[string]int32{"http": 9000}, IngressAddresses: []listenersv1alpha1.IngressAddress{},
		}
		i.updateStatus(t, l)
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !strings.Contains(out, "! ListenerClass full") ||
			!strings.Contains(out, "SharedPortsExhausted: 0 of 1 ports are left in spec.loadBalancer.sharing.portRange (9000-9000)") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	})
	t.Run("clients are sent to Pods that are not ready", func(t *testing.T) {
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
	})
	t.Run("many mistakes of users", func(t *testing.T) {
		for n := range 12 {
			pvc := i.newClaim(fmt.Sprintf("typo-%02d", n), map[string]string{names.AnnotationListenerClass: "absent"})
			i.create(t, pvc)
			defer i.remove(t, pvc)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: labelsOf("bare")}}
		i.create(t, node)
		defer i.remove(t, node)
		out, _ := run(t, apiserver.PlainConfig(t), "doctor")
		atNode, users := strings.Index(out, "✗ Node bare"), strings.Index(out, "\nFor the users of namespaces: 12\n")
		if atNode < 0 || users < atNode || strings.Count(out, "✗ PersistentVolumeClaim") != 10 ||
			!strings.Contains(out, "2 more (2 ClassNotFound)") {
			t.Errorf("output:\n%s", out)
		}
	})
	t.Run("text", func(t *testing.T) {
		out, err := run(t, apiserver.PlainConfig(t), "doctor")
		if err != nil || !strings.Contains(out, "✓ CSIDriver "+names.Driver) || !strings.HasSuffix(out, "\nThe installation is in order, and the Listeners have their addresses. To test whether Pods respond there, run: kubectl listener connect POD\n") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	})
	t.Run("a user who may not read whether node agents are registered", func(t *testing.T) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "support"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list"}, Resources: []string{"*"}, APIGroups: []string{
				"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apps", "certificates.k8s.io", "discovery.k8s.io", "networking.k8s.io", listenersv1alpha1.GroupVersion.Group, operatorv1alpha1.GroupVersion.Group,
			}},
			{Verbs: []string{"get", "list"}, APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csidrivers", "storageclasses"}},
			{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}},
		}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: i.namespace, Name: role.Name}},
		}
		i.create(t, role)
		defer i.remove(t, role)
		i.create(t, binding)
		defer i.remove(t, binding)
		config := apiserver.WithToken(t, apiserver.PlainConfig(t), i.namespace, role.Name)
		NewWithT(t).Eventually(func(g Gomega) {
			out, err := run(t, config, "doctor", "--output", "json")
			notSeen := slices.DeleteFunc(decode(t, out, err).Findings, func(f found) bool { return f.State == "OK" })
			g.Expect(notSeen).To(HaveLen(1))
			g.Expect(notSeen[0].Kind + " " + notSeen[0].State).To(Equal("CSINode Unknown"))
			out, err = run(t, config, "doctor")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).NotTo(ContainSubstring("is in order"))
		}, apiserver.Timeout, "50ms").Should(Succeed())
	})
	t.Run("there is no configuration", func(t *testing.T) { // at last, because what is installed belongs to it
		i.remove(t, i.config)
		problem(t, "ListenerOperator", "so nothing is installed")
	})
}

func TestDoctorSaysThatNothingIsInstalled(t *testing.T) {
	out, err := run(t, apiserver.Config(t), "doctor", "-o", "json")
	if p := decode(t, out, err).Problem; p == nil || p.Kind != "Deployment" || !strings.Contains(p.Remedy, "Install the operator") {
		t.Errorf("problem %+v in\n%s", p, out)
	}
}

func TestDoctorSaysWhatTheUserMayNotRead(t *testing.T) {
	config := apiserver.WithToken(t, apiserver.Config(t), apiserver.Namespace(t), "nobody")
	out, err := run(t, config, "doctor", "-o", "json")
	r := decode(t, out, err)
	for _, f := range r.Findings {
		if f.State != "Unknown" {
			t.Errorf("%+v", f)
		}
	}
	if err != nil || len(r.Findings) < 5 {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}
