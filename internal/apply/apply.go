// Package apply brings objects, and statuses, to a desired state: by server-side apply, with force, as one field
// manager for each kind. Metadata that others write, too, it patches. It never merges fields: the API server does.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Applier applies objects as one field manager. It remembers what it applied, so that an object that is as desired
// costs no request. It is safe for concurrent use.
type Applier struct {
	client  client.Client
	manager client.FieldOwner
	// applied has a record for each identity, of the objects that were applied last.
	applied *lru.Cache
	// statuses has a sentStatus for each identity, of the statuses that were applied last.
	statuses *lru.Cache
}

// remembered objects need about 12 MiB. To apply any other one again costs a request, which changes nothing.
const remembered = 1 << 15

// rememberedStatuses is how many statuses an Applier remembers: those that the cache may not have yet.
const rememberedStatuses = 1 << 10

// noVersion is a resource version that no object has, because the first write to an empty etcd is its second revision.
// An apply that has it creates an object, but is in conflict with any that exists.
const noVersion = "1"

// identity is the key of a record. A namesake that replaces an object has the same identity.
type identity struct {
	kind schema.GroupVersionKind
	name types.NamespacedName
}

// record is what the last apply of an object sent, and the version that the API server answered with.
type record struct {
	sent            [sha256.Size]byte
	uid             types.UID
	resourceVersion string
}

// sentStatus is the last status of an object, from which version it was decided, and the version that it led to.
type sentStatus struct {
	status   [sha256.Size]byte
	uid      types.UID
	from, to string
}

// repeats reports whether the status would be sent again for a version that does not have it yet.
func (s sentStatus) repeats(last sentStatus) bool {
	if s.status != last.status || s.uid != last.uid {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(s.from, last.to)
	return s.from == last.from || err == nil && order < 0
}

// New returns an Applier that writes as manager, one of the names.FieldManager constants.
func New(c client.Client, manager string) *Applier {
	return &Applier{client: c, manager: client.FieldOwner(manager), applied: lru.New(remembered),
		statuses: lru.New(rememberedStatuses)}
}

// Apply makes the object as desired says, whose apiVersion, kind and name must be set. observed is the object as last
// read, or nil, or a pointer that is nil, if there is none: when it is still as the last apply of an equal desired
// state left it, or SummarizeService recorded that it follows an equal one, nothing is sent and desired stays as it is.
// Otherwise the result is true, and desired holds the object as it is now. A namesake of the observed object, or one
// although that is nil, is in conflict, as are other versions if desired has a resource version.
func (a *Applier) Apply(ctx context.Context, desired *unstructured.Unstructured,
	observed client.Object) (sent bool, _ error) {
	if v := reflect.ValueOf(observed); v.Kind() == reflect.Pointer && v.IsNil() {
		observed = nil
	}
	version := desired.GetResourceVersion()
	desired.SetResourceVersion("") // not part of the desired state
	hash, err := sum(desired)
	if err != nil {
		return false, err
	}
	id := identity{desired.GroupVersionKind(), client.ObjectKeyFromObject(desired)}
	last, _ := a.applied.Get(id)
	known, _ := last.(record)
	follows, err := a.follows(observed, desired, known, hash)
	desired.SetResourceVersion(version)
	if err != nil || follows {
		return false, err
	}
	switch {
	case observed != nil:
		desired.SetUID(observed.GetUID())
	case version == "":
		desired.SetResourceVersion(noVersion)
	}
	if err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), a.manager,
		client.ForceOwnership); err != nil {
		return false, fmt.Errorf("applying %s %s: %w", id.kind.Kind, id.name, asConflict(err, desired))
	}
	a.applied.Add(id, record{sent: hash, uid: desired.GetUID(), resourceVersion: desired.GetResourceVersion()})
	return true, nil
}

// Typed applies an object as Apply does, and returns it as it is now, of the type of the observed one.
func Typed[T any, P interface {
	*T
	client.Object
}](ctx context.Context, a *Applier, desired *unstructured.Unstructured, observed P) (P, error) {
	if sent, err := a.Apply(ctx, desired, observed); err != nil || !sent {
		return observed, err
	}
	applied := P(new(T))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, applied); err != nil {
		return observed, fmt.Errorf("decoding %s %s: %w", desired.GetKind(), client.ObjectKeyFromObject(desired), err)
	}
	return applied, nil
}

// follows reports whether the observed object, nil if there is none, is known to follow the desired one: that is what
// was last applied to it, and holds in the version that the API server answered with, or in a later one, which other
// writers changed elsewhere, for example in the status.
func (a *Applier) follows(observed client.Object, desired *unstructured.Unstructured, last record,
	sent [sha256.Size]byte) (bool, error) {
	switch {
	case observed == nil:
		return false, nil
	case last == record{sent, observed.GetUID(), observed.GetResourceVersion()},
		slices.Contains(observed.GetManagedFields(), summary(string(a.manager), sent)):
		return true, nil
	case last.sent != sent || last.uid != observed.GetUID():
		return false, nil
	}
	content, err := Unstructured(observed)
	if err != nil {
		return false, err
	}
	content.SetGroupVersionKind(desired.GroupVersionKind()) // typed objects may lack it
	return has(content.Object, desired.Object), nil
}

func has(object, desired any) bool {
	fields, ok := desired.(map[string]any)
	if !ok {
		return reflect.DeepEqual(object, desired)
	}
	present, _ := object.(map[string]any)
	for name, field := range fields {
		if !has(present[name], field) {
			return false
		}
	}
	return true
}

