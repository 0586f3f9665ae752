// Package objects has parts of nodes, Pods and claims that tests need again and again. Only tests may import it.
package objects

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// ListenerOperator returns ListenerOperator/cluster with the API server's defaults.
func ListenerOperator() *operatorv1alpha1.ListenerOperator {
	return &operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName,
			UID: "c0f1c0f1-0000-4000-8000-000000000001", Generation: 1},
		Spec: operatorv1alpha1.ListenerOperatorSpec{
			ManagementState: operatorv1alpha1.Managed, Preset: operatorv1alpha1.PresetEphemeralNodes,
			ClusterDomain: "cluster.local", Injection: operatorv1alpha1.InjectionDisabled,
			NodeAgent: operatorv1alpha1.NodeAgentSpec{
				Placement: operatorv1alpha1.PlacementEverywhere, PriorityClassName: "system-node-critical",
				KubeletDir: "/var/lib/kubelet", LogLevel: "info", PreventPodSchedulingIfMissing: ptr.To(true),
			},
		},
	}
}

func Node(name string, addresses ...corev1.NodeAddress) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: addresses}}
}

func InternalIP(ip string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip}
}

func ClaimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

// EphemeralVolume returns the volume of a Pod whose claim Kubernetes creates with these annotations.
func EphemeralVolume(name string, claim map[string]string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: claim},
			Spec: ClaimSpec("")},
	}}}
}

func InlineVolume(name string, attributes map[string]string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: names.Driver, ReadOnly: ptr.To(true), VolumeAttributes: attributes,
	}}}
}

// ClaimSpec returns the spec of the claims that product operators create. The volume is "" before the claim is bound.
func ClaimSpec(volume string) corev1.PersistentVolumeClaimSpec {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(names.Driver),
		VolumeName:       volume,
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources:        corev1.VolumeResourceRequirements{Requests: size},
	}
}

// World has the objects that belong to the Pod shop/web-0 on node-1, whose claim names the class public. Each test
// changes what it is about. An object that is nil does not exist.
type World struct {
	Node     *corev1.Node
	Class    *listenersv1alpha1.ListenerClass
	Claim    *corev1.PersistentVolumeClaim
	Volume   *corev1.PersistentVolume
	Listener *listenersv1alpha1.Listener
	Pod      *corev1.Pod
}

// NewWorld returns a World with node ports, in which no address is published yet.
func NewWorld() *World {
	shop := func(name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}
	}
	w := &World{
		Node: Node("node-1", InternalIP("192.0.2.1")),
		Class: &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "public"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
		},
		Claim: &corev1.PersistentVolumeClaim{ObjectMeta: shop("listener-web-0", "claim-uid"),
			Spec: ClaimSpec("pvc-claim-uid")},
		Listener: &listenersv1alpha1.Listener{
			ObjectMeta: shop("listener-web-0", "listener-uid"),
			Spec: listenersv1alpha1.ListenerSpec{
				ClassName: ptr.To("public"), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}},
			},
			Status: &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}},
		},
		Pod: &corev1.Pod{
			ObjectMeta: shop("web-0", "pod-uid"),
			Spec: corev1.PodSpec{
				NodeName: "node-1",
				Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080,
					Protocol: corev1.ProtocolTCP}}}},
				Volumes: []corev1.Volume{ClaimVolume("listener", "listener-web-0")},
			},
			Status: corev1.PodStatus{StartTime: ptr.To(metav1.Unix(1, 0))},
		},
	}
	w.Claim.Labels, w.Claim.Annotations = map[string]string{"app": "web"},
		map[string]string{names.AnnotationListenerClass: "public"}
	w.Volume = claim.Volume(w.Claim, w.Listener.Name)
	w.Volume.UID = "pv-uid"
	return w
}

func (w *World) Objects(others ...client.Object) []client.Object {
	return slices.DeleteFunc(append([]client.Object{w.Node, w.Class, w.Claim, w.Volume, w.Listener, w.Pod}, others...),
		func(o client.Object) bool {
			return reflect.ValueOf(o).IsNil()
		})
}
