package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// world is a Pod with a listener volume, and everything that belongs to it, as the operator and Kubernetes leave them
// if nothing is wrong.
type world struct {
	client.Client
	namespace string

	node         *corev1.Node
	csiNode      *storagev1.CSINode
	class        *listenersv1alpha1.ListenerClass
	claim        *corev1.PersistentVolumeClaim
	volume       *corev1.PersistentVolume
	listener     *listenersv1alpha1.Listener
	service      *corev1.Service
	endpoints    *discoveryv1.EndpointSlice
	pod          *corev1.Pod
	podListeners *listenersv1alpha1.PodListeners
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, apiserver.Client(t), apiserver.Namespace(t))
}

func newWorldWith(t *testing.T, c client.Client, namespace string) *world {
	t.Helper()
	w := &world{Client: c, namespace: namespace}
	w.node = objects.Node("node-" + namespace)
	w.node.Labels = labelsOf(w.node.Name)
	w.create(t, w.node)
	w.csiNode = &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: w.node.Name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: names.Driver, NodeID: w.node.Name, TopologyKeys: []string{names.TopologyKey}}}},
	}
	w.create(t, w.csiNode)
	w.class = &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "class-" + namespace},
		Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType: listenersv1alpha1.ServiceTypeNodePort, Pinning: &listenersv1alpha1.Pinning{Policy: listenersv1alpha1.PinningPolicyRequired},
		},
	}
	w.create(t, w.class)
	w.createClaim(t)
	w.createListener(t)
	w.createPod(t)
	return w
}

// pool is the label of the nodes that should have an agent.
const pool = "pool"

// labelsOf returns the labels of a node with an agent.
func labelsOf(node string) map[string]string {
	return map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", names.TopologyKey: node, pool: "apps"}
}

// createClaim creates a claim with its volume, which is pinned.
func (w *world) createClaim(t *testing.T) {
	w.claim = w.newClaim("web", ofClass(w.class.Name))
	w.create(t, w.claim)
	w.volume = claim.Volume(w.claim, w.claim.Name)
	w.volume.Spec.NodeAffinity = claim.NodeAffinity(w.node.Name)
	w.create(t, w.volume)
	w.claim.Spec.VolumeName = w.volume.Name
	w.update(t, w.claim)
	w.claim.Status.Phase = corev1.ClaimBound
	w.updateStatus(t, w.claim)
}

// user returns the configuration of a user who may do this in the namespace.
func (w *world) user(t *testing.T, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user := metav1.ObjectMeta{Namespace: w.namespace, Name: "user"}
	w.create(t, &rbacv1.Role{ObjectMeta: user, Rules: rules})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: user, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: user.Namespace, Name: user.Name}},
	})
	return apiserver.WithToken(t, apiserver.Config(t), user.Namespace, user.Name)
}

// clusterUser returns the configuration of a user who may do this in all namespaces of the cluster of an administrator.
func (w *world) clusterUser(t *testing.T, admin *rest.Config, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user := metav1.ObjectMeta{Name: "user-" + w.namespace}
	w.create(t, &rbacv1.ClusterRole{ObjectMeta: user, Rules: rules})
	w.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: user, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "user"}},
	})
	return apiserver.WithToken(t, admin, w.namespace, "user")
}

// newClaim returns a claim as Kubernetes leaves it for the provisioner.
func (w *world) newClaim(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	annotations[names.AnnotationProvisioner] = names.Driver
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: annotations},
		Spec:       objects.ClaimSpec(""),
	}
}

// newClaimOf returns a claim "other" of a StorageClass, for which Kubernetes has found no provisioner.
func (w *world) newClaimOf(storageClass string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	pvc := w.newClaim("other", annotations)
	delete(pvc.Annotations, names.AnnotationProvisioner)
	pvc.Spec.StorageClassName = &storageClass
	return pvc
}

// ofClass returns the annotation of a claim, or the attribute of a volume, that names a class.
func ofClass(name string) map[string]string {
	return map[string]string{names.AnnotationListenerClass: name}
}

