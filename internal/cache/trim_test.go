package cache

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// metadata returns metadata with labels, owners, and fields that the cache drops.
func metadata(labels map[string]string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "web-0", Namespace: "shop", UID: "uid", ResourceVersion: "7", Generation: 3, Labels: labels,
		Annotations:   map[string]string{"large": "text"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}, OwnerReferences: owners,
	}
}

// trimmedMetadata returns what the cache keeps of metadata.
func trimmedMetadata(labels map[string]string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	meta := metadata(labels, owners...)
	meta.Annotations, meta.ManagedFields = nil, nil
	return meta
}

func owner(kind string, controls bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "listeners.stackable.tech/v1alpha1", Kind: kind, Name: "owner", UID: types.UID(strings.ToLower(kind)), Controller: &controls}
}

func TestTrimmedPodKeepsClaimsPortsControllerNodePhaseAndReadiness(t *testing.T) {
	const mount = names.PodMountLabelPrefix + "0123"
	pod := &corev1.Pod{
		ObjectMeta: metadata(map[string]string{"app": "web", mount: "web-0"}, owner("StatefulSet", true)),
		Spec: corev1.PodSpec{
			NodeName: "node-1", HostNetwork: true, Hostname: "web-0",
			Containers: []corev1.Container{
				{Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, HostPort: 8080}}},
				{Name: "helper", Image: "helper:1"},
				{Name: "metrics", Image: "metrics:1", Ports: []corev1.ContainerPort{{ContainerPort: 9090}}},
			},
			InitContainers: []corev1.Container{
				{Name: "setup", Image: "setup:1", Ports: []corev1.ContainerPort{{ContainerPort: 1}}},
				{Name: "proxy", Image: "proxy:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 15090}}},
			},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
				{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{},
				}}},
				objects.ClaimVolume("named", "named"),
				objects.InlineVolume("inline", map[string]string{names.AnnotationListenerClass: "public"}),
				{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
				{Name: "secrets", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Unix(1, 0)), PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "words"},
		}},
	}
	pod.GenerateName = "web-"
	kept := trimPod(pod.DeepCopy())
	if diff := cmp.Diff(claim.NamesOf(pod), claim.NamesOf(kept)); diff != "" {
		t.Errorf("claims (-whole +trimmed):\n%s", diff)
	}
	if diff := cmp.Diff(claim.PodPorts(pod), claim.PodPorts(kept)); diff != "" {
		t.Errorf("ports (-whole +trimmed):\n%s", diff)
	}
	want := &corev1.Pod{
		ObjectMeta: trimmedMetadata(map[string]string{"app": "web", mount: "web-0"}, owner("StatefulSet", true)),
		Spec: corev1.PodSpec{
			NodeName: "node-1", HostNetwork: true, Hostname: "web-0",
			Containers:     []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, HostPort: 8080}, {ContainerPort: 9090}}}},
			InitContainers: []corev1.Container{{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 15090}}}},
			Volumes: []corev1.Volume{
				{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}, pod.Spec.Volumes[2],
				{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
					Driver: names.Driver, VolumeAttributes: map[string]string{names.AnnotationListenerClass: "public"},
				}}},
				{Name: "kube-api-access-x7k2p"},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: pod.Status.StartTime, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	want.GenerateName = "web-"
	check.Equal(t, "pod", want, kept)
}

func TestPodThatIsNotScheduledKeepsWhatDecidesAboutItsNode(t *testing.T) {
	verdict := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "words"}
	affinity := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	pod := &corev1.Pod{
		ObjectMeta: metadata(nil),
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"zone": "a"}, Tolerations: []corev1.Toleration{{Key: "infra"}},
			Affinity: &corev1.Affinity{NodeAffinity: affinity, PodAffinity: &corev1.PodAffinity{}},
			Volumes:  []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady}, verdict}},
	}
	want := &corev1.Pod{
		ObjectMeta: trimmedMetadata(nil),
		Spec: corev1.PodSpec{
			NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations, Affinity: &corev1.Affinity{NodeAffinity: affinity},
			Volumes: pod.Spec.Volumes,
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{verdict}},
	}
	check.Equal(t, "pod", want, trimPod(pod.DeepCopy()))
	pod.Spec.NodeName = "node-1"
	want = &corev1.Pod{ObjectMeta: trimmedMetadata(nil), Spec: corev1.PodSpec{NodeName: "node-1", Volumes: pod.Spec.Volumes}}
	check.Equal(t, "pod on a node", want, trimPod(pod))
}

