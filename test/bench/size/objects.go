package size

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const (
	className  = "bench"
	volumeName = "listener"
)

func namespaceOf(i int) string { return fmt.Sprintf("bench-%03d", i/perNamespace) }

func podName(i int) string { return fmt.Sprintf("web-%05d", i) }

// claimName is also the name of the Listener and of its Service.
func claimName(i int) string { return volumeName + "-" + podName(i) }

// addListener creates the objects of one replica of a StatefulSet with a listener volume.
func (s *server) addListener(ctx context.Context, i int, node string) error {
	namespace, name := namespaceOf(i), podName(i)
	labels := map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": name}
	pvc := newClaim(namespace, claimName(i), labels)
	if err := s.ensure(ctx, pvc); err != nil {
		return err
	}
	pv := newVolume(pvc, node)
	if err := s.ensure(ctx, pv); err != nil {
		return err
	}
	pod := newPod(namespace, name, pvc.Name, node, labels)
	if err := s.ensure(ctx, pod); err != nil {
		return err
	}
	listener := claim.OfClaim(pvc, pv).Listener(className, claim.PodPorts(pod), pod.Labels)
	if err := s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(listener), client.FieldOwner(names.FieldManagerVolume)); err != nil {
		return fmt.Errorf("creating the Listener: %w", err)
	}
	return nil
}

func newClaim(namespace, name string, labels map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{names.AnnotationListenerClass: className},
		},
		Spec: objects.ClaimSpec("pvc-" + namespace + "-" + name),
	}
}

// newVolume returns a volume as the operator provisions it, with the annotation of its last mount.
func newVolume(pvc *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        pvc.Spec.VolumeName,
			Labels:      map[string]string{names.LabelListenerNamespace: pvc.Namespace, names.LabelListenerName: pvc.Name},
			Annotations: map[string]string{names.AnnotationNode: node, "pv.kubernetes.io/provisioned-by": names.Driver},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              names.Driver,
			AccessModes:                   pvc.Spec.AccessModes,
			Capacity:                      pvc.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: pvc.Spec.VolumeName, VolumeAttributes: pvc.Annotations,
			}},
		},
	}
}

func newPod(namespace, name, claimName, node string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{{
				Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				VolumeMounts: []corev1.VolumeMount{{Name: volumeName, MountPath: "/listener", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{objects.ClaimVolume(volumeName, claimName)},
		},
	}
}
