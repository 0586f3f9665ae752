// Package volume provisions the PersistentVolumes of listener volumes. For a class-based claim it creates the Listener
// while the Pod is still being scheduled, so that the Service exists before the kubelet publishes the volume.
//
// If a claim cannot be provisioned yet, the package emits an event on the claim, and handles it again when the object
// that it waits for changes; nothing polls. It must never write to a claim.
package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Provisioner implements controller.Provisioner of the provisioner library. Its volumes have no storage.
type Provisioner struct {
	// Client reads from the cache, with the indexes of package index.
	Client client.Client
	// APIReader reads Pods that are not in the cache yet.
	APIReader client.Reader
	// Events emits the events of claims.
	Events events.EventRecorder
	// Applier writes the Listeners of class-based claims.
	Applier *apply.Applier
}

// pendingError is the reason why a claim stays pending until the claim or a watched object changes. It is reported in
// an event of the claim, and not retried.
type pendingError struct {
	reason  string
	message string
}

func (e *pendingError) Error() string { return e.message }

func pendingf(reason, format string, args ...any) error {
	return &pendingError{reason: reason, message: fmt.Sprintf(format, args...)}
}

// Provision implements controller.Provisioner. For a pendingError it emits an event and returns an IgnoredError, after
// which the library does not retry until the claim is requeued. The library retries after any other error, with
// backoff.
func (p *Provisioner) Provision(
	ctx context.Context, options controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	listener, class, err := p.resolve(ctx, options.PVC)
	if pending, ok := errors.AsType[*pendingError](err); ok {
		p.Events.Eventf(options.PVC, nil, corev1.EventTypeWarning, pending.reason, "Provision", "%s",
			message.Truncate(pending.message, message.MaxEvent))
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: pending.message}
	}
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return volume(options, listener, class.Pinned()), controller.ProvisioningFinished, nil
}

// Delete implements controller.Provisioner. A volume has no storage, and its Listener is garbage-collected.
func (p *Provisioner) Delete(context.Context, *corev1.PersistentVolume) error { return nil }

// resolve returns the key of the Listener and the class of a claim, and creates the Listener of a class-based claim.
func (p *Provisioner) resolve(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim,
) (types.NamespacedName, *listenersv1alpha1.ListenerClass, error) {
	selector, err := claim.ParseSelector(pvc.Annotations)
	if err != nil {
		return types.NamespacedName{}, nil, pendingf(listenersv1alpha1.ReasonInvalidClaim, "%s", err)
	}
	key := types.NamespacedName{Namespace: pvc.Namespace, Name: selector.ListenerName(pvc.Name)}
	if problems := validation.IsDNS1035Label(key.Name); len(problems) > 0 {
		return key, nil, pendingf(listenersv1alpha1.ReasonInvalidName,
			"the Service of Listener %q would have the same name, which is not valid: %s; rename the Listener, or for a class-based claim "+
				"the Pod, volume or claim template", key.Name, problems[0])
	}
	if selector.Listener != "" {
		class, err := p.classOfListener(ctx, key)
		return key, class, err
	}
	class, err := p.class(ctx, selector.Class)
	if err != nil {
		return key, nil, err
	}
	return key, class, p.ensureListener(ctx, pvc, selector.Class)
}

// classOfListener returns the class of an existing Listener.
func (p *Provisioner) classOfListener(ctx context.Context, key types.NamespacedName) (*listenersv1alpha1.ListenerClass, error) {
	var listener listenersv1alpha1.Listener
	switch err := p.Client.Get(ctx, key, &listener); {
	case apierrors.IsNotFound(err):
		return nil, pendingf(listenersv1alpha1.ReasonListenerNotFound,
			"Listener %s does not exist; the volume is provisioned as soon as it does", key)
	case err != nil:
		return nil, fmt.Errorf("reading Listener %s: %w", key, err)
	case listener.Class() == "":
		return nil, pendingf(listenersv1alpha1.ReasonClassNotSet,
			"Listener %s has no spec.className; the volume is provisioned as soon as it has one", key)
	}
	return p.class(ctx, listener.Class())
}

