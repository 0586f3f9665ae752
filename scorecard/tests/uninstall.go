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

// kinds are the kinds of the objects that the operator installs, and of the DaemonSet's Pods. Kinds that the cluster
// does not serve are skipped.
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

// podKind is the kind of the DaemonSet's Pods.
var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// dependent is an object that the configuration owns, directly or indirectly.
type dependent struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
	// unmanaged objects are the admission policy that confines the operator itself, and its binding. The operator does
	// not delete them; the garbage collector does, with the configuration.
	unmanaged bool
}

func (f dependent) String() string { return f.kind.Kind + " " + f.key.Name }

// uninstallLeavesNothing fails unless managementState Removed deletes all objects that ListenerOperator/cluster owns.
// The unmanaged ones may stay, because they are deleted with it. Afterwards the previous state is restored. It changes
// nothing if a volume is in use.
func uninstallLeavesNothing(ctx context.Context, e *environment) (err error) {
	config, err := installed(ctx, e)
	if err != nil {
		return err
	}
	if err := checkUnused(ctx, e); err != nil {
		return err
	}
	before, err := dependents(ctx, e, config)
	if err != nil {
		return err
	}
	if err := checkListed(e, before); err != nil {
		return err
	}
	state := config.Spec.ManagementState
	defer func() {
		// Also after the scorecard's timeout.
		err = errors.Join(err, setManagementState(context.WithoutCancel(ctx), e, config, state))
		if err == nil {
			_, err = installed(ctx, e)
		}
	}()
	if err := setManagementState(ctx, e, config, operatorv1alpha1.Removed); err != nil {
		return err
	}
	return awaitDeletion(ctx, e, config, before)
}

// checkUnused returns an error if a listener volume exists, because the removal would wait for its deletion.
func checkUnused(ctx context.Context, e *environment) error {
	volumes := &corev1.PersistentVolumeList{}
	if err := e.client.List(ctx, volumes); err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	for i := range volumes.Items {
		if v := &volumes.Items[i]; claim.IsListenerVolume(v) && v.Spec.ClaimRef != nil {
			return fmt.Errorf("claim %s/%s has a listener volume; the removal, which would wait for its deletion, was not tested",
				v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
		}
	}
	return nil
}

// setManagementState sets the managementState of the configuration.
func setManagementState(ctx context.Context, e *environment, config *operatorv1alpha1.ListenerOperator, state operatorv1alpha1.ManagementState) error {
	patch := fmt.Sprintf(`{"spec":{"managementState":%q}}`, state)
	if err := e.client.Patch(ctx, config, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("setting managementState of ListenerOperator %s to %s: %w", config.Name, state, err)
	}
	e.logf("managementState is %s", state)
	return nil
}

// dependents returns the objects that the configuration owns, directly or indirectly. It fails if the configuration
// does not own an object that the bundle lists, because it would not be deleted.
func dependents(ctx context.Context, e *environment, config *operatorv1alpha1.ListenerOperator) ([]dependent, error) {
	var all []dependent
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
			f := dependent{kind: kind, key: client.ObjectKeyFromObject(o), unmanaged: unmanaged(o)}
			switch {
			case ownedByAny(o, owners):
				owners[o.UID] = true
				all = append(all, f)
			case slices.Contains(resources(e), f.String()):
				errs = append(errs, failf("%s is not owned by ListenerOperator %s, so it would not be deleted", f, config.Name))
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

// ownedByAny reports whether one of the owners owns the object.
func ownedByAny(o *metav1.PartialObjectMetadata, owners map[types.UID]bool) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return owners[r.UID] })
}

// unmanaged reports whether the operator does not manage the object.
func unmanaged(o *metav1.PartialObjectMetadata) bool {
	return o.Labels["app.kubernetes.io/component"] == "operator" && o.Labels["app.kubernetes.io/managed-by"] == ""
}

// checkListed fails if an object is not among the resources of ListenerOperator in the bundle.
func checkListed(e *environment, all []dependent) error {
	var errs []error
	for _, f := range all {
		if f.kind != podKind && !slices.Contains(resources(e), f.String()) {
			errs = append(errs, failf("the bundle does not list %s among the resources of ListenerOperator", f))
		}
	}
	return errors.Join(errs...)
}

// resources returns kind and name of the resources of ListenerOperator in the bundle.
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

// awaitDeletion fails unless all managed objects are deleted, and no other is created.
func awaitDeletion(ctx context.Context, e *environment, config *operatorv1alpha1.ListenerOperator, before []dependent) error {
	for _, f := range before {
		if f.unmanaged {
			continue
		}
		if _, err := await(ctx, e, "deletion of "+f.String(), metadata(f.kind), none, named(f.key.Name), client.InNamespace(f.key.Namespace)); err != nil {
			return err
		}
	}
	after, err := dependents(ctx, e, config)
	if err != nil {
		return err
	}
	if after = slices.DeleteFunc(after, func(f dependent) bool { return f.unmanaged }); len(after) > 0 {
		return failf("%v exist, although the managementState of ListenerOperator %s is Removed", after, config.Name)
	}
	return nil
}

// none returns that an object exists, or "".
func none(l *metav1.PartialObjectMetadataList) string {
	if len(l.Items) > 0 {
		return "exists"
	}
	return ""
}