func TestPodWithoutClaimsKeepsMetadataNodeAndPhaseOnly(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metadata(map[string]string{"app": "web"}),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
	}
	check.Equal(t, "pod", &corev1.Pod{ObjectMeta: trimmedMetadata(nil)}, trimPod(pod))
}

func TestTrimmedNodeKeepsAddressesReadinessLabelsAndTaints(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metadata(map[string]string{"zone": "a"}),
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Unschedulable: true, Taints: []corev1.Taint{{Key: "infra", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{objects.InternalIP("192.0.2.1")},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastHeartbeatTime: metav1.Now()},
			},
			Images: []corev1.ContainerImage{{Names: []string{"image"}}},
		},
	}
	node.Annotations[names.AnnotationAdvertisedAddress] = "198.51.100.1"
	want := &corev1.Node{
		ObjectMeta: trimmedMetadata(node.Labels),
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: true},
		Status: corev1.NodeStatus{
			Addresses: node.Status.Addresses, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		},
	}
	want.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "198.51.100.1"}
	check.Equal(t, "node", want, trimNode(node))
}

func TestTrimmedServiceKeepsWhatAddressesDependOn(t *testing.T) {
	spec := corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
		IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
		Ports:                 []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}},
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		LoadBalancerClass:     ptr.To("lb"), AllocateLoadBalancerNodePorts: ptr.To(true), HealthCheckNodePort: 31000,
	}
	whole := &corev1.Service{
		ObjectMeta: metadata(map[string]string{"app": "web"}, owner("Other", false), owner("Listener", true)),
		Spec:       spec,
		Status: corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}},
			Conditions:   []metav1.Condition{{Type: "Some"}},
		},
	}
	whole.Spec.Selector = map[string]string{"app": "web"}
	whole.Annotations[names.AnnotationHostname], whole.Annotations[names.AnnotationPod] = "web.example.com", "web-0"
	want := &corev1.Service{
		ObjectMeta: trimmedMetadata(nil, owner("Listener", true)), Spec: spec,
		Status: whole.Status,
	}
	want.Annotations = map[string]string{names.AnnotationHostname: "web.example.com", names.AnnotationPod: "web-0"}
	check.Equal(t, "service", want, trimService(whole.DeepCopy(), "operators"))
	want = whole.DeepCopy()
	want.ManagedFields = nil
	check.Equal(t, "service in the operator's namespace", want, trimService(whole.DeepCopy(), "shop"))
}

