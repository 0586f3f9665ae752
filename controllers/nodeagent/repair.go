package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Server-side apply keeps what others have added: the items of lists, and the fields that it does not send. In the
// objects that the operator installs, these may be harmful, and a policy may even deny the apply because of them. So
// before an object is applied, its content is replaced by the desired one, in a single request.

// apply makes an object the desired one, after deleting one that cannot become it.
func (r *Reconciler) apply(ctx context.Context, o *observation, c *component) error {
	desired, err := c.Desired(o.config, o.settings)
	if err != nil {
		return err
	}
	if err := r.prepare(ctx, o.config, c, desired); err != nil {
		return err
	}
	wanted, last := contentOf(desired.DeepCopy()), r.replacements[c.Kind+"/"+c.Name]
	incomplete := c.object == nil || !metav1.IsControlledBy(c.object, o.config) ||
		!labels.SelectorFromSet(desired.GetLabels()).Matches(labels.Set(c.object.GetLabels()))
	sent, err := r.applier.Apply(ctx, desired, c.object)
	if err != nil || !sent {
		return err
	}
	// An outdated cache may still show what was repaired before, in the version that the API server answers with again.
	repaired := incomplete && reflect.DeepEqual(last.desired, wanted) &&
		last.resourceVersion != desired.GetResourceVersion()
	log.FromContext(ctx).Info("Applied", c.Kind, c.Name, "repaired", repaired)
	if repaired {
		driftRepairs.WithLabelValues(c.Kind, c.Name).Inc()
	}
	return r.remember(c, desired, wanted)
}

// prepare repairs the existing object of a component, if any, or deletes one that cannot become the desired one.
func (r *Reconciler) prepare(ctx context.Context, config *operatorv1alpha1.ListenerOperator, c *component,
	desired *unstructured.Unstructured) error {
	switch {
	case c.object == nil:
		return nil
	case !installation.Immutable(c.object):
		return r.repair(ctx, config, c, desired)
	}
	err := r.delete(ctx, c.Kind, c.object)
	if err == nil {
		c.object = nil
	}
	return err
}

// delete deletes an object. A DaemonSet exists until its Pods are deleted.
func (r *Reconciler) delete(ctx context.Context, kind string, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	var options []client.DeleteOption
	if kind == "DaemonSet" {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if err := r.applier.Delete(ctx, object, options...); err != nil {
		return err
	}
	delete(r.replacements, kind+"/"+object.GetName()) // to create it again is no repair
	log.FromContext(ctx).Info("Deleted", kind, object.GetName())
	return nil
}

// repair makes the content of an existing component the desired one, unless it is as the last replacement left it.
func (r *Reconciler) repair(ctx context.Context, config *operatorv1alpha1.ListenerOperator, c *component,
	desired *unstructured.Unstructured) error {
	wanted := contentOf(desired)
	observed, err := apply.Unstructured(c.object)
	if err != nil {
		return err
	}
	last := r.replacements[c.Kind+"/"+c.Name]
	again := last.uid == c.object.GetUID() && reflect.DeepEqual(last.desired, wanted)
	if again && reflect.DeepEqual(last.result, contentOf(observed)) {
		return nil
	}
	before := apply.Object(desired.GroupVersionKind(), client.ObjectKeyFromObject(desired))
	if err := r.apiReader.Get(ctx, client.ObjectKeyFromObject(desired), before); err != nil {
		return fmt.Errorf("reading %s %s: %w", c.Kind, c.Name, err)
	}
	if before.GetUID() != c.object.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Resource: c.Kind}, c.Name,
			errors.New("another object of this name has replaced it"))
	}
	after, err := r.replace(ctx, c, before, wanted)
	if err != nil {
		return err
	}
	if err := r.remember(c, after, wanted); err != nil {
		return err
	}
	desired.SetResourceVersion(after.GetResourceVersion()) // what others write from now on is another repair
	if fields := changedFields("", contentOf(before), contentOf(after)); len(fields) > 0 {
		r.reportDrift(ctx, config, c, fields, managersOfLostFields(before, after), again)
	}
	return nil
}

// restartedAt is the path of the annotation that `kubectl rollout restart` sets.
var restartedAt = []string{"spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"}