func (p *Provisioner) class(ctx context.Context, name string) (*listenersv1alpha1.ListenerClass, error) {
	var class listenersv1alpha1.ListenerClass
	switch err := p.Client.Get(ctx, types.NamespacedName{Name: name}, &class); {
	case apierrors.IsNotFound(err):
		return nil, pendingf(listenersv1alpha1.ReasonClassNotFound,
			"ListenerClass %q does not exist; the volume is provisioned as soon as it does", name)
	case err != nil:
		return nil, fmt.Errorf("reading ListenerClass %s: %w", name, err)
	}
	return &class, nil
}

// ensureListener applies the Listener of a class-based claim, with the ports of the Pod that mounts the claim.
func (p *Provisioner) ensureListener(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class string) error {
	pod, err := p.consumer(ctx, pvc)
	if err != nil {
		return err
	}
	ports := claim.PodPorts(pod)
	if len(ports) == 0 {
		return pendingf(listenersv1alpha1.ReasonNoPorts,
			"no container of Pod %s has a port that could be exposed; add ports to its containers", pod.Name)
	}
	var existing listenersv1alpha1.Listener
	switch err := p.Client.Get(ctx, client.ObjectKeyFromObject(pvc), &existing); {
	case apierrors.IsNotFound(err):
		_, err := p.Applier.Apply(ctx, claim.Listener(pvc, nil, class, ports), nil)
		return err
	case err != nil:
		return fmt.Errorf("reading Listener %s: %w", client.ObjectKeyFromObject(pvc), err)
	case !claim.OwnedBy(&existing, pvc):
		return pendingf(listenersv1alpha1.ReasonForeignListener,
			"Listener %s exists but was not created for this claim, so it is not changed; use the annotation %s, or rename one of the two",
			client.ObjectKeyFromObject(pvc), names.AnnotationListenerName)
	case existing.DeletionTimestamp != nil:
		return pendingf(listenersv1alpha1.ReasonListenerTerminating,
			"Listener %s of an earlier claim is still being deleted", client.ObjectKeyFromObject(pvc))
	}
	_, err = p.Applier.Apply(ctx, claim.Listener(pvc, nil, class, ports), &existing)
	return err
}

// consumer returns a Pod that mounts the claim. The scheduler only requests volumes of Pods that exist, so a Pod that
// is not in the cache is read from the API server.
func (p *Provisioner) consumer(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := p.Client.List(ctx, &pods, client.InNamespace(pvc.Namespace), client.MatchingFields{index.PodsByClaim: pvc.Name}); err != nil {
		return nil, fmt.Errorf("listing the Pods of claim %s: %w", client.ObjectKeyFromObject(pvc), err)
	}
	if pod := activePod(pods.Items, pvc.Name); pod != nil {
		return pod, nil
	}
	if err := p.APIReader.List(ctx, &pods, client.InNamespace(pvc.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the Pods of namespace %s: %w", pvc.Namespace, err)
	}
	if pod := activePod(pods.Items, pvc.Name); pod != nil {
		return pod, nil
	}
	return nil, pendingf(listenersv1alpha1.ReasonNoConsumer, "no Pod mounts the claim; the volume is provisioned as soon as one does")
}

// activePod returns the first Pod that mounts the claim and is not being deleted, or nil.
func activePod(pods []corev1.Pod, claimName string) *corev1.Pod {
	for i := range pods {
		if pods[i].DeletionTimestamp == nil && slices.Contains(index.PodClaims(&pods[i]), claimName) {
			return &pods[i]
		}
	}
	return nil
}

// volume returns the PersistentVolume of a claim. Its attributes are the current annotations of the claim (contract
// 1.3).
func volume(options controller.ProvisionOptions, listener types.NamespacedName, pinned bool) *corev1.PersistentVolume {
	pvc := options.PVC
	mode := corev1.PersistentVolumeFilesystem
	policy := corev1.PersistentVolumeReclaimDelete
	if options.StorageClass.ReclaimPolicy != nil {
		policy = *options.StorageClass.ReclaimPolicy
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: options.PVName,
			Labels: map[string]string{
				names.LabelListenerNamespace: listener.Namespace,
				names.LabelListenerName:      listener.Name,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   pvc.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: pvc.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeReclaimPolicy: policy,
			VolumeMode:                    &mode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:           names.Driver,
				VolumeHandle:     options.PVName,
				VolumeAttributes: maps.Clone(pvc.Annotations),
			}},
		},
	}
	if pinned && options.SelectedNodeName != "" {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: names.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{options.SelectedNodeName},
			}},
		}}}}
	}
	return pv
}
