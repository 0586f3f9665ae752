package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
)

func TestATrimmedPodIsWhatTheControllersRead(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "shop", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"large": "text"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1",
			Containers: []corev1.Container{{
				Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
				{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{},
				}}},
				{Name: "named", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "named"},
				}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
	kept := trimPod(pod)
	if diff := cmp.Diff(index.PodClaims(pod), index.PodClaims(kept)); diff != "" {
		t.Errorf("claims (-whole +trimmed):\n%s", diff)
	}
	if diff := cmp.Diff(claim.PodPorts(pod), claim.PodPorts(kept)); diff != "" {
		t.Errorf("ports (-whole +trimmed):\n%s", diff)
	}
	if kept.UID != pod.UID || kept.ResourceVersion != "7" || kept.Spec.NodeName != "node-1" || kept.Status.Phase != corev1.PodRunning ||
		!reflect.DeepEqual(kept.Labels, pod.Labels) {
		t.Errorf("too much was trimmed: %+v", kept)
	}
	if kept.Annotations != nil || kept.ManagedFields != nil || len(kept.Spec.Volumes) != 2 || kept.Spec.Containers[0].Image != "" ||
		kept.Status.PodIP != "" {
		t.Errorf("too much was kept: %+v", kept)
	}
}

func TestAPodWithoutClaimsTakesNextToNoMemory(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}}
	if kept := trimPod(pod); len(kept.Spec.Containers) != 0 {
		t.Errorf("containers of a Pod that is none of ours are kept: %+v", kept)
	}
}

func TestMissingOptionsAreAllNamedAtOnce(t *testing.T) {
	err := Options{LogLevel: "loud"}.validate()
	if err == nil {
		t.Fatal("options without namespace, image and valid log level are accepted")
	}
	for _, words := range []string{"OPERATOR_NAMESPACE", "RELATED_IMAGE_NODE_AGENT", "--log-level"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the error does not name %s: %v", words, err)
		}
	}
}

func TestANodeKeepsWhatPlacesPods(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"large": "text"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "infra", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
			Images:    []corev1.ContainerImage{{Names: []string{"image"}}},
		},
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: node.Labels},
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
	if diff := cmp.Diff(want, trimNode(node)); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}