func TestTrimmedPolicyKeepsWhichPodsItSelects(t *testing.T) {
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{}},
	}
	trimmed := spec
	trimmed.Ingress = nil
	whole := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		meta.ManagedFields = nil
		return meta
	}
	ofListener := metadata(map[string]string{"app": "web"}, owner("Listener", true))
	ofListener.Name = "owner-allowed-clients"
	for name, tc := range map[string]struct {
		operator string
		meta     metav1.ObjectMeta
		want     *networkingv1.NetworkPolicy
	}{
		"of a user": {
			"operators", metadata(map[string]string{"app": "web"}, owner("Release", true), owner("Other", false)),
			&networkingv1.NetworkPolicy{ObjectMeta: trimmedMetadata(nil, owner("Release", true)), Spec: trimmed},
		},
		"of a Listener":   {"operators", ofListener, &networkingv1.NetworkPolicy{ObjectMeta: whole(ofListener), Spec: spec}},
		"of the operator": {"shop", metadata(nil), &networkingv1.NetworkPolicy{ObjectMeta: whole(metadata(nil)), Spec: spec}},
	} {
		t.Run(name, func(t *testing.T) {
			got := trimPolicy(&networkingv1.NetworkPolicy{ObjectMeta: tc.meta, Spec: spec}, tc.operator)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// It restricts no less.
func TestALargeSelectorOfAPolicyBecomesOneOfAllPods(t *testing.T) {
	selector := func(values int) metav1.LabelSelector {
		app := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
		for i := range values {
			app.Values = append(app.Values, fmt.Sprint("web-", i))
		}
		return metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}, MatchExpressions: []metav1.LabelSelectorRequirement{app}}
	}
	forged := metadata(nil, owner("Listener", true))
	forged.Name = "owner-allowed-clients"
	for name, tc := range map[string]struct {
		meta     metav1.ObjectMeta
		selector metav1.LabelSelector
		want     metav1.LabelSelector
	}{
		"small":                    {metadata(nil), selector(62), selector(62)},
		"large":                    {metadata(nil), selector(63), metav1.LabelSelector{}},
		"in place of a Listener's": {forged, selector(20_000), metav1.LabelSelector{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := trimPolicy(&networkingv1.NetworkPolicy{ObjectMeta: tc.meta, Spec: networkingv1.NetworkPolicySpec{PodSelector: tc.selector}}, "operators")
			if diff := cmp.Diff(tc.want, got.Spec.PodSelector); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrimmedVolumeKeepsReservationAndReclaimPolicy(t *testing.T) {
	whole := &corev1.PersistentVolume{
		ObjectMeta: metadata(map[string]string{names.LabelListenerNamespace: "shop", names.LabelListenerName: "web-0", "app": "web"}),
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: {}},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "web-0", UID: "claim", ResourceVersion: "5",
			},
			NodeAffinity:                  &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              names.Driver,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: "pvc-1",
				VolumeAttributes: map[string]string{names.AnnotationListenerClass: "public", "large": "text"},
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased, Message: "text"},
	}
	whole.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
	whole.Annotations[names.AnnotationNode] = "node-1"
	whole.Annotations[names.AnnotationLostSince], whole.Annotations[names.AnnotationReleasedFrom] = "then", "node-2"
	whole.Annotations["pv.kubernetes.io/provisioned-by"] = names.Driver
	want := &corev1.PersistentVolume{
		ObjectMeta: trimmedMetadata(map[string]string{names.LabelListenerNamespace: "shop", names.LabelListenerName: "web-0"}),
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: "web-0", UID: "claim"},
			NodeAffinity:                  whole.Spec.NodeAffinity,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              names.Driver,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeAttributes: map[string]string{names.AnnotationListenerClass: "public"},
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
	want.Finalizers = whole.Finalizers
	want.Annotations = map[string]string{
		names.AnnotationNode: "node-1", names.AnnotationLostSince: "then", names.AnnotationReleasedFrom: "node-2", "pv.kubernetes.io/provisioned-by": names.Driver,
	}
	check.Equal(t, "volume", want, trimVolume(whole.DeepCopy()))
	whole.Spec.CSI.Driver = "another.example"
	check.Equal(t, "volume of another driver", &corev1.PersistentVolume{ObjectMeta: trimmedMetadata(nil)}, trimVolume(whole))
}

func TestClaimIsNotTrimmedUntilItIsBound(t *testing.T) {
	whole := &corev1.PersistentVolumeClaim{
		ObjectMeta: metadata(map[string]string{"app": "web"}, owner("Other", false), owner("Pod", true)),
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(names.Driver), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		},
	}
	want := whole.DeepCopy()
	want.ManagedFields = nil
	check.Equal(t, "claim", want, trimClaim(whole.DeepCopy()))
	whole.Spec.VolumeName = "pvc-1"
	want = &corev1.PersistentVolumeClaim{
		ObjectMeta: trimmedMetadata(whole.Labels, owner("Pod", true)), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-1"},
	}
	whole.Annotations[names.AnnotationRelease] = "never"
	check.Equal(t, "bound claim of another driver", want, trimClaim(whole.DeepCopy()))
	whole.Annotations[names.AnnotationProvisioner] = names.Driver
	whole.Annotations[names.AnnotationListenerClass] = "public"
	want.Annotations = map[string]string{
		names.AnnotationProvisioner: names.Driver, names.AnnotationRelease: "never", names.AnnotationListenerClass: "public",
	}
	check.Equal(t, "bound claim of the driver", want, trimClaim(whole))
}

// transformed returns what a cache with Options keeps of an object.
func transformed[T client.Object](t *testing.T, o T) T {
	t.Helper()
	options := Options("operators")
	transform := options.DefaultTransform
	for cached, by := range options.ByObject {
		if reflect.TypeOf(cached) == reflect.TypeOf(o) && by.Transform != nil {
			transform = by.Transform
		}
	}
	kept, err := transform(o)
	check.Must(t, err)
	return kept.(T)
}

func TestTrimmedNamespaceKeepsLabels(t *testing.T) {
	whole := tenancy.Namespace()
	whole.ObjectMeta = metadata(map[string]string{"exposure": "public"}, owner("Tenant", true))
	want := tenancy.Namespace()
	want.ObjectMeta = trimmedMetadata(whole.Labels)
	if diff := cmp.Diff(want, transformed(t, whole)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTrimmedListenerKeepsSpecAndStatus(t *testing.T) {
	ports := map[string]int32{"http": 30080}
	whole := &listenersv1alpha1.Listener{
		TypeMeta:   metav1.TypeMeta{Kind: "Listener"},
		ObjectMeta: metadata(map[string]string{"app": "web"}, owner("PersistentVolumeClaim", false), owner("PersistentVolume", false)),
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public"), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
		Status: &listenersv1alpha1.ListenerStatus{
			NodePorts: ports,
			IngressAddresses: []listenersv1alpha1.IngressAddress{
				{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 30080}},
				{Address: "web.example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}},
			},
			Conditions: []metav1.Condition{{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: "Some", Message: "words"}},
		},
	}
	whole.Annotations[names.AnnotationClaim] = "web-0"
	want := &listenersv1alpha1.Listener{
		ObjectMeta: trimmedMetadata(whole.Labels, whole.OwnerReferences...), Spec: *whole.Spec.DeepCopy(), Status: whole.Status.DeepCopy(),
	}
	want.Annotations = map[string]string{names.AnnotationClaim: "web-0"}
	check.Equal(t, "listener", want, transformed(t, whole))
}

func TestTrimmedPodListenersLacksManagedFieldsOnly(t *testing.T) {
	whole := &listenersv1alpha1.PodListeners{
		TypeMeta: metav1.TypeMeta{Kind: "PodListeners"}, ObjectMeta: metadata(map[string]string{"app": "web"}, owner("Pod", false)),
		Spec: listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{"listener": {
			Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: "pvc-1", ListenerName: "web-0",
			IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", Ports: map[string]int32{"http": 30080}}},
		}}},
	}
	whole.Finalizers = []string{"example.com/x"}
	want := &listenersv1alpha1.PodListeners{ObjectMeta: *whole.ObjectMeta.DeepCopy(), Spec: *whole.Spec.DeepCopy()}
	want.ManagedFields = nil
	check.Equal(t, "pod listeners", want, transformed(t, whole), cmpopts.IgnoreTypes(metav1.TypeMeta{}))
}

func TestPodKeepsRestartsOfContainersThatMountListenerVolumes(t *testing.T) {
	mounts := []corev1.VolumeMount{{Name: "scratch", MountPath: "/tmp"}, {Name: "own", MountPath: "/listener", SubPath: "default-address"}}
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Volumes:        []corev1.Volume{{Name: "scratch"}, {Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}},
			InitContainers: []corev1.Container{{Name: "init", Image: "init", VolumeMounts: mounts}},
			Containers:     []corev1.Container{{Name: "web", VolumeMounts: mounts, Ports: []corev1.ContainerPort{{ContainerPort: 80}}}, {Name: "other"}, {Name: "new", VolumeMounts: mounts}},
		},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", RestartCount: 1, Image: "init"}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "other", RestartCount: 3}, {Name: "web", RestartCount: 2}},
		},
	}
	kept, own := trimPod(pod), []corev1.VolumeMount{{Name: "own"}}
	want := []corev1.Container{{Name: "init", VolumeMounts: own, Ports: []corev1.ContainerPort{{ContainerPort: 80}}}, {Name: "web", VolumeMounts: own}}
	check.Equal(t, "containers", want, kept.Spec.Containers)
	check.Equal(t, "statuses", []corev1.ContainerStatus{{Name: "init", RestartCount: 1}, {Name: "web", RestartCount: 2}}, kept.Status.ContainerStatuses)
	if diff := cmp.Diff(kept.DeepCopy(), trimPod(kept)); diff != "" {
		t.Errorf("(-once +twice):\n%s", diff)
	}
}

// The informer passes objects that it has to the transform again, for example after its watch was interrupted.
func TestTrimmingATrimmedObjectChangesNothing(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metadata(map[string]string{names.PodMountLabelPrefix + "0123": "web-0"}),
		Spec:       corev1.PodSpec{Volumes: []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}},
	}
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Name: "web-0"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: names.Driver, VolumeAttributes: map[string]string{names.AnnotationListenerClass: "public"},
		}},
	}}
	once := trimPod(pod)
	if diff := cmp.Diff(once.DeepCopy(), trimPod(once)); diff != "" {
		t.Errorf("pod (-once +twice):\n%s", diff)
	}
	onceVolume := trimVolume(pv)
	if diff := cmp.Diff(onceVolume.DeepCopy(), trimVolume(onceVolume)); diff != "" {
		t.Errorf("volume (-once +twice):\n%s", diff)
	}
}
