// Package volume provisions the PersistentVolumes of listener volumes. It checks that the Listener of a class-based
// claim can be created, but leaves that, and pinning the volume to a node, to package podlisteners: nothing else may
// delay the volume, without which the Pod is not bound to a node.
//
// If a claim cannot be provisioned yet, the package emits an event on the claim and its Pods, and handles it again when
// the object that it waits for changes. It also does so every half hour, but only to repeat the event, which Kubernetes
// deletes after an hour. It must never write to a claim.
package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clientretry "k8s.io/client-go/util/retry"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/conflict"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/retry"
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

	// pending are the claims that cannot be provisioned.
	pending pendingClaims
	// recent has the uids of the claims that are requeued when they are not new any more.
	recent sync.Map
	// requeue handles a claim again. It is set before claims are handled.
	requeue func(types.NamespacedName)
}

// shortWait is how long a class-based claim may wait for its first Pod before that is reported: a StatefulSet creates
// its claims a moment before its Pods.
const shortWait = 5 * time.Second

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
	err := clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() (err error) {
		listener, err = p.resolve(ctx, options.PVC)
		return err
	})
	if pending, ok := errors.AsType[*pendingError](err); ok {
		p.report(ctx, options.PVC, pending)
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: pending.message}
	}
	p.pending.remove(options.PVC.UID)
	if conflict.IsTerminating(err) {
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: err.Error()}
	}
	if err != nil {
		provisioningErrors.Inc()
		return nil, controller.ProvisioningFinished, err
	}
	return volume(options, listener), controller.ProvisioningFinished, nil
}

// maxPods is the number of Pods of a claim that have an event each.
const maxPods = 10

// report emits the reason why a claim is pending on the claim and on the Pods that mount it. Users look at the Pod
// first, about which the scheduler only says that a claim is not bound.
func (p *Provisioner) report(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pending *pendingError) {
	p.pending.add(pvc, pending.reason)
	p.Events.Eventf(pvc, nil, corev1.EventTypeWarning, pending.reason, actionProvision, "%s", message.Printable(pending.message, message.MaxEvent))
	pods, err := p.consumers(ctx, pvc)
	if err != nil {
		log.FromContext(ctx).Error(err, "Reporting why a claim is pending on its Pods")
		return
	}
	for i := range pods[:min(len(pods), maxPods)] {
		p.Events.Eventf(&pods[i], pvc, corev1.EventTypeWarning, pending.reason, actionProvision, "%s",
			message.Printable(fmt.Sprintf("PersistentVolumeClaim %s has no volume: %s", pvc.Name, pending.message), message.MaxEvent))
	}
}

// Delete implements controller.Provisioner. A volume has no storage, and its Listener is garbage-collected.
func (p *Provisioner) Delete(context.Context, *corev1.PersistentVolume) error { return nil }

// ShouldProvision implements controller.Qualifier. A class-based claim waits for a Pod that mounts it, whose ports
// become those of the Listener. The claims of a StatefulSet are created before its Pods, so that is no reason for a
// warning, and for none at all if it lasts only a moment.
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
	if !p.isNew(pvc) {
		p.Events.Eventf(pvc, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonWaitForFirstConsumer, actionProvision,
			"waiting for the first Pod that mounts the claim to be created")
	}
	return false
}

// isNew reports whether a claim was just created. It is requeued when that is over.
func (p *Provisioner) isNew(pvc *corev1.PersistentVolumeClaim) bool {
	left := retry.Left(pvc.CreationTimestamp, shortWait, time.Now())
	if left == 0 {
		return false
	}
	if _, waits := p.recent.LoadOrStore(pvc.UID, true); !waits {
		uid, key := pvc.UID, client.ObjectKeyFromObject(pvc)
		time.AfterFunc(left, func() {
			p.recent.Delete(uid)
			p.requeue(key)
		})
	}
	return true
}

// resolve returns the key of the Listener of a claim, and checks that it exists, or can be created, and that its class
// exists.
func (p *Provisioner) resolve(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (types.NamespacedName, error) {
	selector, err := claim.ParseSelector(pvc.Annotations)
	if err != nil {
		problem := err.Error()
		if errors.Is(err, claim.ErrNoSelector) {
			problem += claim.DidYouMean(pvc.Annotations)
		}
		return types.NamespacedName{}, pendingf(listenersv1alpha1.ReasonInvalidClaim, "%s", problem)
	}
	key := types.NamespacedName{Namespace: pvc.Namespace, Name: selector.ListenerName(pvc.Name)}
	if problem := claim.ListenerNameProblem(key.Name); problem != "" {
		return key, pendingf(listenersv1alpha1.ReasonInvalidName, "%s", problem)
	}
	if _, ok := pvc.Annotations[names.AnnotationPorts]; ok && selector.Listener != "" {
		return key, pendingf(listenersv1alpha1.ReasonInvalidClaim, "the annotation %s is for claims with a Listener of their own, and this one uses Listener %s; "+
			"remove the annotation, and list the ports in spec.ports of the Listener", names.AnnotationPorts, key)
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
	ports, problem := claim.Ports(pvc, pod)
	if problem != "" {
		return pendingf(listenersv1alpha1.ReasonInvalidClaim, "%s", problem)
	}
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
	_, err = p.Applier.Apply(ctx, claim.Listener(pvc, nil, class.Name, ports, pod.Labels), &existing)
	return err
}

// consumer returns a Pod that mounts the claim and is not being deleted, or nil.
func (p *Provisioner) consumer(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	pods, err := p.consumers(ctx, pvc)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return &pods[0], nil
}

// consumers returns the Pods that mount the claim and are not being deleted.
func (p *Provisioner) consumers(ctx context.Context, pvc *corev1.PersistentVolumeClaim) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := p.Client.List(ctx, &pods, client.InNamespace(pvc.Namespace), client.MatchingFields{index.PodsByClaim: pvc.Name}); err != nil {
		return nil, fmt.Errorf("listing the Pods of claim %s: %w", client.ObjectKeyFromObject(pvc), err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }), nil
}

// unbound returns a function that reports whether the cache has a claim of this name and uid without a volume.
func (p *Provisioner) unbound(ctx context.Context) func(types.NamespacedName, types.UID) bool {
	return func(key types.NamespacedName, uid types.UID) bool {
		var pvc corev1.PersistentVolumeClaim
		return p.Client.Get(ctx, key, &pvc) == nil && pvc.UID == uid && pvc.Spec.VolumeName == ""
	}
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
