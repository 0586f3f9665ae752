package cache

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// Kinds that tenants do not write, and why not.
var ofOthers = map[string]string{
	"Node": "kubelets", "PersistentVolume": "administrators and provisioners",
	"PartialObjectMetadata": "administrators, and the operator", "Deployment": "only the operator's own is read",
	"PodListeners": "the operator, as its admission policy says",
}

// written are objects of each kind that tenants write, of which the cache keeps as much as it keeps of any.
func written() map[string][]func() client.Object {
	owned := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "Listener", Name: "web", Controller: ptr.To(true)}}
	inline := objects.InlineVolume("", map[string]string{names.AnnotationListenerClass: "public"})
	pod := func(node string, volume corev1.Volume) func() client.Object {
		return func() client.Object {
			volume := *volume.DeepCopy()
			volume.Name = "listener"
			container := corev1.Container{
				Name: "web", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
				VolumeMounts: []corev1.VolumeMount{{Name: volume.Name, MountPath: "/l"}},
			}
			sidecar := *container.DeepCopy()
			sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			p := &corev1.Pod{ObjectMeta: *owned.DeepCopy()}
			p.Spec.NodeName, p.Spec.Volumes = node, []corev1.Volume{volume}
			p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{container}, []corev1.Container{sidecar}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web"}}
			return p
		}
	}
	return map[string][]func() client.Object{
		"Pod": {
			pod("", inline), pod("node-1", objects.ClaimVolume("", "web")),
			func() client.Object { // of Stackable's
				p := &corev1.Pod{ObjectMeta: *owned.DeepCopy()}
				p.Labels = map[string]string{
					"app.kubernetes.io/name": "listener-operator", "app.kubernetes.io/role": "controller",
				}
				p.Spec.Volumes = make([]corev1.Volume, 1)
				p.Spec.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/plugins/" + names.Driver}
				return p
			},
		},
		"Service": {
			func() client.Object { return &corev1.Service{ObjectMeta: *owned.DeepCopy()} },
			func() client.Object {
				return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{
					"app.kubernetes.io/name": "listener", "app.kubernetes.io/instance": "web",
					"app.kubernetes.io/managed-by": names.Operator,
				}}}
			},
		},
		"PersistentVolumeClaim": {
			func() client.Object { return &corev1.PersistentVolumeClaim{} },
			func() client.Object {
				bound := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-1"}}
				bound.Annotations = map[string]string{names.AnnotationProvisioner: names.Driver}
				return bound
			},
		},
		"Listener": {func() client.Object { return &listenersv1alpha1.Listener{} }},
		"NetworkPolicy": {
			func() client.Object { return &networkingv1.NetworkPolicy{} },
			func() client.Object {
				own := &networkingv1.NetworkPolicy{ObjectMeta: *owned.DeepCopy()}
				own.Name = "web-allowed-clients"
				return own
			},
		},
		"DaemonSet": {func() client.Object { return &appsv1.DaemonSet{} }},
		"ConfigMap": {func() client.Object { return &corev1.ConfigMap{} }},
	}
}

// However large one of its fields is, or a list in it, an object costs a fraction of what the API server accepts. A
// kind or a field that is read in addition fails this test until it has a limit.
func TestNoFieldOfATenantsObjectCostsMuchMemory(t *testing.T) {
	all := written()
	for o := range Options("operators").ByObject {
		kind := reflect.TypeOf(o).Elem().Name()
		if all[kind] == nil && ofOthers[kind] == "" {
			t.Errorf("no test shows what objects of kind %s cost, which tenants may write", kind)
		}
	}
	for kind, bases := range all {
		limit := 8 * maxObject
		if kind == "Pod" || kind == "PersistentVolumeClaim" {
			limit = 2 * maxObject
		}
		t.Run(kind, func(t *testing.T) {
			growth.CheckMemory(t, limit, func(o client.Object) any { return transformed(t, o) }, bases...)
		})
	}
}