// ofListener returns the annotation of a claim, or the attribute of a volume, that names a Listener.
func ofListener(name string) map[string]string {
	return map[string]string{names.AnnotationListenerName: name}
}

func addresses() []listenersv1alpha1.IngressAddress {
	return []listenersv1alpha1.IngressAddress{at("203.0.113.7", map[string]int32{"http": 31337})}
}

func at(host string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	kind := listenersv1alpha1.AddressTypeIP
	if net.ParseIP(host) == nil {
		kind = listenersv1alpha1.AddressTypeHostname
	}
	return listenersv1alpha1.IngressAddress{Address: host, AddressType: kind, Ports: ports}
}

// createListener creates a Listener with its Service.
func (w *world) createListener(t *testing.T) {
	w.listener = &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: w.claim.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: w.claim.Name, UID: w.claim.UID}},
		},
		Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To(w.class.Name), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	w.create(t, w.listener)
	w.listener.Status = &listenersv1alpha1.ListenerStatus{
		ServiceName: ptr.To(w.claim.Name), IngressAddresses: addresses(), NodePorts: map[string]int32{"http": 31337}, ObservedGeneration: w.listener.Generation,
		Conditions: []metav1.Condition{
			newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted),
			newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonAddressesAssigned),
		},
	}
	w.updateStatus(t, w.listener)
	w.service = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: w.listener.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.listener, listenersv1alpha1.GroupVersion.WithKind("Listener"))},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	w.create(t, w.service)
}

func newCondition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "message of " + reason, LastTransitionTime: metav1.Now()}
}

// createPod creates a running Pod that mounts the claim, its endpoint and its PodListeners.
func (w *world) createPod(t *testing.T) {
	w.pod = w.newPod("web-0", w.claim.Name)
	w.pod.Labels = map[string]string{names.PodMountLabel(w.listener.UID): w.listener.Name}
	w.pod.Spec.NodeName = w.node.Name
	w.create(t, w.pod)
	w.pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}}
	w.updateStatus(t, w.pod)
	w.endpoints = &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: w.namespace, Name: w.service.Name, Labels: map[string]string{discoveryv1.LabelServiceName: w.service.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: w.pod.Name, UID: w.pod.UID},
		}},
	}
	w.create(t, w.endpoints)
	w.podListeners = w.newPodListeners(w.pod, addresses())
	w.create(t, w.podListeners)
}

// newPodListeners returns the addresses of a Pod on the node that mounts the claim.
func (w *world) newPodListeners(pod *corev1.Pod, ingress []listenersv1alpha1.IngressAddress) *listenersv1alpha1.PodListeners {
	published := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, w.node.Name)
	published.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{
		Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: ingress, PersistentVolumeName: w.volume.Name, ListenerName: w.listener.Name,
	}
	return published
}

// createRunning creates a Pod that runs on the node, and is an endpoint and in PodListeners like the other one.
func (w *world) createRunning(t *testing.T, pod *corev1.Pod) {
	pod.Labels, pod.Spec.NodeName = w.pod.Labels, w.node.Name
	w.create(t, pod)
	pod.Status = w.pod.Status
	w.updateStatus(t, pod)
	endpoint := *w.endpoints.Endpoints[0].DeepCopy()
	endpoint.TargetRef.Name, endpoint.TargetRef.UID = pod.Name, pod.UID
	w.endpoints.Endpoints = append(w.endpoints.Endpoints, endpoint)
	w.update(t, w.endpoints)
	w.create(t, w.newPodListeners(pod, w.podListeners.Spec.Listeners["listener"].IngressAddresses))
}

// outdated lets the Pod have started with another address. restart is whether its class restarts it.
func (w *world) outdated(t *testing.T, restart bool) {
	start := addresses()
	start[0].Address = "203.0.113.6"
	if restart {
		w.podListeners.Spec.RestartOnChange = []string{"listener"}
	}
	w.podListeners.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": start}
	w.update(t, w.podListeners)
}

// stopNode makes the node one whose kubelet does not respond.
func (w *world) stopNode(t *testing.T) {
	w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	w.updateStatus(t, w.node)
}

