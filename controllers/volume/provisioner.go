// Package volume provisions the PersistentVolumes of listener volumes. It checks that the Listener of a class-based
// claim can be created, but leaves that, and pinning the volume to a node, to package podlisteners: the Pod cannot be
// bound to a node before the claim has its volume.
//
// If a claim cannot be provisioned yet, the package emits an event on the claim, and handles it again when the object
// that it waits for changes; nothing polls. It must never write to a claim.
package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/conflict"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Provisioner implements controller.Provisioner and controller.Qualifier of the provisioner library. Its volumes have
// no storage.
type Provisioner struct {
	// Client reads from the cache, with the indexes of package index.
	Client client.Client
	// Events emits the events of claims.
	Events events.EventRecorder
	// Applier writes Listeners of earlier claims.
	Applier *apply.Applier
}

// actionProvision is the action of the events of claims.
const actionProvision = "Provision"

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
	var listener types.NamespacedName
	// The library would log a conflict as an error.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		listener, err = p.resolve(ctx, options.PVC)
		return err
	})
	if pending, ok := errors.AsType[*pendingError](err); ok {
		p.Events.Eventf(options.PVC, nil, corev1.EventTypeWarning, pending.reason, actionProvision, "%s",
			message.Truncate(pending.message, message.MaxEvent))
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: pending.message}
	}
	if conflict.IsTerminating(err) {
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: err.Error()}
	}
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return volume(options, listener), controller.ProvisioningFinished, nil
}

// Delete implements controller.Provisioner. A volume has no storage, and its Listener is garbage-collected.
func (p *Provisioner) Delete(context.Context, *corev1.PersistentVolume) error { return nil }

// ShouldProvision implements controller.Qualifier. A class-based claim waits for a Pod that mounts it, whose ports
// become those of the Listener. The claims of a StatefulSet are created before its Pods, so that is no reason for a
// warning.
//
// The library would retry a claim for ever whose StorageClass does not exist. Kubernetes annotates no such claim for
// this driver, but users can.
func (p *Provisioner) ShouldProvision(ctx context.Context, pvc *corev1.PersistentVolumeClaim) bool {
	storageClass := types.NamespacedName{Name: volumehelpers.GetPersistentVolumeClaimClass(pvc)}
	if err := p.Client.Get(ctx, storageClass, &storagev1.StorageClass{}); apierrors.IsNotFound(err) {
		return false // until it is created
	}
	selector, err := claim.ParseSelector(pvc.Annotations)
	if pvc.Annotations[names.AnnotationProvisioner] != names.Driver || err != nil || selector.Class == "" {
		return true
	}
	if pod, err := p.consumer(ctx, pvc); err != nil || pod != nil {
		return true
	}
	if _, err := p.class(ctx, selector.Class); err != nil {
		return true // which is reported
	}
	p.Events.Eventf(pvc, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonWaitForFirstConsumer, actionProvision,
		"waiting for the first Pod that mounts the claim to be created")
	return false
}

// resolve returns the key of the Listener of a claim, and checks that it exists, or can be created, and that its class
// exists.
func (p *Provisioner) resolve(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (types.NamespacedName, error) {
	selector, err := claim.ParseSelector(pvc.Annotations)
	if err != nil {
		return types.NamespacedName{}, pendingf(listenersv1alpha1.ReasonInvalidClaim, "%s", err)
	}
	key := types.NamespacedName{Namespace: pvc.Namespace, Name: selector.ListenerName(pvc.Name)}
	if problem := claim.ListenerNameProblem(key.Name); problem != "" {
		return key, pendingf(listenersv1alpha1.ReasonInvalidName, "%s", problem)
	}
	if selector.Listener != "" {
		return key, p.checkListener(ctx, key)
	}
	class, err := p.class(ctx, selector.Class)
	if err != nil {
		return key, err
	}
	return key, p.adoptListener(ctx, pvc, class)
}

// checkListener returns an error unless a Listener exists, and has addresses or a class that exists.
func (p *Provisioner) checkListener(ctx context.Context, key types.NamespacedName) error {
	var listener listenersv1alpha1.Listener
	switch err := p.Client.Get(ctx, key, &listener); {
	case apierrors.IsNotFound(err):
		return pendingf(listenersv1alpha1.ReasonListenerNotFound,
			"Listener %s does not exist; the volume is provisioned as soon as it does", key)
	case err != nil:
		return fmt.Errorf("reading Listener %s: %w", key, err)
	case listener.Class() == "":
		return pendingf(listenersv1alpha1.ReasonClassNotSet,
			"Listener %s has no spec.className; the volume is provisioned as soon as it has one", key)
	}
	if s := listener.Status; s != nil && (len(s.IngressAddresses) > 0 || len(s.NodePorts) > 0) {
		return nil // these still work if the class does not exist any more
	}
	_, err := p.class(ctx, listener.Class())
	return err
}

// class returns the class with the name. The error is a pendingError if it does not exist.
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

// adoptListener checks that the Listener of a class-based claim can be created, with the ports of the Pod that mounts
// the claim. One of an earlier claim becomes that of this claim at once, before it is garbage-collected.
func (p *Provisioner) adoptListener(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *listenersv1alpha1.ListenerClass) error {
	pod, err := p.consumer(ctx, pvc)
	if err != nil {
		return err
	}
	if pod == nil {
		return pendingf(listenersv1alpha1.ReasonWaitForFirstConsumer, "the Pod that mounted the claim was deleted")
	}
	ports := claim.PodPorts(pod)
	if len(ports) == 0 && !exposure.AddsPorts(class) {
		return pendingf(listenersv1alpha1.ReasonNoPorts,
			"no container of Pod %s has a port that could be exposed; add ports to its containers", pod.Name)
	}
	var existing listenersv1alpha1.Listener
	switch err := p.Client.Get(ctx, client.ObjectKeyFromObject(pvc), &existing); {
	case apierrors.IsNotFound(err):
		switch problem, err := tenancy.Check(ctx, p.Client, class, pvc.Namespace); {
		case err != nil:
			return err
		case problem != "":
			return pendingf(listenersv1alpha1.ReasonNamespaceNotAllowed,
				"%s; name another class, or ask an administrator to add the namespace to spec.allowedNamespaces of the class", problem)
		}
		return nil
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
	_, err = p.Applier.Apply(ctx, claim.Listener(pvc, nil, class.Name, ports), &existing)
	return err
}

// consumer returns a Pod that mounts the claim and is not being deleted, or nil.
func (p *Provisioner) consumer(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := p.Client.List(ctx, &pods, client.InNamespace(pvc.Namespace), client.MatchingFields{index.PodsByClaim: pvc.Name}); err != nil {
		return nil, fmt.Errorf("listing the Pods of claim %s: %w", client.ObjectKeyFromObject(pvc), err)
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // a claim that no Pod mounts is no error
}

// volume returns the PersistentVolume of a claim, to which the library adds what it sets for all provisioners.
func volume(options controller.ProvisionOptions, listener types.NamespacedName) *corev1.PersistentVolume {
	pv := claim.Volume(options.PVC, listener.Name)
	pv.Name, pv.Spec.CSI.VolumeHandle = options.PVName, options.PVName
	if options.StorageClass.ReclaimPolicy != nil {
		pv.Spec.PersistentVolumeReclaimPolicy = *options.StorageClass.ReclaimPolicy
	}
	return pv
}
