package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

// FirstStart is the controller that creates ListenerOperator/cluster at the first start of the operator.
type FirstStart struct {
	Client    client.Client
	APIReader client.Reader
	Namespace string
	// ClusterDomain and Spec are those of the Reconciler.
	ClusterDomain, Spec string
}

// Reconcile creates ListenerOperator/cluster, with the fields that the administrator has set, what an earlier
// installation left of its settings, and defaults. Then it creates a ConfigMap that records that it did, in case an
// administrator deletes the configuration. Its owner is the Deployment: a reinstallation creates the configuration
// again. An operator that stops in between repeats both steps.
func (f *FirstStart) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, f.createConfiguration(ctx)
}

func (f *FirstStart) createConfiguration(ctx context.Context) error {
	key := types.NamespacedName{Namespace: f.Namespace, Name: names.Operator}
	if marker, err := lookup.Get(ctx, f.APIReader, key, &corev1.ConfigMap{}); err != nil || marker != nil {
		return err
	}
	spec, err := f.carriedOver(ctx)
	if err != nil {
		return err
	}
	if err := MergeSpec(&spec, f.Spec); err != nil {
		return err
	}
	config := &operatorv1alpha1.ListenerOperator{Spec: spec}
	config.Name = operatorv1alpha1.ListenerOperatorName
	if err := create(ctx, f.Client, config); err != nil {
		return err
	}
	marker := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
			Labels: map[string]string{names.LabelManagedBy: names.Operator}},
		Data: map[string]string{"README": "ListenerOperator/" + operatorv1alpha1.ListenerOperatorName +
			" was created. As long as this ConfigMap exists, the operator does not create it again.\n"},
	}
	deployment, err := lookup.Get(ctx, f.APIReader, key, &appsv1.Deployment{})
	if err != nil {
		return err
	}
	if deployment != nil {
		marker.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(),
			Kind: "Deployment", Name: deployment.Name, UID: deployment.UID}}
	}
	return create(ctx, f.Client, marker)
}

// create creates an object. One that exists is no error, and not modified.
func create(ctx context.Context, writer client.Writer, object client.Object) error {
	if err := client.IgnoreAlreadyExists(writer.Create(ctx, object,
		client.FieldOwner(names.FieldManagerOperator))); err != nil {
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// carriedOver returns the settings of an earlier installation, as far as they are known.
func (f *FirstStart) carriedOver(ctx context.Context) (operatorv1alpha1.ListenerOperatorSpec, error) {
	var classes listenersv1alpha1.ListenerClassList
	var listeners listenersv1alpha1.ListenerList
	if err := errors.Join(f.APIReader.List(ctx, &classes), f.APIReader.List(ctx, &listeners)); err != nil {
		return operatorv1alpha1.ListenerOperatorSpec{},
			fmt.Errorf("listing classes and listeners of an earlier installation: %w", err)
	}
	spec := stackable.Settings(classes.Items, listeners.Items, f.ClusterDomain)
	if spec.Preset != "" || spec.ClusterDomain != "" {
		log.FromContext(ctx).Info("Carrying over settings of an earlier installation", "preset", spec.Preset,
			"clusterDomain", spec.ClusterDomain)
	}
	return spec, nil
}

// MergeSpec sets the fields in raw, which is JSON or empty, and keeps the others. An unknown field is an error.
func MergeSpec(spec *operatorv1alpha1.ListenerOperatorSpec, raw string) error {
	if raw == "" {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(spec); err != nil {
		return fmt.Errorf("parsing the given spec of ListenerOperator %s: %w", operatorv1alpha1.ListenerOperatorName,
			err)
	}
	return nil
}
