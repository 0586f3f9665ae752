//go:build e2e

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Strimzi's own controller keeps the names of Pods. It is not published as jars, so this test acts as it does: with its
// definition of a StrimziPodSet, it creates the Pod in the set, and again when that is deleted. The address stays, as
// the additional volume requests, and is gone with the StrimziPodSet.
func TestOperatorOfStrimziPodSets(t *testing.T) {
	if !*withOperators {
		t.Skip("this scenario needs the flag -operators; make test-operators sets it")
	}
	t.Parallel()
	s := newScenario(t)
	s.must(testbed.RunKubectl(s.ctx, nil, "apply", "--server-side", "--filename", "testdata/strimzipodset.yaml"))
	s.must(testbed.RunKubectl(s.ctx, nil, "wait", "--for=condition=Established", "--timeout=60s", "crd/strimzipodsets.core.strimzi.io"))
	pod := strimziPod()
	set := s.createPodSet(pod)
	run := func() *corev1.Pod {
		p := pod.DeepCopy()
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: set.GetAPIVersion(), Kind: set.GetKind(), Name: set.GetName(), UID: set.GetUID(),
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
		}}
		s.create(p)
		return p
	}
	first := run()
	_, before := s.awaitReachable(pod.Name)

	s.removeAndAwait(first)
	run()
	_, after := s.awaitReachable(pod.Name, first)
	if before.Ports["http"] != after.Ports["http"] {
		t.Errorf("the next Pod of the name has the ports %v, want %v", after.Ports, before.Ports)
	}

	s.remove(set)
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key(pod.Name+"-listener"))
	mustAwaitDeleted(s, &corev1.Service{}, s.key(pod.Name+"-listener"))
}

// strimziPod returns a Pod as Strimzi makes it for a broker with an additional volume, with the test server as its
// program.
func strimziPod() *corev1.Pod {
	const set, name = "shop-broker", "shop-broker-0"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			"strimzi.io/cluster": "shop", "strimzi.io/kind": "Kafka", "strimzi.io/name": "shop-kafka", "strimzi.io/component-type": "kafka",
			"strimzi.io/pool-name": "broker", "strimzi.io/broker-role": "true", "strimzi.io/controller-role": "false",
			"strimzi.io/controller": "strimzipodset", "strimzi.io/controller-name": set, "strimzi.io/pod-name": name,
		},
		Annotations: map[string]string{"strimzi.io/revision": "7f3e2c1a"},
	}, Spec: podSpec()}
	pod.Spec.Hostname, pod.Spec.Subdomain = name, "shop-kafka-brokers"
	pod.Spec.RestartPolicy, pod.Spec.AutomountServiceAccountToken = corev1.RestartPolicyAlways, ptr.To(false)
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "listener", MountPath: "/mnt/listener"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "listener", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: names.Driver, ReadOnly: ptr.To(true),
		VolumeAttributes: map[string]string{names.AnnotationListenerClass: "external-unstable", names.AttributeKeep: "true"},
	}}}}
	return pod
}

// createPodSet creates the StrimziPodSet of a Pod, which the API server has to store as it is.
func (s *scenario) createPodSet(pod *corev1.Pod) *unstructured.Unstructured {
	s.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	s.must(err)
	set := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"strimzi.io/controller-name": "shop-broker"}}, "pods": []any{content},
	}}}
	set.SetGroupVersionKind(schema.GroupVersionKind{Group: "core.strimzi.io", Version: "v1", Kind: "StrimziPodSet"})
	set.SetName("shop-broker")
	want := set.DeepCopy()
	s.create(set)
	if diff := cmp.Diff(want.Object["spec"], set.Object["spec"]); diff != "" {
		s.Errorf("StrimziPodSet (-want +stored):\n%s", diff)
	}
	return set
}