// replace makes wanted the content of this version of an object, except a restart of the agents, and returns it.
func (r *Reconciler) replace(ctx context.Context, c *component, before *unstructured.Unstructured,
	wanted content) (*unstructured.Unstructured, error) {
	after := before.DeepCopy()
	for field := range contentOf(before) {
		delete(after.Object, field)
	}
	maps.Copy(after.Object, runtime.DeepCopyJSON(wanted))
	if restarted, ok, _ := unstructured.NestedFieldNoCopy(before.Object, restartedAt...); ok {
		if err := unstructured.SetNestedField(after.Object, restarted, restartedAt...); err != nil {
			return nil, fmt.Errorf("keeping the restart of %s %s: %w", c.Kind, c.Name, err)
		}
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, after, patch, client.FieldOwner(names.FieldManagerOperator)); err != nil {
		return nil, fmt.Errorf("replacing the content of %s %s: %w", c.Kind, c.Name, err)
	}
	return after, nil
}

// remember makes the object that of the component, and records that it has the desired content.
func (r *Reconciler) remember(c *component, o *unstructured.Unstructured, desired content) error {
	c.object = c.Empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, c.object); err != nil {
		return fmt.Errorf("decoding %s %s: %w", c.Kind, c.Name, err)
	}
	result, err := apply.Unstructured(c.object) // encoded as it is when it is read from the cache
	if err != nil {
		return err
	}
	if r.replacements == nil {
		r.replacements = map[string]replacement{}
	}
	r.replacements[c.Kind+"/"+c.Name] = replacement{uid: o.GetUID(), resourceVersion: o.GetResourceVersion(),
		desired: desired, result: contentOf(result)}
	return nil
}

// reportDrift counts and logs which fields were removed or set back, and emits an event if other clients had written
// them: other managers had one of them, or the same desired content had been established before.
func (r *Reconciler) reportDrift(ctx context.Context, config *operatorv1alpha1.ListenerOperator, c *component, fields,
	managers []string, again bool) {
	changed := message.Printable(strings.Join(fields, ", "), message.MaxEvent)
	log.FromContext(ctx).Info("Replaced the content", c.Kind, c.Name, "fields", changed, "managers", managers)
	if !again && len(managers) == 0 {
		return // it is that of an earlier version
	}
	driftRepairs.WithLabelValues(c.Kind, c.Name).Inc()
	r.events.Eventf(config, nil, corev1.EventTypeWarning, operatorv1alpha1.ReasonRepaired, "Repair", "%s",
		message.Printable(fmt.Sprintf("%s %s was changed by %s; what the operator does not set was removed, and what "+
			"it sets was restored: %s",
			c.Kind, c.Name, cmp.Or(strings.Join(managers, ", "), "another client"), changed), message.MaxEvent))
}

func contentOf(o *unstructured.Unstructured) content {
	fields := maps.Clone(o.Object)
	for _, field := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(fields, field)
	}
	return fields
}

// changedFields returns the paths of the fields that differ, sorted. Items of lists are named or numbered.
func changedFields(path string, before, after any) []string {
	was, now := parts(before), parts(after)
	switch {
	case reflect.DeepEqual(before, after):
		return nil
	case was == nil || now == nil:
		return []string{strings.TrimPrefix(path, ".")}
	}
	var paths []string
	for _, part := range sets.List(sets.KeySet(was).Union(sets.KeySet(now))) {
		paths = append(paths, changedFields(path+part, was[part], now[part])...)
	}
	return paths
}

// parts returns the fields of an object, or the items of a list by their names or else numbers, or nil.
func parts(value any) map[string]any {
	parts := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			parts["."+name] = field
		}
	case []any:
		for i, item := range value {
			fields, _ := item.(map[string]any)
			name, _ := fields["name"].(string)
			parts["["+cmp.Or(name, strconv.Itoa(i))+"]"] = item
		}
	default:
		return nil
	}
	return parts
}

// managersOfLostFields returns the field managers, other than the operator's own, that have fewer fields afterwards.
func managersOfLostFields(before, after *unstructured.Unstructured) []string {
	lost := sets.New[string]()
	for _, e := range before.GetManagedFields() {
		kept := slices.ContainsFunc(after.GetManagedFields(), func(k metav1.ManagedFieldsEntry) bool {
			return k.Manager == e.Manager && k.Operation == e.Operation && k.Subresource == e.Subresource &&
				reflect.DeepEqual(k.FieldsV1, e.FieldsV1)
		})
		if e.Manager != names.FieldManagerOperator && !kept {
			lost.Insert(e.Manager)
		}
	}
	return sets.List(lost)
}
