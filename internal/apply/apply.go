// Package apply is the one way in which the operator writes objects that it generates: server-side apply, with force,
// in the name of one field owner for each kind. It never reads, compares or merges single fields; that is the API
// server's work.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Applier applies objects as one field owner, and remembers what it applied, so that a pass that changes nothing
// costs no request. It is safe for concurrent use.
type Applier struct {
	writer client.Writer
	owner  client.FieldOwner

	mu      sync.Mutex
	applied map[types.UID]record
}

// record is what the last apply of an object sent, and the version that the API server answered with.
type record struct {
	sent            [sha256.Size]byte
	resourceVersion string
}

// New returns an Applier that writes as owner, one of the names.FieldManager constants.
func New(writer client.Writer, owner string) *Applier {
	return &Applier{writer: writer, owner: client.FieldOwner(owner), applied: map[types.UID]record{}}
}

// Apply makes the object as desired says, whose apiVersion, kind and name must be set. observed is the object as last
// read, or nil if there is none: when it is still the version that an equal desired state resulted in, or
// SummarizeService says that it follows an equal one, nothing is sent and desired stays as it is. Otherwise desired
// holds the object as it is now. A namesake that has taken the place of the observed object since is never written to,
// and if desired has a resource version, no other version either; the error is then a conflict.
func (a *Applier) Apply(ctx context.Context, desired *unstructured.Unstructured, observed client.Object) error {
	version := desired.GetResourceVersion()
	desired.SetResourceVersion("") // no part of what is desired
	sent, err := sum(desired)
	if err != nil {
		return err
	}
	desired.SetResourceVersion(version)
	if observed != nil && (a.unchanged(observed, sent) || slices.Contains(observed.GetManagedFields(), summary(string(a.owner), sent))) {
		return nil
	}
	if observed != nil {
		desired.SetUID(observed.GetUID())
	}
	kind, key := desired.GetKind(), client.ObjectKeyFromObject(desired)
	if err := a.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), a.owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", kind, key, asConflict(err, desired))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied[desired.GetUID()] = record{sent: sent, resourceVersion: desired.GetResourceVersion()}
	return nil
}

// sum tells desired states apart.
func sum(desired *unstructured.Unstructured) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(desired)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding %s %s: %w", desired.GetKind(), client.ObjectKeyFromObject(desired), err)
	}
	return sha256.Sum256(raw), nil
}

// summary stands for the managed fields of an owner whose last desired state still holds.
func summary(owner string, sent [sha256.Size]byte) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: owner, FieldsType: base64.RawStdEncoding.EncodeToString(sent[:])}
}

// SummarizeService shortens the managed fields of a Service, for a cache, to what an Applier needs to tell whether the
// Service follows a desired state: a sum of the fields that owner applied and still owns, with the values that they
// have. Whoever else changes such a field becomes its owner. So a new process need not apply again all that a former
// one did, and a change of what is not ours costs no request. Fields that were shortened before stay as they are.
func SummarizeService(service *corev1.Service, owner string) {
	isOwn := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == owner }
	own := slices.IndexFunc(service.ManagedFields, isOwn)
	if own >= 0 && service.ManagedFields[own].FieldsV1 == nil {
		return
	}
	applied, err := corev1ac.ExtractService(service, owner)
	service.ManagedFields = nil
	if err != nil || own < 0 {
		return // it is applied again, which does no harm
	}
	desired, err := Unstructured(applied)
	if err != nil {
		return
	}
	if holds, err := sum(desired); err == nil {
		service.ManagedFields = []metav1.ManagedFieldsEntry{summary(owner, holds)}
	}
}

// asConflict makes a conflict of the way in which the API server says that the object is no longer the observed one: an
// invalid uid.
func asConflict(err error, desired *unstructured.Unstructured) error {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	if !ok || !apierrors.IsInvalid(err) || cause.Field != "metadata.uid" {
		return err
	}
	return apierrors.NewConflict(schema.GroupResource{Group: desired.GroupVersionKind().Group, Resource: desired.GetKind()}, desired.GetName(), err)
}

func (a *Applier) unchanged(observed client.Object, sent [sha256.Size]byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.applied[observed.GetUID()]
	return ok && last.sent == sent && last.resourceVersion == observed.GetResourceVersion()
}

// Forget drops what is remembered of an object that is gone.
func (a *Applier) Forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.applied, uid)
}

// Forgetting returns a handler of a watch that forgets the objects that are deleted, and otherwise does what h does.
func (a *Applier) Forgetting(h handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: h.Create,
		UpdateFunc: h.Update,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			a.Forget(e.Object.GetUID())
			h.Delete(ctx, e, queue)
		},
		GenericFunc: h.Generic,
	}
}

// Unstructured turns a typed object or apply configuration into what Apply takes. Fields that the type always writes,
// such as an empty status, are the caller's to remove.
func Unstructured(o any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("converting %T: %w", o, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}
