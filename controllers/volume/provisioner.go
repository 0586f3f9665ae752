// Package volume provisions the PersistentVolumes of claims that ask for a Listener, and makes the Listener of a
// class-based claim while the Pod is still being scheduled, so that its Service exists before the kubelet asks for
// addresses.
//
// A claim that cannot be served yet is told so by an event and is tried again when what it waits for appears; nothing
// polls. The package must never write to a claim.
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

// Provisioner turns claims into PersistentVolumes for the provisioner library. Its volumes have no storage behind them.
type Provisioner struct {
	// Client reads from the cache, with the indexes of package index.
	Client client.Client
	// APIReader reads what the cache may not have seen yet.
	APIReader client.Reader
	// Events reports on claims.
	Events events.EventRecorder
	// Applier writes the Listeners of class-based claims.
	Applier *apply.Applier
}

// unmet is why a claim cannot be served until an object that is watched changes. It is an event on the claim, not an
// error.
type unmet struct {
	reason  string
	message string
}

func (u *unmet) Error() string { return u.message }

func unmetf(reason, format string, args ...any) error {
	return &unmet{reason: reason, message: fmt.Sprintf(format, args...)}
}

// Provision implements the library's Provisioner. What the user has to mend ends in an event and an IgnoredError, after
// which the library leaves the claim alone until it is nudged; any other error is tried again with a backoff.
func (p *Provisioner) Provision(
	ctx context.Context, options controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	listener, class, err := p.resolve(ctx, options.PVC)
	if u := (*unmet)(nil); errors.As(err, &u) {
		p.Events.Eventf(options.PVC, nil, corev1.EventTypeWarning, u.reason, "Provision", "%s", message.Truncate(u.message, message.MaxEvent))
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: u.message}
	}
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return volume(options, listener, class.Pinned()), controller.ProvisioningFinished, nil
}

// Delete implements the library's Provisioner: there is nothing behind a volume, and its Listener goes with its owners.
func (p *Provisioner) Delete(context.Context, *corev1.PersistentVolume) error { return nil }

// resolve finds the Listener and the class that the claim asks for, and makes the Listener of a class-based claim.
func (p *Provisioner) resolve(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim,
) (types.NamespacedName, *listenersv1alpha1.ListenerClass, error) {
	selector, err := claim.ParseSelector(pvc.Annotations)
	if err != nil {
		return types.NamespacedName{}, nil, unmetf(listenersv1alpha1.ReasonInvalidClaim, "%s", err)
	}
	key := types.NamespacedName{Namespace: pvc.Namespace, Name: selector.ListenerName(pvc.Name)}
	if problems := validation.IsDNS1035Label(key.Name); len(problems) > 0 {
		return key, nil, unmetf(listenersv1alpha1.ReasonInvalidName,
			"Listener %q would have a Service of the same name, which is not valid: %s; rename the Listener, or for a class the Pod, "+
				"volume or claim template", key.Name, problems[0])
	}
	if selector.Listener != "" {
		class, err := p.existing(ctx, key)
		return key, class, err
	}
	class, err := p.class(ctx, selector.Class)
	if err != nil {
		return key, nil, err
	}
	return key, class, p.ensureListener(ctx, pvc, selector.Class)
}

// existing returns the class of the Listener that a claim names.
func (p *Provisioner) existing(ctx context.Context, key types.NamespacedName) (*listenersv1alpha1.ListenerClass, error) {
	var listener listenersv1alpha1.Listener
	switch err := p.Client.Get(ctx, key, &listener); {
	case apierrors.IsNotFound(err):
		return nil, unmetf(listenersv1alpha1.ReasonListenerNotFound,
			"Listener %s does not exist; the volume is provisioned as soon as it does", key)
	case err != nil:
		return nil, fmt.Errorf("reading Listener %s: %w", key, err)
	case listener.Class() == "":
		return nil, unmetf(listenersv1alpha1.ReasonClassNotSet,
			"Listener %s has no spec.className; the volume is provisioned as soon as it has one", key)
	}
	return p.class(ctx, listener.Class())
}

func (p *Provisioner) class(ctx context.Context, name string) (*listenersv1alpha1.ListenerClass, error) {
	var class listenersv1alpha1.ListenerClass
	switch err := p.Client.Get(ctx, types.NamespacedName{Name: name}, &class); {
	case apierrors.IsNotFound(err):
		return nil, unmetf(listenersv1alpha1.ReasonClassNotFound,
			"ListenerClass %q does not exist; the volume is provisioned as soon as it does", name)
	case err != nil:
		return nil, fmt.Errorf("reading ListenerClass %s: %w", name, err)
	}
	return &class, nil
}

// ensureListener makes the Listener of a class-based claim from the ports of the Pod that mounts it.
func (p *Provisioner) ensureListener(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class string) error {
	pod, err := p.consumer(ctx, pvc)
	if err != nil {
		return err
	}
	ports := claim.PodPorts(pod)
	if len(ports) == 0 {
		return unmetf(listenersv1alpha1.ReasonNoPorts,
			"no container of Pod %s has a port, so there is nothing to expose; add ports to its containers", pod.Name)
	}
	var existing listenersv1alpha1.Listener
	switch err := p.Client.Get(ctx, client.ObjectKeyFromObject(pvc), &existing); {
	case apierrors.IsNotFound(err):
		_, err := p.Applier.Apply(ctx, claim.Listener(pvc, nil, class, ports), nil)
		return err
	case err != nil:
		return fmt.Errorf("reading Listener %s: %w", client.ObjectKeyFromObject(pvc), err)
	case !claim.OwnedBy(&existing, pvc):
		return unmetf(listenersv1alpha1.ReasonForeignListener,
			"Listener %s exists but was not made for this claim, and is left alone; use the annotation %s, or rename one of the two",
			client.ObjectKeyFromObject(pvc), names.AnnotationListenerName)
	case existing.DeletionTimestamp != nil:
		return unmetf(listenersv1alpha1.ReasonListenerTerminating,
			"Listener %s of an earlier claim is still being deleted", client.ObjectKeyFromObject(pvc))
	}
	_, err = p.Applier.Apply(ctx, claim.Listener(pvc, nil, class, ports), &existing)
	return err
}

// consumer returns the Pod that the claim is provisioned for. The scheduler only asks for volumes of Pods that exist,
// so one that the cache does not have is looked for in the API.
func (p *Provisioner) consumer(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := p.Client.List(ctx, &pods, client.InNamespace(pvc.Namespace), client.MatchingFields{index.PodsByClaim: pvc.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods of claim %s: %w", client.ObjectKeyFromObject(pvc), err)
	}
	if pod := firstAlive(pods.Items, pvc.Name); pod != nil {
		return pod, nil
	}
	if err := p.APIReader.List(ctx, &pods, client.InNamespace(pvc.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", pvc.Namespace, err)
	}
	if pod := firstAlive(pods.Items, pvc.Name); pod != nil {
		return pod, nil
	}
	return nil, unmetf(listenersv1alpha1.ReasonNoConsumer, "no Pod mounts the claim; the volume is provisioned as soon as one does")
}

// firstAlive returns the first Pod that mounts the claim and is not on its way out, or nil.
func firstAlive(pods []corev1.Pod, claimName string) *corev1.Pod {
	for i := range pods {
		if pods[i].DeletionTimestamp == nil && slices.Contains(index.PodClaims(&pods[i]), claimName) {
			return &pods[i]
		}
	}
	return nil
}

// volume is the PersistentVolume for a claim. The claim's annotations are frozen into its attributes (contract 1.3).
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