// restarted lets the container of the Pod run again after it failed.
func (w *world) restarted(t *testing.T) {
	w.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}, RestartCount: 4,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", FinishedAt: metav1.Now()}},
	}}
	w.updateStatus(t, w.pod)
}

// sameTarget lets the node port lead to the container port of the same number.
func (w *world) sameTarget(t *testing.T) {
	w.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
	w.update(t, w.class)
	port := &w.service.Spec.Ports[0]
	port.TargetPort = intstr.FromInt32(port.NodePort)
	w.update(t, w.service)
}

// unready makes the Pod one that runs and is not ready.
func (w *world) unready(t *testing.T) {
	w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}}
	w.updateStatus(t, w.pod)
}

// publishNotReady lets the Service have endpoints that are not ready.
func (w *world) publishNotReady(t *testing.T) {
	w.service.Spec.PublishNotReadyAddresses = true
	w.update(t, w.service)
}

// withoutEndpoints removes the endpoints of the Service.
func (w *world) withoutEndpoints(t *testing.T) {
	w.endpoints.Endpoints = []discoveryv1.Endpoint{}
	w.update(t, w.endpoints)
}

// demand lets the Listener select Pods by labels, as the operator has seen.
func (w *world) demand(t *testing.T, labels map[string]string) {
	w.listener.Spec.ExtraPodSelectorLabels = labels
	w.updateObserved(t)
}

// updateObserved updates the Listener, as the operator has seen.
func (w *world) updateObserved(t *testing.T) {
	t.Helper()
	w.update(t, w.listener)
	w.listener.Status.ObservedGeneration = w.listener.Generation
	w.updateStatus(t, w.listener)
}

// policy returns a NetworkPolicy for all Pods of the namespace.
func (w *world) policy(name string, rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: rules},
	}
}

// clientPolicy returns the NetworkPolicy by which the operator restricts the clients of the Listener.
func (w *world) clientPolicy() *networkingv1.NetworkPolicy {
	policy := w.policy(w.listener.Name+exposure.ClientPolicySuffix, networkingv1.NetworkPolicyIngressRule{
		From:  []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/24"}}},
		Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(80))}},
	})
	exposure.SetOwner(policy, w.listener)
	return policy
}

// waiting makes the container of the Pod wait.
func (w *world) waiting(t *testing.T, reason, message string) {
	w.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}
	w.updateStatus(t, w.pod)
}

// statefulSet returns a StatefulSet "db", whose controller does not run.
func (w *world) statefulSet() *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: w.newPod("", "absent").Spec},
		},
	}
}

// newPod returns a Pod with the volume "listener" of a claim.
func (w *world) newPod(name, claimName string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
				VolumeMounts: []corev1.VolumeMount{{Name: "listener", MountPath: "/listener"}},
			}},
			Volumes: []corev1.Volume{objects.ClaimVolume("listener", claimName)},
		},
	}
}

func (w *world) newListener(name, class string) *listenersv1alpha1.Listener {
	return &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &class}}
}

// createInline creates a Pod "inline" that waits for a node, and has an inline volume with these attributes.
func (w *world) createInline(t *testing.T, attributes map[string]string) {
	pod := w.newPod("inline", "")
	pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", attributes)}
	w.create(t, pod)
}

// createReplica creates a StatefulSet "db" whose Pod has an inline volume with other attributes than the template.
func (w *world) createReplica(t *testing.T, attributes, template map[string]string) {
	set, pod := w.statefulSet(), w.newPod("db-0", "")
	set.Spec.Template.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", template)}
	w.create(t, set)
	pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", attributes)}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	w.create(t, pod)
}

// createPending creates a Pod "pending" that is bound to the node, and mounts the claim and a projected source.
func (w *world) createPending(t *testing.T, source corev1.VolumeProjection) {
	pod := w.newPod("pending", w.claim.Name)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}},
	}})
	w.createRunning(t, pod)
	pod.Status.Phase = corev1.PodPending
	w.updateStatus(t, pod)
}