// ApplyStatus makes status the status of the observed object, but never of a namesake that has replaced it.
// Callers compare the observed status before. It does not send what it has sent last, apart from times, for this
// version or any earlier one, which a cache that lags behind may still have; sent reports whether it did. An object
// that no longer exists is no error. A status that follows from the observed one is given with the version of that: an
// object that has another version by now is not changed; the error is then a conflict. Usually the version is "".
func (a *Applier) ApplyStatus(ctx context.Context, observed client.Object, status any,
	version string) (sent bool, _ error) {
	kind, err := a.client.GroupVersionKindFor(observed)
	if err != nil {
		return false, fmt.Errorf("looking up the kind of %T: %w", observed, err)
	}
	content, err := Unstructured(status)
	if err != nil {
		return false, err
	}
	now := sentStatus{uid: observed.GetUID(), from: observed.GetResourceVersion()}
	if now.status, err = sum(withoutTimes(content)); err != nil {
		return false, err
	}
	id := identity{kind, client.ObjectKeyFromObject(observed)}
	if last, ok := a.statuses.Get(id); ok && now.repeats(last.(sentStatus)) {
		return false, nil
	}
	desired := Object(kind, id.name)
	desired.Object["status"] = content.Object
	desired.SetUID(observed.GetUID())
	desired.SetResourceVersion(version)
	err = a.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), a.manager,
		client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("writing the status of %s %s: %w", kind.Kind, id.name, err)
	}
	if err == nil {
		now.to = desired.GetResourceVersion()
	}
	a.statuses.Add(id, now)
	return true, nil
}

// Delete deletes the observed object, but no namesake that has replaced it, and forgets what was applied: to create it
// again is no repair. An object that no longer exists is no error. Its kind need not be in the client's scheme: the
// answer contains the object if it has finalizers, and only an unstructured one can be decoded without.
func (a *Applier) Delete(ctx context.Context, observed client.Object, options ...client.DeleteOption) error {
	kind, err := a.client.GroupVersionKindFor(observed)
	if err != nil {
		return fmt.Errorf("looking up the kind of %T: %w", observed, err)
	}
	key := client.ObjectKeyFromObject(observed)
	options = append([]client.DeleteOption{client.Preconditions{UID: ptr.To(observed.GetUID())}}, options...)
	if err := client.IgnoreNotFound(a.client.Delete(ctx, Object(kind, key), options...)); err != nil {
		return fmt.Errorf("deleting %s %s: %w", kind.Kind, key, err)
	}
	a.applied.Remove(identity{kind, key})
	return nil
}

func sum(desired any) (hash [sha256.Size]byte, _ error) {
	content, err := Unstructured(desired)
	if err != nil {
		return hash, err
	}
	raw, err := json.Marshal(content.Object)
	if err != nil {
		return hash, fmt.Errorf("encoding %T: %w", desired, err)
	}
	return sha256.Sum256(raw), nil
}

// withoutTimes returns a status without the times of its conditions, and since when a Listener is unused, or waits.
func withoutTimes(status *unstructured.Unstructured) *unstructured.Unstructured {
	timeless := status.DeepCopy()
	conditions, _ := timeless.Object["conditions"].([]any)
	for _, c := range conditions {
		delete(c.(map[string]any), "lastTransitionTime")
	}
	if _, unused := timeless.Object["unusedSince"]; unused {
		timeless.Object["unusedSince"] = ""
	}
	unstructured.RemoveNestedField(timeless.Object, "waitingFor", "since")
	return timeless
}

// summary takes the place of the managed fields of a manager whose last desired state the object still follows.
func summary(manager string, sent [sha256.Size]byte) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsType: base64.RawStdEncoding.EncodeToString(sent[:])}
}

// SummarizeService shortens the managed fields of a Service, for a cache, to what an Applier needs: a hash of the
// fields that manager applied and still owns, with their values. A writer that changes such a field becomes its
// manager. So neither a new process nor changes of other managers cause an apply. It changes nothing the second time.
func SummarizeService(service *corev1.Service, manager string) {
	own := slices.IndexFunc(service.ManagedFields,
		func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
	if own >= 0 && service.ManagedFields[own].FieldsV1 == nil {
		return
	}
	applied, err := corev1ac.ExtractService(service, manager)
	service.ManagedFields = nil
	if err != nil || own < 0 {
		return // it is applied again, which changes nothing
	}
	if current, err := sum(applied); err == nil {
		service.ManagedFields = []metav1.ManagedFieldsEntry{summary(manager, current)}
	}
}

// asConflict turns an invalid uid, by which the API server reports that the object is another one, into a conflict.
func asConflict(err error, desired *unstructured.Unstructured) error {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	if !ok || !apierrors.IsInvalid(err) || cause.Field != "metadata.uid" {
		return err
	}
	return apierrors.NewConflict(schema.GroupResource{Group: desired.GroupVersionKind().Group,
		Resource: desired.GetKind()}, desired.GetName(), err)
}

func Object(kind schema.GroupVersionKind, key types.NamespacedName) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	return o
}

// Unstructured converts a typed object or apply configuration to what Apply takes. Callers have to remove fields that
// the type always encodes, such as an empty status.
func Unstructured(o any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("converting %T: %w", o, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// PatchMetadata merges fields into the metadata of o, which then is as the API server answers, and keeps those of other
// writers. The API server rejects the patch for another object of the name, because its uid differs.
func PatchMetadata(ctx context.Context, c client.Client, o client.Object, manager string, fields map[string]any) error {
	fields["uid"] = o.GetUID()
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return fmt.Errorf("encoding a patch of metadata: %w", err)
	}
	if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("patching the metadata of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}
