package certificates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Trust publishes the certificates that clients have to trust: for Pods as a ClusterTrustBundle, for everybody else as
// a ConfigMap in the namespace. A namespace gets both before its first certificate is issued.
type Trust struct {
	*Authorities

	bundles *platform.View
}

func (t *Trust) SetupWithManager(mgr manager.Manager) (err error) {
	namespaces := handler.EnqueueRequestsFromMapFunc(toNamespace)
	t.bundles, err = t.Platform.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: &certificatesv1.ClusterTrustBundle{},
		Cache:   cache.ByObject{Field: fields.OneTermEqualSelector("spec.signerName", names.Signer)},
		Handler: namespaces,
		Changed: t.all,
	})
	if err != nil {
		return err
	}
	return requests.Controller(mgr, "certificate-trust", workers).
		WatchesRawSource(t.bundles).
		WatchesRawSource(t.source(t.all)).
		Watches(&corev1.ConfigMap{}, namespaces). // of this name only, see package cache
		Watches(tenancy.Namespace(), namespaces, builder.WithPredicates(predicates.ExistenceChanged())).
		Complete(requests.Requeue(mgr, "certificate-trust", t))
}

// toNamespace maps a Namespace, or what is published for one, to the namespace.
func toNamespace(_ context.Context, o client.Object) []reconcile.Request {
	name := cmp.Or(o.GetNamespace(), strings.TrimPrefix(o.GetName(), names.TrustBundlePrefix))
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

func (t *Trust) all(ctx context.Context) []reconcile.Request {
	found := index.Requests[corev1.ConfigMapList](ctx, t.Client, toNamespace)
	if t.bundles.Version() != "" {
		found = append(found, index.Requests[certificatesv1.ClusterTrustBundleList](ctx, t.bundles, toNamespace)...)
	}
	return found
}

// Reconcile implements reconcile.Reconciler. Its requests are namespaces.
func (t *Trust) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	namespace, err := lookup.Get(ctx, t.Client, types.NamespacedName{Name: req.Name}, tenancy.Namespace())
	bundle, configMap, publishedErr := t.published(ctx, req.Name)
	switch err := errors.Join(err, publishedErr); {
	case err != nil || bundle == nil && configMap == nil:
		return reconcile.Result{}, err
	case namespace == nil && bundle != nil:
		return reconcile.Result{}, t.Applier.Delete(ctx, bundle)
	case namespace != nil && namespace.DeletionTimestamp == nil:
		if err := t.publish(ctx, namespace); !errors.Is(err, errNoAuthority) {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// published returns what is published for a namespace, or nil. There are no ClusterTrustBundles if they are not served.
func (t *Trust) published(ctx context.Context,
	namespace string) (*certificatesv1.ClusterTrustBundle, *corev1.ConfigMap, error) {
	configMap, err := lookup.Get(ctx, t.Client,
		types.NamespacedName{Namespace: namespace, Name: names.CertificateAuthorityConfigMap}, &corev1.ConfigMap{})
	if err != nil || t.bundles.Version() == "" {
		return nil, configMap, err
	}
	bundle, err := lookup.Get(ctx, t.bundles, types.NamespacedName{Name: names.TrustBundlePrefix + namespace},
		&certificatesv1.ClusterTrustBundle{})
	return bundle, configMap, err
}

func (t *Trust) publish(ctx context.Context, namespace *metav1.PartialObjectMetadata) error {
	certificates, err := t.trusted(namespace.Name, namespace.UID)
	bundle, configMap, publishedErr := t.published(ctx, namespace.Name)
	if err := errors.Join(err, publishedErr); err != nil {
		return err
	}
	if t.bundles.Version() != "" {
		err = t.applyBundle(ctx, namespace.Name, certificates, bundle)
	}
	return errors.Join(err, t.applyConfigMap(ctx, namespace.Name, certificates, configMap))
}

// apply applies what is published, which ends with the operator's CRDs.
func (t *Trust) apply(ctx context.Context, desired *unstructured.Unstructured, observed client.Object) error {
	owner, err := lookup.ConfigurationCRD(ctx, t.APIReader)
	if err != nil {
		return err
	}
	desired.SetLabels(map[string]string{names.LabelManagedBy: names.Operator})
	desired.SetOwnerReferences([]metav1.OwnerReference{owner})
	_, err = t.Applier.Apply(ctx, desired, observed)
	return err
}

func (t *Trust) applyBundle(ctx context.Context, namespace, certificates string,
	observed *certificatesv1.ClusterTrustBundle) error {
	if observed != nil && observed.Spec.TrustBundle == certificates {
		return nil
	}
	desired := apply.Object(names.KindClusterTrustBundle,
		types.NamespacedName{Name: names.TrustBundlePrefix + namespace})
	desired.Object["spec"] = map[string]any{"signerName": names.Signer, "trustBundle": certificates}
	return t.apply(ctx, desired, observed)
}

// applyConfigMap makes the ConfigMap of a namespace what the operator publishes. The operator owns its name, as
// Kubernetes owns kube-root-ca.crt: whoever may write ConfigMaps may write this one, and its labels, too.
func (t *Trust) applyConfigMap(ctx context.Context, namespace, certificates string, observed *corev1.ConfigMap) error {
	data := map[string]string{names.CertificateAuthorityKey: certificates}
	if observed != nil && maps.Equal(observed.Data, data) && len(observed.BinaryData) == 0 {
		return nil
	}
	if observed == nil {
		key := types.NamespacedName{Namespace: namespace, Name: names.CertificateAuthorityConfigMap}
		created := apply.Object(corev1.SchemeGroupVersion.WithKind("ConfigMap"), key)
		created.Object["data"] = map[string]any{names.CertificateAuthorityKey: certificates}
		return t.apply(ctx, created, nil)
	}
	desired := observed.DeepCopy()
	desired.Data, desired.BinaryData, desired.Immutable = data, nil, nil
	patch := client.MergeFromWithOptions(observed, client.MergeFromWithOptimisticLock{})
	err := t.Client.Patch(ctx, desired, patch, client.FieldOwner(names.FieldManagerOperator))
	switch {
	case apierrors.IsInvalid(err): // it is immutable
		t.Events.Eventf(observed, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignConfigMap, action,
			"%s", message.Printable("Delete this ConfigMap, in which the listener operator cannot publish its "+
				"certificates: "+err.Error(), message.MaxEvent))
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("writing ConfigMap %s/%s: %w", namespace, desired.Name, err)
	}
	return nil
}