// createUnschedulable creates a Pod that mounts the claim, and that no node can take.
func (w *world) createUnschedulable(t *testing.T, name string) {
	pod := w.newPod(name, w.claim.Name)
	w.create(t, pod)
	w.notScheduled(t, pod, corev1.PodReasonUnschedulable, pinned)
}

// notScheduled has the scheduler say why a Pod is not bound to a node.
func (w *world) notScheduled(t *testing.T, pod *corev1.Pod, reason, message string) {
	t.Helper()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message}}
	w.updateStatus(t, pod)
}

// event creates an event of the operator about an object.
func (w *world) event(t *testing.T, o client.Object, reason, message string) {
	t.Helper()
	w.eventOf(t, "", o, reason, message)
}

// eventOf creates an event of the operator about an object of a kind.
func (w *world) eventOf(t *testing.T, kind string, o client.Object, reason, message string) {
	t.Helper()
	w.create(t, &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprint("event-", time.Now().UnixNano())}, // listed in this order
		InvolvedObject:      corev1.ObjectReference{Kind: kind, Namespace: w.namespace, Name: o.GetName(), UID: o.GetUID()},
		ReportingController: names.EventReporter, ReportingInstance: "test", Action: "Test", Type: corev1.EventTypeWarning,
		Reason: reason, Message: message, EventTime: metav1.NowMicro(),
	})
}

// nameClass names a class in the claim, for which the Listener was created.
func (w *world) nameClass(t *testing.T, class string) {
	t.Helper()
	w.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: w.claim.Name, UID: w.claim.UID}}
	w.update(t, w.listener)
	w.claim.Annotations[names.AnnotationListenerClass] = class
	w.update(t, w.claim)
}

// notReady changes conditions of the Listener.
func (w *world) notReady(t *testing.T, conditions ...metav1.Condition) {
	t.Helper()
	w.listener.Status.IngressAddresses = []listenersv1alpha1.IngressAddress{}
	w.setConditions(t, conditions...)
}

// setConditions replaces conditions of the Listener.
func (w *world) setConditions(t *testing.T, conditions ...metav1.Condition) {
	t.Helper()
	for _, c := range conditions {
		for i := range w.listener.Status.Conditions {
			if w.listener.Status.Conditions[i].Type == c.Type {
				w.listener.Status.Conditions[i] = c
			}
		}
	}
	w.updateStatus(t, w.listener)
}

// create creates an object, which is deleted when the test ends: the commands of later tests would read it, too.
func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	w.createForever(t, o)
	created := o.DeepCopyObject().(client.Object)
	t.Cleanup(func() {
		err := errors.Join(
			client.IgnoreNotFound(w.Patch(context.Background(), created, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))),
			client.IgnoreNotFound(w.Delete(context.Background(), created, client.GracePeriodSeconds(0))),
		)
		if err != nil {
			t.Errorf("deleting %T %s: %v", o, o.GetName(), err)
		}
	})
}

// lasting returns a context that does not end before what runs when the test ends.
func lasting(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// createForever creates an object that outlives the test.
func (w *world) createForever(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.Create(lasting(t), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

func (w *world) update(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.Update(lasting(t), o); err != nil {
		t.Fatalf("updating %T %s: %v", o, o.GetName(), err)
	}
}

func (w *world) updateStatus(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.Status().Update(lasting(t), o); err != nil {
		t.Fatalf("updating the status of %T %s: %v", o, o.GetName(), err)
	}
}

// beginToDelete deletes an object that a finalizer keeps.
func (w *world) beginToDelete(t *testing.T, o client.Object) {
	t.Helper()
	o.SetFinalizers([]string{"example.com/keep"})
	w.update(t, o)
	if err := errors.Join(w.Delete(t.Context(), o), w.Get(t.Context(), client.ObjectKeyFromObject(o), o)); err != nil {
		t.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// remove deletes an object at once.
func (w *world) remove(t *testing.T, o client.Object) {
	t.Helper()
	if len(o.GetFinalizers()) > 0 {
		o.SetFinalizers(nil)
		w.update(t, o)
	}
	if err := w.Delete(lasting(t), o, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}