// Pods need no node to be in the cache, so nothing but their size limits how many there are.
func TestLargePodsCostLittleMemory(t *testing.T) {
	const pods = 16
	for name, tc := range map[string]struct {
		pod  func(pod *corev1.Pod)
		each int // KiB
	}{
		"11,000 inline volumes": {each: 64, pod: func(pod *corev1.Pod) {
			for i := range 11000 {
				volume := objects.InlineVolume(fmt.Sprint("v", i), map[string]string{"a": "b"})
				pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
			}
		}},
		"11,000 claims": {each: 64, pod: func(pod *corev1.Pod) {
			for i := range 11000 {
				pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume(fmt.Sprint("v", i), fmt.Sprint("c", i)))
			}
		}},
		"6,000 ports, and labels": {each: 256, pod: func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{objects.EphemeralVolume("v", nil)}
			pod.Spec.Containers, pod.Labels = make([]corev1.Container, 1), map[string]string{}
			for i := range 6000 {
				port := corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(i + 1)} //nolint:gosec // few
				pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, port)
				pod.Labels[fmt.Sprint("label-", i)] = "value"
			}
		}},
		"4,000 containers that each mount 8 volumes": {each: 256, pod: func(pod *corev1.Pod) {
			for i := range 8 {
				pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume(fmt.Sprint("v", i), "c"))
			}
			for i := range 4000 {
				container := corev1.Container{Name: fmt.Sprint("c", i)}
				for j := range 8 {
					mount := corev1.VolumeMount{Name: fmt.Sprint("v", j), MountPath: fmt.Sprint("/", j)}
					container.VolumeMounts = append(container.VolumeMounts, mount)
				}
				pod.Spec.Containers = append(pod.Spec.Containers, container)
				status := corev1.ContainerStatus{Name: container.Name}
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
			}
		}},
		"an annotation of 256 KB": {each: 4, pod: func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{objects.EphemeralVolume("v", nil)}
			pod.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 256<<10)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			byClaim := func(o any) (values []string, _ error) {
				for _, name := range claim.NamesOf(o.(*corev1.Pod)) {
					values = append(values, "shop/"+name, "all/"+name) // as controller-runtime does
				}
				return values, nil
			}
			kept := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{"claims": byClaim})
			before := growth.Heap()
			for i := range pods {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("pod-", i)}}
				tc.pod(pod)
				check.Must(t, kept.Add(transformed(t, pod)))
			}
			each := (growth.Heap() - before) / pods >> 10
			if t.Logf("a Pod costs %d KiB", each); each > tc.each {
				t.Errorf("a Pod costs %d KiB, want at most %d", each, tc.each)
			}
			runtime.KeepAlive(kept)
		})
	}
}

// An annotation of others is not kept, or cut if it is one of ours.
func TestALargeAnnotationCostsNoMemory(t *testing.T) {
	for name, o := range map[string]client.Object{
		"Pod": &corev1.Pod{}, "claim": &corev1.PersistentVolumeClaim{}, "Listener": &listenersv1alpha1.Listener{},
		"Service":             &corev1.Service{},
		"claim that is bound": &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-1"}},
	} {
		o.SetAnnotations(map[string]string{"example.com/large": strings.Repeat("x", 256<<10)})
		if size := growth.SizeOf(transformed(t, o)); size > 2<<10 {
			t.Errorf("a %s with a large annotation costs %d bytes", name, size)
		}
		o.SetAnnotations(map[string]string{
			names.AnnotationPorts: strings.Repeat("x", 256<<10), names.AnnotationProvisioner: names.Driver,
		})
		if size := growth.SizeOf(transformed(t, o)); size > 20<<10 {
			t.Errorf("a %s with a large annotation of ours costs %d bytes", name, size)
		}
	}
}

// A node has 110 Pods by default, and each may have as many volumes as count, of Listeners with as many ports as a
// class exposes by default, at several addresses.
func TestAddressesOfManyPodsCostLittleMemory(t *testing.T) {
	const pods, volumes, addresses, ports = 50, 16, 3, 64
	written := &listenersv1alpha1.PodListeners{Spec: listenersv1alpha1.PodListenersSpec{
		Listeners: map[string]listenersv1alpha1.PodListener{}, StartAddresses: map[string][]listenersv1alpha1.IngressAddress{},
	}}
	for v := range volumes {
		var entry listenersv1alpha1.PodListener
		for a := range addresses {
			address := listenersv1alpha1.IngressAddress{Address: fmt.Sprint("192.0.2.", a), Ports: map[string]int32{}}
			for p := range ports {
				address.Ports[fmt.Sprint("port-", p)] = int32(30000 + v) //nolint:gosec // few
			}
			entry.IngressAddresses = append(entry.IngressAddresses, address)
		}
		written.Spec.Listeners[fmt.Sprint("v", v)] = entry
		written.Spec.StartAddresses[fmt.Sprint("v", v)] = entry.IngressAddresses
	}
	content, err := json.Marshal(written)
	check.Must(t, err)
	before, kept := growth.Heap(), make([]*listenersv1alpha1.PodListeners, pods)
	for i := range kept {
		read := &listenersv1alpha1.PodListeners{}
		check.Must(t, json.Unmarshal(content, read))
		kept[i] = transformed(t, read)
		if diff := cmp.Diff(written.Spec, kept[i].Spec); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	each := (growth.Heap() - before) / pods >> 10
	if t.Logf("the addresses of a Pod cost %d KiB", each); each > 100 {
		t.Errorf("the addresses of a Pod cost %d KiB, want at most 100", each)
	}
	runtime.KeepAlive(kept)
}
