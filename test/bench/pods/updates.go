package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/bench/result"
)

// Updates measures the time from a change of the class until the file in the Pod has it.
func (b *Bench) Updates(ctx context.Context, rounds int) (*result.Updates, error) {
	const balanced = "bench-balanced"
	v := variant{name: "updates", objects: func(name string, _ int) []client.Object {
		claim := ephemeral()
		claim.Ephemeral.VolumeClaimTemplate.Annotations = map[string]string{names.AnnotationListenerClass: balanced}
		return []client.Object{newPod(name, claim)}
	}}
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: balanced}, Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("bench.example/none"),
		PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
	}}
	if err := b.create(ctx, class); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx, v, 0); err != nil {
		return nil, err
	}
	service := &corev1.Service{}
	service.Namespace, service.Name = v.namespace(), "web-0-"+volumeName
	assigned := make(chan error, 1)
	go func() { assigned <- b.assignFirst(ctx, service) }()
	updates := &result.Updates{}
	_, _, err := b.start(ctx, v, "web", 1, "", func(s []started) error {
		if err := <-assigned; err != nil {
			return err
		}
		var err error
		updates.Milliseconds, err = b.update(ctx, s[0].pod, service, class, rounds)
		return err
	})
	return updates, errors.Join(err, b.clean(ctx, v))
}

// assignFirst waits for a Service, and assigns its first address.
func (b *Bench) assignFirst(ctx context.Context, service *corev1.Service) error {
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, stepTimeout, true, func(ctx context.Context) (bool, error) {
		err := b.api.Get(ctx, client.ObjectKeyFromObject(service), service)
		return err == nil, client.IgnoreNotFound(err)
	}); err != nil {
		return fmt.Errorf("waiting for a Service: %w", err)
	}
	before := service.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if err := b.api.Status().Patch(ctx, service, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("assigning an address: %w", err)
	}
	return nil
}

// advertise changes the address that a class advertises. One that a load balancer changes would have to settle first.
func (b *Bench) advertise(ctx context.Context, class *listenersv1alpha1.ListenerClass, address string) error {
	before := class.DeepCopy()
	class.Spec.Advertise = &listenersv1alpha1.Advertise{AddressTemplate: listenersv1alpha1.AdvertisedAddress(address)}
	if err := b.api.Patch(ctx, class, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing the class: %w", err)
	}
	return nil
}

// update changes the address again and again, and returns the times until the file of the Pod has it.
func (b *Bench) update(ctx context.Context, pod *corev1.Pod, service *corev1.Service, class *listenersv1alpha1.ListenerClass, rounds int) ([]float64, error) {
	var claim corev1.PersistentVolumeClaim
	if err := b.api.Get(ctx, client.ObjectKeyFromObject(service), &claim); err != nil {
		return nil, fmt.Errorf("reading a claim: %w", err)
	}
	file := filepath.Join(b.cluster.KubeletDir(nodeNumber(pod.Spec.NodeName)), "pods", string(pod.UID),
		"volumes", "kubernetes.io~csi", claim.Spec.VolumeName, "mount", "default-address", "address")
	var took []float64
	for i := range rounds {
		address := fmt.Sprintf("192.0.2.%d", 2+i%100)
		began := time.Now()
		if err := b.advertise(ctx, class, address); err != nil {
			return nil, err
		}
		if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, stepTimeout, true, func(context.Context) (bool, error) {
			content, err := os.ReadFile(file)
			return string(bytes.TrimSpace(content)) == address, err
		}); err != nil {
			return nil, fmt.Errorf("waiting for %s to have %s: %w", file, address, err)
		}
		took = append(took, milliseconds(time.Since(began)))
	}
	return took, nil
}
