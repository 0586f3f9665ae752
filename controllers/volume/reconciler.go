// Package volume provisions the PersistentVolumes of listener volumes, and deletes them when they are released. It
// checks that the Listener of a class-based claim can be created, but leaves that, and pinning the volume to a node, to
// package podlisteners: nothing else may delay the volume, without which the Pod is not bound to a node.
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
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Reconciler provisions claims. SetupWithManager makes it usable.
type Reconciler struct {
	Client  client.Client
	Events  events.EventRecorder
	Applier *apply.Applier
	Clock   clock.PassiveClock

	warnings message.Warnings[types.NamespacedName, string]
	waiting  sync.Map
	// created has the uids of the claims whose volumes the cache may not have yet.
	created *cache.Expiring
}

// cacheLag is for how long a volume that is not in the cache is not created again. It may have been deleted meanwhile.
const cacheLag = time.Second

// shortWait is how long a class-based claim may wait for its first Pod before that is reported: a StatefulSet creates
// its claims a moment before its Pods. It may wait as long for the deletion of an earlier Listener.
const shortWait = 5 * time.Second

const maxPods = 10

// Reconcile creates the volume of a claim, or reports why it cannot. After a refusal, it waits for changes.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var wait time.Duration
	pvc, class, err := r.unprovisioned(ctx, req.NamespacedName)
	if err == nil && class != nil {
		wait, err = r.provision(ctx, pvc, class)
	}
	if pending, ok := errors.AsType[*exposure.Refusal](err); ok {
		return r.report(ctx, pvc, pending)
	}
	if err != nil {
		if class != nil && !requests.Expected(err) &&
			r.warnings.Due(req.NamespacedName, "error", err.Error(), r.Clock.Now()) {
			r.Events.Eventf(pvc, nil, corev1.EventTypeWarning, "ProvisioningFailed", "Provision", "%s",
				message.Printable(err.Error(), message.MaxEvent))
		}
		return reconcile.Result{}, err
	}
	r.warnings.Keep(req.NamespacedName, nil)
	r.setWaiting(req.NamespacedName, "")
	return reconcile.Result{RequeueAfter: wait}, nil
}

// unprovisioned returns a claim and its StorageClass if this driver has to provision it, and otherwise nil. It does not
// wait for Kubernetes' PersistentVolume controller, which annotates one claim after the other.
func (r *Reconciler) unprovisioned(ctx context.Context,
	key types.NamespacedName) (*corev1.PersistentVolumeClaim, *storagev1.StorageClass, error) {
	pvc, err := lookup.Get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{})
	if err != nil || pvc == nil || pvc.Spec.VolumeName != "" || pvc.DeletionTimestamp != nil {
		return nil, nil, err
	}
	class,
		err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: volumehelpers.GetPersistentVolumeClaimClass(pvc)},
		&storagev1.StorageClass{})
	if err != nil || class == nil || class.Provisioner != names.Driver {
		return nil, nil, err
	}
	if ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingImmediate &&
		pvc.Annotations[volumehelpers.AnnSelectedNode] == "" {
		return nil, nil, nil
	}
	return pvc, class, nil
}

// provision creates the volume of a claim, unless its namespace is being deleted. wait is when to look again, or 0.
func (r *Reconciler) provision(ctx context.Context, pvc *corev1.PersistentVolumeClaim,
	class *storagev1.StorageClass) (wait time.Duration, _ error) {
	existing, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: claim.VolumeName(pvc)},
		&corev1.PersistentVolume{})
	if err != nil || existing != nil {
		return 0, err
	}
	if ending, err := tenancy.Terminating(ctx, r.Client, pvc.Namespace); err != nil || ending {
		return 0, err
	}
	listener, err := r.resolve(ctx, pvc)
	if err != nil {
		return 0, err
	}
	if _, created := r.created.Get(pvc.UID); created {
		return cacheLag, nil
	}
	pv := claim.Volume(pvc, listener.Name)
	pv.Spec.PersistentVolumeReclaimPolicy = ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	switch err := r.Client.Create(ctx, pv, client.FieldOwner(names.FieldManagerVolume)); {
	case apierrors.IsAlreadyExists(err):
		return 0, nil // the cache follows
	case err != nil:
		return 0, fmt.Errorf("creating PersistentVolume %s: %w", pv.Name, err)
	}
	log.FromContext(ctx).Info("Provisioned", "PersistentVolume", pv.Name)
	r.created.Set(pvc.UID, true, cacheLag)
	return 0, nil
}

