package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// kinds are those of the objects that the operator installs, and of what these bring along. A kind that the cluster
// does not have is passed over.
var kinds = []schema.GroupVersionKind{
	{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"},
	{Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Version: "v1", Kind: "Service"},
	names.KindSecurityContextConstraints,
	names.KindServiceMonitor,
	names.KindPrometheusRule,
	names.KindConsoleQuickStart,
	names.KindConsoleYAMLSample,
	{Group: "apps", Version: "v1", Kind: "DaemonSet"},
	podKind, // after the DaemonSet that owns them
}

// podKind is the kind of what the DaemonSet makes.
var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// found is an object that came with the operator.
type found struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
	// confines says that the object confines the operator itself, which therefore does not manage it: it is
	// garbage-collected with the configuration.
	confines bool
}

func (f found) String() string { return f.kind.Kind + " " + f.key.Name }

// uninstallLeavesNothing fails unless all that ListenerOperator/cluster installed goes when it is to be removed, or
// belongs to it and so goes with it. Afterwards everything is as before. It changes nothing if a volume is in use.
func uninstallLeavesNothing(ctx context.Context, e *environment) (err error) {
	config, err := installed(ctx, e)
	if err != nil {
		return err
	}
	if err := unused(ctx, e); err != nil {
		return err
	}
	before, err := belongings(ctx, e, config)
	if err != nil {
		return err
	}
	if err := listed(e, before); err != nil {
		return err
	}
	state := config.Spec.ManagementState
	defer func() {
		// Also when the scorecard loses its patience.
		err = errors.Join(err, manage(context.WithoutCancel(ctx), e, config, state))
		if err == nil {
			_, err = installed(ctx, e)
		}
	}()
	if err := manage(ctx, e, config, operatorv1alpha1.Removed); err != nil {
		return err
	}
	return gone(ctx, e, config, before)
}

// unused returns an error if there are volumes of the operator, because removal would wait for their end.
func unused(ctx context.Context, e *environment) error {
	volumes := &corev1.PersistentVolumeList{}
	if err := e.client.List(ctx, volumes); err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	for i := range volumes.Items {
		if v := &volumes.Items[i]; claim.IsListenerVolume(v) && v.Spec.ClaimRef != nil {
			return fmt.Errorf("the claim %s/%s has a listener volume: removal would wait for its end, so it was not tried",
				v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
		}
	}
	return nil
}

// manage changes what the operator is to do with what it installed.
func manage(ctx context.Context, e *environment, config *operatorv1alpha1.ListenerOperator, state operatorv1alpha1.ManagementState) error {
	patch := fmt.Sprintf(`{"spec":{"managementState":%q}}`, state)
	if err := e.client.Patch(ctx, config, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("setting managementState of ListenerOperator %s to %s: %w", config.Name, state, err)
	}
	e.logf("managementState is %s", state)
	return nil
}

// belongings returns what the configuration owns, and what that owns. It fails if it does not own what the bundle says
// that it brings along: nobody would take that away.
func belongings(ctx context.Context, e *environment, config *operatorv1alpha1.ListenerOperator) ([]found, error) {
	var all []found
	var errs []error
	owners := map[types.UID]bool{config.UID: true}
	for _, kind := range kinds {
		list := metadata(kind)
		err := e.client.List(ctx, list)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			f := found{kind: kind, key: client.ObjectKeyFromObject(o), confines: confines(o)}
			switch {
			case belongs(o, owners):
				owners[o.UID] = true
				all = append(all, f)
			case slices.Contains(resources(e), f.String()):
				errs = append(errs, failf("%s does not belong to ListenerOperator %s, so that nobody would take it away", f, config.Name))
			}
		}
	}
	e.logf("ListenerOperator %s owns %v", config.Name, all)
	return all, errors.Join(errs...)
}

// metadata returns an empty list of the kind.
func metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// belongs tells whether one of the owners owns the object.
func belongs(o *metav1.PartialObjectMetadata, owners map[types.UID]bool) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return owners[r.UID] })
}

// confines tells whether an object is the operator's, but not managed by it.
func confines(o *metav1.PartialObjectMetadata) bool {
	return o.Labels["app.kubernetes.io/component"] == "operator" && o.Labels["app.kubernetes.io/managed-by"] == ""
}

// listed fails if the bundle does not say of an object that the configuration brings it along.
func listed(e *environment, all []found) error {
	var errs []error
	for _, f := range all {
		if f.kind != podKind && !slices.Contains(resources(e), f.String()) {
			errs = append(errs, failf("the bundle does not list %s among the resources of ListenerOperator", f))
		}
	}
	return errors.Join(errs...)
}

// resources returns kind and name of what the bundle says that the configuration brings along.
func resources(e *environment) []string {
	var all []string
	for _, owned := range e.bundle.CSV.Spec.CustomResourceDefinitions.Owned {
		if owned.Kind == "ListenerOperator" {
			for _, r := range owned.Resources {
				all = append(all, r.Kind+" "+r.Name)
			}
		}
	}
	return all
}

// gone fails unless everything goes, and nothing comes instead.
func gone(ctx context.Context, e *environment, config *operatorv1alpha1.ListenerOperator, before []found) error {
	for _, f := range before {
		if f.confines {
			continue
		}
		if _, err := await(ctx, e, "the end of "+f.String(), metadata(f.kind), none, named(f.key.Name), client.InNamespace(f.key.Namespace)); err != nil {
			return err
		}
	}
	after, err := belongings(ctx, e, config)
	if err != nil {
		return err
	}
	if after = slices.DeleteFunc(after, func(f found) bool { return f.confines }); len(after) > 0 {
		return failf("%v came anew, although ListenerOperator %s is to be Removed", after, config.Name)
	}
	return nil
}

// none tells that there still is something, or "".
func none(l *metav1.PartialObjectMetadataList) string {
	if len(l.Items) > 0 {
		return "it is still there"
	}
	return ""
}
