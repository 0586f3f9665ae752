package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
)

// RequestsListener reports whether a claim is for a listener volume, or was meant to be.
func RequestsListener(pvc *corev1.PersistentVolumeClaim) bool {
	if claim.IsListenerClaim(pvc) || pvc.Spec.StorageClassName != nil && *pvc.Spec.StorageClassName == names.Driver {
		return true
	}
	selector, _ := claim.ParseSelector(pvc.Annotations)
	mistaken, _ := claim.ParseSelector(pvc.Labels)
	return selector != claim.Selector{} || mistaken != claim.Selector{}
}

// Claim returns whether a claim has its volume, or why not.
func (x *Examination) Claim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) Finding {
	f := Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
	switch {
	case pvc.DeletionTimestamp != nil:
		return f.Failed("", "is being deleted", "Wait until the Pods that mount it have ended; Kubernetes then deletes it.")
	case pvc.Status.Phase == corev1.ClaimLost:
		return x.said(ctx, pvc, func(e *corev1.Event) bool { return e.Reason == listenersv1alpha1.ReasonVolumeNotRestored },
			f.FailedBy(reasons.ClaimLost, fmt.Sprintf("PersistentVolume %s was deleted", pvc.Spec.VolumeName)))
	case pvc.Spec.VolumeName != "":
		return f.OK("has PersistentVolume %s", pvc.Spec.VolumeName)
	}
	if problem := x.storageProblem(ctx, f, pvc); problem.State != "" {
		return problem
	}
	selector, err := claim.ParseSelector(pvc.Annotations)
	if err != nil {
		problem := err.Error()
		if errors.Is(err, claim.ErrNoSelector) {
			problem += claim.DidYouMean(pvc)
		}
		return f.FailedBy(listenersv1alpha1.ReasonInvalidClaim, problem)
	}
	if problem := claim.ListenerNameProblem(selector.ListenerName(pvc.Name)); problem != "" {
		return f.FailedBy(listenersv1alpha1.ReasonInvalidName, problem)
	}
	if problem := x.selectorProblem(ctx, f, pvc, selector); problem.State != "" {
		return problem
	}
	return x.Said(ctx, pvc, f.Failed("", "has no volume, and the operator says nothing about it", RemedyOperator))
}

// Said returns what the operator says last about a claim, or otherwise the finding.
func (x *Examination) Said(ctx context.Context, pvc *corev1.PersistentVolumeClaim, otherwise Finding) Finding {
	return x.said(ctx, pvc, func(e *corev1.Event) bool { return e.ReportingController == names.EventReporter }, otherwise)
}

// Refused returns what the operator says about the quota or the policy that refuses an object of a Pod, or otherwise
// the finding.
func (x *Examination) Refused(ctx context.Context, pod *corev1.Pod, otherwise Finding) Finding {
	return x.said(ctx, pod, func(e *corev1.Event) bool {
		return e.Reason == listenersv1alpha1.ReasonQuotaExceeded || e.Reason == listenersv1alpha1.ReasonRequestRejected
	}, otherwise)
}

// said returns what the last event that matches says about an object, or otherwise the finding.
func (x *Examination) said(ctx context.Context, o client.Object, matches func(*corev1.Event) bool, otherwise Finding) Finding {
	if event := x.LastEvent(ctx, o, matches); event != nil {
		return otherwise.FailedBy(event.Reason, event.Message)
	}
	return otherwise
}

// storageProblem returns what keeps the operator from provisioning a claim at all, or an empty finding.
func (x *Examination) storageProblem(ctx context.Context, f Finding, pvc *corev1.PersistentVolumeClaim) Finding {
	if pvc.Annotations[names.AnnotationProvisioner] == names.Driver {
		return Finding{}
	}
	remedy := "Create the claim again with storageClassName: " + names.Driver + ". "
	if metav1.GetControllerOf(pvc) != nil { // of an ephemeral volume, the Pod
		remedy = "Create the Pod again with storageClassName: " + names.Driver + " in volumeClaimTemplate of the volume."
	} else {
		remedy += RemedyTemplate
	}
	name := ptr.Deref(pvc.Spec.StorageClassName, "")
	if name == "" {
		return f.Failed("", "names no StorageClass", remedy)
	}
	var class storagev1.StorageClass
	switch found := x.Get(ctx, types.NamespacedName{Name: name}, &class); {
	case found == Forbidden || class.Provisioner == names.Driver:
		return Finding{}
	case found == Present:
		return f.Failed("", fmt.Sprintf("its StorageClass %s is that of another driver, %s", name, class.Provisioner), remedy)
	case name == names.Driver:
		remedy = "The operator installs the StorageClass. Find out why it has not: kubectl listener doctor"
	}
	return f.Failed("", fmt.Sprintf("its StorageClass %s does not exist", name), remedy)
}