// report emits why a claim is pending on the claim and on its Pods, which users look at first. Waiting for the first
// Pod is no reason for a warning, and, like the deletion of an earlier Listener, for no event while it is short.
func (r *Reconciler) report(ctx context.Context, pvc *corev1.PersistentVolumeClaim,
	pending *exposure.Refusal) (reconcile.Result, error) {
	key, kind := client.ObjectKeyFromObject(pvc), reasons.EventType(pending.Reason)
	left, waiting := requests.Left(pvc.CreationTimestamp, shortWait, r.Clock.Now()), pending.Reason
	first := pending.Reason == listenersv1alpha1.ReasonWaitForFirstConsumer
	brief := left > 0 && (first || pending.Reason == listenersv1alpha1.ReasonListenerTerminating)
	if first || brief {
		waiting = ""
	}
	if r.setWaiting(key, waiting); brief {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	pods, err := r.consumers(ctx, pvc)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods = pods[:min(len(pods), maxPods)]
	text := []string{pending.Reason, pending.Message}
	for i := range pods {
		text = append(text, string(pods[i].UID)) // a new Pod has the event, too
	}
	if r.warnings.Due(key, "", strings.Join(text, " "), r.Clock.Now()) {
		r.Events.Eventf(pvc, nil, kind, pending.Reason, "Provision", "%s",
			message.Printable(pending.Message, message.MaxEvent))
		for i := range pods {
			r.Events.Eventf(&pods[i], pvc, kind, pending.Reason, "Provision", "%s",
				message.Printable(fmt.Sprintf("PersistentVolumeClaim %s has no volume: %s", pvc.Name, pending.Message),
					message.MaxEvent))
		}
	}
	if pending.Reason == listenersv1alpha1.ReasonWaitingForRestore {
		return reconcile.Result{RequeueAfter: max(requests.Restoring(pvc, r.Clock.Now()), time.Second)}, nil
	}
	return reconcile.Result{RequeueAfter: r.warnings.RepeatAfter(key)}, nil
}

// resolve returns the key of the Listener of a claim, which exists or can be created, and whose class exists.
func (r *Reconciler) resolve(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (types.NamespacedName, error) {
	selector, err := claim.OfClaim(pvc, nil).Selector()
	if err != nil {
		return types.NamespacedName{}, exposure.Refuse(listenersv1alpha1.ReasonInvalidClaim, "%s", err)
	}
	key := types.NamespacedName{Namespace: pvc.Namespace, Name: selector.ListenerName(pvc.Name)}
	if mode := ptr.Deref(pvc.Spec.VolumeMode,
		corev1.PersistentVolumeFilesystem); mode != corev1.PersistentVolumeFilesystem {
		return key, exposure.Refuse(listenersv1alpha1.ReasonInvalidClaim,
			"spec.volumeMode is %s, and a listener volume has files; create the claim again without volumeMode", mode)
	}
	if problem := claim.ListenerNameProblem(key.Name); problem != "" {
		return key, exposure.Refuse(listenersv1alpha1.ReasonInvalidName, "%s", problem)
	}
	if _, ok := pvc.Annotations[names.AnnotationPorts]; ok && selector.Listener != "" {
		return key, exposure.Refuse(listenersv1alpha1.ReasonInvalidClaim,
			"the annotation %s is for claims with a Listener of their own, and this one uses Listener %s; "+
				"remove the annotation, and list the ports in spec.ports of the Listener", names.AnnotationPorts, key)
	}
	if selector.Listener != "" {
		return key, r.checkListener(ctx, key)
	}
	class, err := r.class(ctx, selector.Class)
	if err != nil {
		return key, err
	}
	return key, r.adoptListener(ctx, pvc, class)
}

// checkListener returns an error unless a Listener exists, and has addresses or a class that exists.
func (r *Reconciler) checkListener(ctx context.Context, key types.NamespacedName) error {
	listener, err := lookup.Get(ctx, r.Client, key, &listenersv1alpha1.Listener{})
	switch {
	case err != nil:
		return err
	case listener == nil:
		return r.notFound(ctx, listenersv1alpha1.ReasonListenerNotFound, fmt.Sprintf("Listener %s", key), key,
			&listenersv1alpha1.ListenerList{})
	case listener.Class() == "":
		return exposure.Refuse(listenersv1alpha1.ReasonClassNotSet,
			"Listener %s has no spec.className; the volume is provisioned as soon as it has one", key)
	}
	if s := listener.Status; s != nil && (len(s.IngressAddresses) > 0 || len(s.NodePorts) > 0) {
		return nil // these still work if the class does not exist any more
	}
	_, err = r.class(ctx, listener.Class())
	return err
}

// class returns the class with the name. The error is a Refusal if it does not exist.
func (r *Reconciler) class(ctx context.Context, name string) (*listenersv1alpha1.ListenerClass, error) {
	class, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: name}, &listenersv1alpha1.ListenerClass{})
	if err != nil || class != nil {
		return class, err
	}
	return nil, r.notFound(ctx, listenersv1alpha1.ReasonClassNotFound, fmt.Sprintf("ListenerClass %q", name),
		types.NamespacedName{Name: name}, &listenersv1alpha1.ListenerClassList{})
}

