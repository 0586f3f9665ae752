package cache

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// replica returns the trimmed objects of a replica of a StatefulSet with a listener volume.
func replica(i int) []metav1.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: fmt.Sprint("namespace-", i/100), Name: name, UID: types.UID(fmt.Sprintf("0b7b1c1e-5d0f-4c59-9ad2-%012d", i)),
			ResourceVersion: fmt.Sprint(1000000 + i), Generation: 1, CreationTimestamp: metav1.Unix(1700000000, 0),
			Labels:      map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": fmt.Sprint("web-", i/3)},
			Annotations: map[string]string{names.AnnotationListenerClass: "public", names.AnnotationProvisioner: names.Driver},
		}
	}
	owned := func(name, kind, owner string) metav1.ObjectMeta {
		m := meta(name)
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: owner, UID: m.UID, Controller: ptr.To(true)}}
		return m
	}
	pod, claim, node := fmt.Sprint("web-", i), fmt.Sprint("listener-web-", i), fmt.Sprint("node-", i%1000)
	pv := "pvc-" + string(meta("").UID)
	ports := map[string]int32{"http": int32(30000 + i)} //nolint:gosec // small
	addresses := []listenersv1alpha1.IngressAddress{{Address: fmt.Sprintf("172.16.%d.%d", i%250, i%200), AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports}}
	volume := &corev1.PersistentVolume{ObjectMeta: meta(pv), Spec: corev1.PersistentVolumeSpec{
		StorageClassName: names.Driver, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		ClaimRef: &corev1.ObjectReference{Namespace: meta("").Namespace, Name: claim, UID: meta("").UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: names.Driver, VolumeAttributes: map[string]string{names.AnnotationListenerClass: "public"},
		}},
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	volume.Namespace = ""
	volume.Labels = map[string]string{names.LabelListenerNamespace: meta("").Namespace, names.LabelListenerName: claim}
	volume.Annotations[names.AnnotationNode] = node
	mounting := meta(pod)
	mounting.Labels = map[string]string{names.PodMountLabel(mounting.UID): claim}
	conditions := []metav1.Condition{
		{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonAccepted, Message: "ListenerClass public exposes it by node ports"},
		{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonAddressesAssigned, Message: "reachable at " + addresses[0].Address},
	}
	return []metav1.Object{
		trimPod(&corev1.Pod{
			ObjectMeta: mounting,
			Spec: corev1.PodSpec{
				NodeName: node, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}},
				Volumes: []corev1.Volume{objects.ClaimVolume("listener", claim)},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}),
		trimClaim(&corev1.PersistentVolumeClaim{ObjectMeta: meta(claim), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv}}),
		trimVolume(volume),
		trimListener(&listenersv1alpha1.Listener{
			ObjectMeta: owned(claim, "PersistentVolumeClaim", claim),
			Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public"), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}}},
			Status:     &listenersv1alpha1.ListenerStatus{ServiceName: &claim, IngressAddresses: addresses, NodePorts: ports, ObservedGeneration: 1, Conditions: conditions},
		}),
		trimService(&corev1.Service{
			ObjectMeta: owned(claim, "Listener", claim),
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
				Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080, NodePort: ports["http"]}},
			},
		}, "operators"),
		trimPodListeners(&listenersv1alpha1.PodListeners{
			ObjectMeta: owned("pod-"+string(mounting.UID), "Pod", pod),
			Spec: listenersv1alpha1.PodListenersSpec{NodeName: node, Listeners: map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: addresses, PersistentVolumeName: pv, ListenerName: claim},
			}},
		}),
	}
}

// BenchmarkMemoryOfAReplica reports how much memory the objects of a replica need, as Go values and encoded.
func BenchmarkMemoryOfAReplica(b *testing.B) {
	for name, keep := range map[string]func(metav1.Object) any{
		"values": func(o metav1.Object) any { // read one after the other from a watch, they share nothing
			c := codec{reflect.TypeOf(o)}
			e, err := c.encode(o)
			if err != nil {
				b.Fatal(err)
			}
			return c.decode(e)
		},
		"encoded": func(o metav1.Object) any {
			e, err := codec{reflect.TypeOf(o)}.encode(o)
			if err != nil {
				b.Fatal(err)
			}
			return e
		},
	} {
		b.Run(name, func(b *testing.B) {
			const replicas = 2000
			for b.Loop() {
				before := heap()
				kept := make([]any, 0, 6*replicas)
				for i := range replicas {
					for _, o := range replica(i) {
						kept = append(kept, keep(o))
					}
				}
				b.ReportMetric(float64(heap()-before)/replicas, "B/replica")
				runtime.KeepAlive(kept)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below the maximum
}