// selectorProblem returns what is wrong with the Listener or the class that a claim names, or an empty finding.
func (x *Examination) selectorProblem(ctx context.Context, f Finding, pvc *corev1.PersistentVolumeClaim, selector claim.Selector) Finding {
	class := selector.Class
	if selector.Listener != "" {
		var listener listenersv1alpha1.Listener
		key := types.NamespacedName{Namespace: pvc.Namespace, Name: selector.Listener}
		switch found := x.Get(ctx, key, &listener); {
		case found == Forbidden:
			return Finding{}
		case found == Missing:
			return f.FailedBy(listenersv1alpha1.ReasonListenerNotFound, fmt.Sprintf("Listener %s does not exist", key))
		case listener.Class() == "":
			return f.FailedBy(listenersv1alpha1.ReasonClassNotSet, fmt.Sprintf("Listener %s has no spec.className", key))
		case listener.Status != nil && len(listener.Status.IngressAddresses) > 0:
			return Finding{} // its addresses work without the class
		}
		class = listener.Class()
	}
	if x.Get(ctx, types.NamespacedName{Name: class}, &listenersv1alpha1.ListenerClass{}) != Missing {
		return Finding{}
	}
	problem := f.FailedBy(listenersv1alpha1.ReasonClassNotFound, fmt.Sprintf("ListenerClass %q does not exist", class))
	if selector.Class != "" {
		problem.Remedy += " " + RemedyTemplate
	}
	return problem
}

// PodsOf returns the Pods that mount a Listener, as far as the user may list them.
func (x *Examination) PodsOf(ctx context.Context, listener *listenersv1alpha1.Listener) []corev1.Pod {
	var pods corev1.PodList
	x.List(ctx, &pods, client.InNamespace(listener.Namespace), client.HasLabels{names.PodMountLabel(listener.UID)})
	return pods.Items
}

// PodsOfWorkload returns the Pods of a workload, and the objects that control them: itself, and of a Deployment its
// ReplicaSets, too.
func (x *Examination) PodsOfWorkload(ctx context.Context, workload client.Object) (pods []corev1.Pod, owners []client.Object) {
	var all corev1.PodList
	var replicaSets appsv1.ReplicaSetList
	x.List(ctx, &all, client.InNamespace(workload.GetNamespace()))
	owners = []client.Object{workload}
	if _, ok := workload.(*appsv1.Deployment); ok {
		x.List(ctx, &replicaSets, client.InNamespace(workload.GetNamespace()))
		for i := range replicaSets.Items {
			if metav1.IsControlledBy(&replicaSets.Items[i], workload) {
				owners = append(owners, &replicaSets.Items[i])
			}
		}
	}
	return slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(owners, func(o client.Object) bool { return metav1.IsControlledBy(&pod, o) })
	}), owners
}

// MountsCertificate reports whether a Pod mounts a certificate for its addresses.
func MountsCertificate(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == names.Signer
		})
	})
}

// Pin returns whether the node that the volume of a claim is pinned to is lost. node is nil if it does not exist.
func Pin(pv *corev1.PersistentVolume, name string, node *corev1.Node) Finding {
	f := Finding{Kind: "PersistentVolume", Name: pv.Name}
	if !claim.NodeLost(node) {
		return f.OK("is pinned to node %s", name)
	}
	what := "does not exist"
	if node != nil {
		what = "is out of service"
	}
	message := fmt.Sprintf("of claim %s/%s is pinned to node %s, which %s", pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name, name, what)
	if since := pv.Annotations[names.AnnotationLostSince]; since != "" {
		message += ", since " + since
	}
	f = f.FailedBy(listenersv1alpha1.ReasonNodeLost, message, OfClaim(pv.Spec.ClaimRef)...)
	if node != nil && claim.NodeReady(node) {
		f.Message += ", although it is ready"
		f.Remedy = fmt.Sprintf("If the machine works again, remove the taint, or no Pod starts there: kubectl taint node %s %s-", name, corev1.TaintNodeOutOfService)
	}
	return f
}

// OfClaim returns the placeholders of remedies that name a claim.
func OfClaim(claim *corev1.ObjectReference) []string {
	return []string{"{claim}", claim.Name, "{namespace}", claim.Namespace}
}

// Describe returns the command that shows an object of a namespace, and its events.
func Describe(kind string, o client.Object) string {
	return fmt.Sprintf("kubectl describe %s %s --namespace %s", kind, o.GetName(), o.GetNamespace())
}

// Described returns what a class does, or which of its settings have no effect.
func (f Finding) Described(class *listenersv1alpha1.ListenerClass) Finding {
	if ignored := slices.Concat(exposure.IgnoredSettings(class), exposure.UnknownOverrides(class)); len(ignored) > 0 {
		return f.Warning(listenersv1alpha1.ReasonSettingsIgnored, strings.Join(ignored, "; "))
	}
	text := "serviceType " + string(class.Spec.ServiceType)
	if backend := backends.All().Of(class); !backend.PlainService {
		text += ", exposed by " + backend.Name
	}
	if pinning := class.Pinning(); pinning != nil {
		text += ", pinning " + string(pinning.Policy)
	}
	return f.OK("%s", text)
}

// CountEndpoints returns the number of Pods in endpoint slices, how many of them are ready, and whether pod is one of
// them. A Pod of two IP families is in two slices.
func CountEndpoints(endpointSlices []discoveryv1.EndpointSlice, pod *corev1.Pod) (all, ready int, included bool) {
	known := sets.New[string]()
	for i := range endpointSlices {
		for _, e := range endpointSlices[i].Endpoints {
			id := e.Addresses[0]
			if e.TargetRef != nil {
				id = string(e.TargetRef.UID)
				included = included || pod != nil && e.TargetRef.UID == pod.UID
			}
			if known.Has(id) {
				continue
			}
			known.Insert(id)
			all++
			if ptr.Deref(e.Conditions.Ready, true) {
				ready++
			}
		}
	}
	return all, ready, included
}