// notFound returns that what a claim names does not exist, and which of the others may be meant.
func (r *Reconciler) notFound(ctx context.Context, reason, what string, key types.NamespacedName,
	others client.ObjectList) error {
	if err := r.Client.List(ctx, others, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing %T: %w", others, err)
	}
	return exposure.Refuse(reason, "%s does not exist; the volume is provisioned as soon as it does%s", what,
		lookup.DidYouMean(key.Name, others))
}

// adoptListener checks that the Listener of a class-based claim can be created. One that is kept for it, or comes from
// a backup, then belongs to this claim, and gets its class. So does one of an earlier claim before it is
// garbage-collected, unless that named another class: a Pod must not start with its addresses.
func (r *Reconciler) adoptListener(ctx context.Context, pvc *corev1.PersistentVolumeClaim,
	class *listenersv1alpha1.ListenerClass) error {
	pod, ports, err := r.firstPod(ctx, pvc, class)
	if err != nil {
		return err
	}
	key, request := client.ObjectKeyFromObject(pvc), claim.OfClaim(pvc, nil)
	existing, err := lookup.Get(ctx, r.Client, key, &listenersv1alpha1.Listener{})
	switch {
	case err != nil:
		return err
	case existing == nil && requests.Restoring(pvc, r.Clock.Now()) > 0:
		return exposure.Refuse(listenersv1alpha1.ReasonWaitingForRestore, "the claim comes from a backup, and waits "+
			"up to a minute for its Listener, which may have the previous ports")
	case existing == nil:
		return r.checkAllowed(ctx, pvc, class)
	case request.OtherUser(existing, pod) != "":
		return exposure.Refuse(listenersv1alpha1.ReasonForeignListener,
			"Listener %s exists but %s, so it is not changed; use the annotation %s, or rename one of the two",
			key, request.OtherUser(existing, pod), names.AnnotationListenerName)
	case existing.DeletionTimestamp != nil:
		return exposure.Refuse(listenersv1alpha1.ReasonListenerTerminating,
			"Listener %s of an earlier claim is still being deleted", key)
	case existing.Class() != class.Name && claim.WillBeDeleted(existing, pvc):
		return exposure.Refuse(listenersv1alpha1.ReasonListenerTerminating,
			"Listener %s belongs to an earlier claim, which named ListenerClass %s; Kubernetes deletes it "+
				"after that claim and its PersistentVolume; if one of them is retained, delete the Listener", key,
			existing.Class())
	case existing.Class() != class.Name:
		if err := r.checkAllowed(ctx, pvc, class); err != nil {
			return err
		}
	}
	desired := claim.KeepFor(pod, pvc.Name, existing).Apply(request.Listener(class.Name, ports, pod.Labels))
	_, err = r.Applier.Apply(ctx, desired, existing)
	return err
}

func (r *Reconciler) checkAllowed(ctx context.Context, pvc *corev1.PersistentVolumeClaim,
	class *listenersv1alpha1.ListenerClass) error {
	problem, err := tenancy.Check(ctx, r.Client, class, pvc.Namespace)
	if err != nil || problem == "" {
		return err
	}
	return exposure.Refuse(listenersv1alpha1.ReasonNamespaceNotAllowed,
		"%s; name another class, or ask an administrator to add the namespace to spec.allowedNamespaces of the class",
		problem)
}

// firstPod returns a Pod that mounts a class-based claim, and the ports of it that the Listener exposes.
func (r *Reconciler) firstPod(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *listenersv1alpha1.ListenerClass,
) (*corev1.Pod, []listenersv1alpha1.ListenerPort, error) {
	pods, err := r.consumers(ctx, pvc)
	if err != nil {
		return nil, nil, err
	}
	if len(pods) == 0 {
		return nil, nil, exposure.Refuse(listenersv1alpha1.ReasonWaitForFirstConsumer,
			"waiting for the first Pod that mounts the claim to be created")
	}
	pod := &pods[0]
	ports, problem := claim.OfClaim(pvc, nil).Ports(pod)
	if problem != "" {
		return nil, nil, exposure.Refuse(listenersv1alpha1.ReasonInvalidClaim, "%s", problem)
	}
	if len(ports) == 0 && !exposure.AddsPorts(class) {
		return nil, nil, exposure.Refuse(listenersv1alpha1.ReasonNoPorts,
			"no container of Pod %s has a port that could be exposed; add ports to its containers", pod.Name)
	}
	if refusal := exposure.CheckPorts(class, ports); refusal != nil {
		return nil, nil, refusal
	}
	return pod, ports, nil
}

// consumers returns the Pods that mount the claim, have not finished and are not being deleted.
func (r *Reconciler) consumers(ctx context.Context, pvc *corev1.PersistentVolumeClaim) ([]corev1.Pod, error) {
	pods, err := index.PodsOfClaim(ctx, r.Client, pvc.Namespace, pvc.Name)
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || claim.PodFinished(&pod)
	}), err
}
