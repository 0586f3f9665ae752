package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

const (
	// className is the class of the volume, a preset class of the default configuration.
	className = "external-unstable"
	// volumeName is the name of the volume in the Pod.
	volumeName = "listener"
)

// volumeMounts fails unless a Pod with a listener volume starts, responds at the address in its PodListeners, and finds
// that address in its volume. It deletes what it created.
func volumeMounts(ctx context.Context, e *environment) (err error) {
	own := &corev1.Pod{}
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: e.pod}, own); err != nil {
		return fmt.Errorf("reading the test's own Pod for its image: %w", err)
	}
	pod := serverPod(own)
	if err := e.client.Create(ctx, pod, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("creating the Pod: %w", err)
	}
	defer func() {
		if err != nil {
			e.logEvents(ctx, pod.Name)
		}
		err = errors.Join(err, discard(context.WithoutCancel(ctx), e, pod))
	}()
	if _, err := await(ctx, e, "Pod "+pod.Name, &corev1.PodList{}, notReady, named(pod.Name), client.InNamespace(e.namespace)); err != nil {
		return err
	}
	want, err := expected(ctx, e, pod)
	if err != nil {
		return err
	}
	return reach(ctx, e, want)
}

// serverPod returns a Pod that runs this program as a server, with an ephemeral listener volume, under the restricted
// Pod Security Standard. It has the image of the test's own Pod.
func serverPod(own *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "scorecard-server-", Namespace: own.Namespace},
		Spec: corev1.PodSpec{
			ImagePullSecrets:              own.Spec.ImagePullSecrets,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:            "server",
				Image:           own.Spec.Containers[0].Image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            []string{serveCommand},
				Ports:           []corev1.ContainerPort{{Name: portName, ContainerPort: serverPort, Protocol: corev1.ProtocolTCP}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString(portName)}},
					PeriodSeconds: 1,
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: volumeName, MountPath: mountPath, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: volumeName, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
					ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationListenerClass: className}},
					Spec: corev1.PersistentVolumeClaimSpec{
						StorageClassName: ptr.To(names.Driver),
						AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
						Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}},
					},
				},
			}}}},
		},
	}
}

// notReady returns why the Pod is not ready, or "".
func notReady(l *corev1.PodList) string {
	if len(l.Items) == 0 {
		return "not found"
	}
	p := &l.Items[0]
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return fmt.Sprintf("%s and not ready", p.Status.Phase)
}

// expected returns the expected content of the Pod's volume: the first address in its PodListeners.
func expected(ctx context.Context, e *environment, pod *corev1.Pod) (self, error) {
	list := &listenersv1alpha1.PodListeners{}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}
	if err := e.client.Get(ctx, key, list); err != nil {
		return self{}, fmt.Errorf("reading the PodListeners of Pod %s: %w", pod.Name, err)
	}
	addresses := list.Spec.Listeners[volumeName].IngressAddresses
	if len(addresses) == 0 {
		return self{}, failf("PodListeners %s has no address for the volume %s, although the Pod runs", list.Name, volumeName)
	}
	port, ok := addresses[0].Ports[portName]
	if !ok {
		return self{}, failf("PodListeners %s: the address %s has no port %s", list.Name, addresses[0].Address, portName)
	}
	return self{Pod: pod.Name, Address: addresses[0].Address, Port: strconv.Itoa(int(port))}, nil
}

// reach fails unless the server responds at its address, and its response is as expected. It retries, because the
// network follows a new Service with a delay.
func reach(ctx context.Context, e *environment, want self) error {
	var got self
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		got, last = request(ctx, want.Address, want.Port)
		return last == nil, nil
	})
	if err != nil {
		return failf("no response from address %s, port %s: %v", want.Address, want.Port, last)
	}
	e.logf("%s responds at %s, port %s", got.Pod, want.Address, want.Port)
	if got != want {
		return failf("the response from %s, port %s, is %q, want %q", want.Address, want.Port, got, want)
	}
	return nil
}

// discard deletes the Pod, and waits for the deletion of its volume.
func discard(ctx context.Context, e *environment, pod *corev1.Pod) error {
	if err := client.IgnoreNotFound(e.client.Delete(ctx, pod)); err != nil {
		return fmt.Errorf("deleting the Pod: %w", err)
	}
	claim := pod.Name + "-" + volumeName
	_, err := await(ctx, e, "deletion of the volume", &corev1.PersistentVolumeList{}, func(l *corev1.PersistentVolumeList) string {
		for i := range l.Items {
			if ref := l.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == pod.Namespace && ref.Name == claim {
				return fmt.Sprintf("PersistentVolume %s is %s", l.Items[i].Name, l.Items[i].Status.Phase)
			}
		}
		return ""
	})
	if err != nil {
		return err
	}
	_, err = await(ctx, e, "deletion of the Listener", metadata(listenersv1alpha1.GroupVersion.WithKind("Listener")), none,
		named(claim), client.InNamespace(pod.Namespace))
	return err
}

// logEvents logs the events of a Pod, and of its claim and Listener, whose names have the name of the Pod as prefix.
func (e *environment) logEvents(ctx context.Context, pod string) {
	events := &corev1.EventList{}
	if err := e.client.List(context.WithoutCancel(ctx), events, client.InNamespace(e.namespace)); err != nil {
		e.logf("listing events: %v", err)
		return
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := range events.Items {
		if event := &events.Items[i]; strings.HasPrefix(event.InvolvedObject.Name, pod) {
			e.logf("event on %s %s: %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
		}
	}
}
