package apply_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func configMap(namespace, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": namespace, "name": "some"},
		"data":     map[string]any{"key": value},
	}}
}

// observe returns the object, or nil if there is none.
func observe(t *testing.T, c client.Client, namespace string) *corev1.ConfigMap {
	t.Helper()
	observed := &corev1.ConfigMap{}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "some"}, observed)
	if apierrors.IsNotFound(err) {
		return nil
	}
	check.Must(t, err)
	return observed
}

func mustApply(t *testing.T, applier *apply.Applier, desired *unstructured.Unstructured, observed client.Object) {
	t.Helper()
	if _, err := applier.Apply(t.Context(), desired, observed); err != nil {
		t.Fatal(err)
	}
}

func TestApplySendsWhatDiffers(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	applier := apply.New(c, "tester")
	change := func(value string) func() {
		return func() {
			observed := observe(t, c, namespace)
			changed := observed.DeepCopy()
			changed.Data["key"] = value
			check.Must(t, c.Patch(t.Context(), changed, client.MergeFrom(observed)))
		}
	}
	for _, tc := range []struct {
		name   string
		before func()
		value  string
		sent   bool
	}{
		{"no object", func() {}, "a", true},
		{"the same desired state", func() {}, "a", false},
		{"another desired state", func() {}, "b", true},
		{"the same desired state again", func() {}, "b", false},
		{"a change of a desired field by another writer", change("theirs"), "b", true},
		{"the same desired state after a repair", func() {}, "b", false},
		{"a change of another field", func() {
			observed := observe(t, c, namespace)
			observed.Annotations = map[string]string{"theirs": "x"}
			check.Must(t, c.Update(t.Context(), observed))
		}, "b", false},
		{"a change together with one of the desired state", change("theirs"), "c", true},
		{"a deletion by another writer", func() {
			check.Must(t, c.Delete(t.Context(), observe(t, c, namespace)))
		}, "c", true},
		{"a deletion by the applier", func() {
			check.Must(t, applier.Delete(t.Context(), observe(t, c, namespace)))
		}, "c", true},
		{"another process", func() { applier = apply.New(c, "tester") }, "c", true},
		{"another process and a change", func() { applier = apply.New(c, "tester"); change("theirs")() }, "c", true},
	} {
		tc.before()
		var observed client.Object
		if o := observe(t, c, namespace); o != nil {
			observed = o
		}
		desired := configMap(namespace, tc.value)
		sent, err := applier.Apply(t.Context(), desired, observed)
		if got := desired.GetResourceVersion() != ""; err != nil || sent != tc.sent || got != tc.sent {
			t.Errorf("%s: sent is %t, and has a resource version %t, error %v, want %t", tc.name, sent, got, err, tc.sent)
		}
		if got := observe(t, c, namespace).Data["key"]; got != tc.value {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.value)
		}
	}
}

// TestWritesHaveTheUIDOfTheObservedObject checks the requests, which needs no API server.
func TestWritesHaveTheUIDOfTheObservedObject(t *testing.T) {
	const owner = "tester"
	type request struct {
		verb, uid, resourceVersion, manager string
		force                               bool
	}
	var got []request
	sent := func(verb string, o runtime.ApplyConfiguration, manager string, force *bool) {
		content, err := apply.Unstructured(o)
		check.Must(t, err)
		got = append(got, request{verb, string(content.GetUID()), content.GetResourceVersion(), manager, force != nil && *force})
	}
	c := fakeclient.New(t, interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			all := (&client.ApplyOptions{}).ApplyOptions(options)
			sent("apply", o, all.FieldManager, all.Force)
			return nil
		},
		SubResourceApply: func(_ context.Context, _ client.Client, name string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			all := (&client.SubResourceApplyOptions{}).ApplyOpts(options)
			sent("apply "+name, o, all.FieldManager, all.Force)
			return nil
		},
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
			all := (&client.DeleteOptions{}).ApplyOptions(options)
			got = append(got, request{verb: "delete", uid: string(*all.Preconditions.UID)})
			return nil
		},
	})
	applier := apply.New(c, owner)
	observed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "some", UID: "observed", ResourceVersion: "1"}}
	mustApply(t, applier, configMap("ns", "a"), nil)
	mustApply(t, applier, configMap("ns", "b"), observed)
	versioned := configMap("ns", "c")
	versioned.SetResourceVersion("1")
	mustApply(t, applier, versioned, observed)
	if _, err := applier.ApplyStatus(t.Context(), observed, &corev1.PodStatus{}, ""); err != nil {
		t.Fatal(err)
	}
	check.Must(t, applier.Delete(t.Context(), observed))
	want := []request{
		{"apply", "", "1", owner, true},
		{"apply", "observed", "", owner, true},
		{"apply", "observed", "1", owner, true},
		{"apply status", "observed", "", owner, true},
		{"delete", "observed", "", "", false},
	}
	check.Equal(t, "requests", want, got, cmp.AllowUnexported(request{}))
}

func TestNamesakeIsNeverModified(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	applier := apply.New(c, "tester")
	mustApply(t, applier, configMap(namespace, "a"), nil)
	observed := observe(t, c, namespace)
	check.Must(t, c.Delete(t.Context(), observed))
	if _, err := applier.Apply(t.Context(), configMap(namespace, "b"), observed); !apierrors.IsConflict(err) {
		t.Errorf("deleted: got %v, want a conflict", err)
	}
	foreign := &corev1.ConfigMap{Data: map[string]string{"key": "theirs"}}
	foreign.Namespace, foreign.Name = namespace, "some"
	check.Must(t, c.Create(t.Context(), foreign))
	if _, err := applier.Apply(t.Context(), configMap(namespace, "b"), observed); !apierrors.IsConflict(err) {
		t.Errorf("replaced: got %v, want a conflict", err)
	}
	if got := observe(t, c, namespace).Data["key"]; got != "theirs" {
		t.Errorf("got %q", got)
	}
}

// The object may have been created after the cache was read, or not be in the cache yet.
func TestObjectThatWasNotObservedIsNeverModified(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	service, err := apply.Unstructured(corev1ac.Service("some", namespace).WithSpec(corev1ac.ServiceSpec().WithPorts(corev1ac.ServicePort().WithPort(80))))
	check.Must(t, err)
	listener := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": listenersv1alpha1.GroupVersion.String(), "kind": "Listener",
		"metadata": map[string]any{"namespace": namespace, "name": "some"}, "spec": map[string]any{"className": "theirs"},
	}}
	for _, desired := range []*unstructured.Unstructured{configMap(namespace, "a"), service, listener} {
		created := desired.DeepCopy()
		if sent, err := apply.New(c, "tester").Apply(t.Context(), created, nil); err != nil || !sent {
			t.Errorf("%s: sent is %t, error %v", desired.GetKind(), sent, err)
		}
		before := created.DeepCopy()
		check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(desired), before))
		desired.SetLabels(map[string]string{"adopted": "yes"})
		if _, err := apply.New(c, "another").Apply(t.Context(), desired, nil); !apierrors.IsConflict(err) {
			t.Errorf("%s: got %v, want a conflict", desired.GetKind(), err)
		}
		after := before.DeepCopy()
		check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(desired), after))
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s (-before +after):\n%s", desired.GetKind(), diff)
		}
	}
}

// A cache that lags behind still has the version that the status was decided from, or one that another write led to
// before.
func TestStatusIsSentOnceForAVersion(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "some"}}
	check.Must(t, c.Create(t.Context(), listener))
	stale, between, applier := listener.DeepCopy(), listener.DeepCopy(), apply.New(c, "tester")
	status := func(message string) *listenersv1alpha1.ListenerStatus {
		waiting := &listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindNodePort, Since: metav1.Now()}
		return &listenersv1alpha1.ListenerStatus{UnusedSince: ptr.To(metav1.Now()), WaitingFor: waiting, IngressAddresses: []listenersv1alpha1.IngressAddress{}, Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "Some", Message: message, LastTransitionTime: metav1.Now(),
		}}}
	}
	later := status("a")
	later.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Hour))
	later.UnusedSince, later.WaitingFor.Since = &later.Conditions[0].LastTransitionTime, later.Conditions[0].LastTransitionTime
	used := status("a")
	used.UnusedSince = nil
	for _, tc := range []struct {
		name     string
		status   *listenersv1alpha1.ListenerStatus
		observed *listenersv1alpha1.Listener
		want     bool
	}{
		{"the first one", status("a"), stale, true},
		{"the same", status("a"), stale, false},
		{"the same at another time", later, stale, false},
		{"of a Listener that is used", used, stale, true},
		{"another", status("b"), stale, true},
		{"the first one again", status("a"), stale, true},
		{"the same for the version of the other one", status("a"), between, false},
		{"the same for the version after it", status("a"), listener, true},
	} {
		if tc.observed == listener {
			check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(listener), listener))
		}
		if tc.name == "the first one again" {
			check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(listener), between))
		}
		if got, err := applier.ApplyStatus(t.Context(), tc.observed, tc.status, ""); err != nil || got != tc.want {
			t.Errorf("%s: sent is %t, error %v", tc.name, got, err)
		}
	}
	if sent, err := apply.New(c, "tester").ApplyStatus(t.Context(), stale, status("a"), ""); err != nil || !sent {
		t.Errorf("another process: sent is %t, error %v", sent, err)
	}
	if _, err := applier.ApplyStatus(t.Context(), stale, status("c"), stale.GetResourceVersion()); !apierrors.IsConflict(err) {
		t.Errorf("for an old version: error %v, want a conflict", err)
	}
	check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(listener), listener))
	if sent, err := applier.ApplyStatus(t.Context(), listener, status("c"), listener.GetResourceVersion()); err != nil || !sent {
		t.Errorf("for the current version: sent is %t, error %v", sent, err)
	}
}

func TestOnlyTheGivenResourceVersionIsModified(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	applier := apply.New(c, "tester")
	mustApply(t, applier, configMap(namespace, "a"), nil)
	old := observe(t, c, namespace)
	desiredAtOld := func(value string) *unstructured.Unstructured {
		desired := configMap(namespace, value)
		desired.SetResourceVersion(old.ResourceVersion)
		return desired
	}
	same := desiredAtOld("a")
	if _, err := applier.Apply(t.Context(), same, old); err != nil || same.GetUID() != "" {
		t.Errorf("the same desired state: error %v, answer %v", err, same)
	}
	if _, err := applier.Apply(t.Context(), desiredAtOld("b"), old); err != nil {
		t.Errorf("the current version: %v", err)
	}
	if _, err := applier.Apply(t.Context(), desiredAtOld("c"), old); !apierrors.IsConflict(err) {
		t.Errorf("an old version: got %v, want a conflict", err)
	}
	if got := observe(t, c, namespace).Data["key"]; got != "b" {
		t.Errorf("got %q", got)
	}
}

// A process that has just started has no memory of applies, but its cache has the Services that an earlier one applied.
func TestUnchangedServiceIsNotAppliedAgainAfterRestart(t *testing.T) {
	const owner = "tester"
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	service := func(port int32) *unstructured.Unstructured {
		desired, err := apply.Unstructured(corev1ac.Service("some", namespace).
			WithLabels(map[string]string{"a": "1"}).WithAnnotations(map[string]string{"b": "2"}).
			WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Some").WithName("some").WithUID("uid").
				WithController(true).WithBlockOwnerDeletion(true)).
			WithSpec(corev1ac.ServiceSpec().WithType(corev1.ServiceTypeNodePort).WithSelector(map[string]string{"c": "3"}).
				WithPublishNotReadyAddresses(true).WithExternalTrafficPolicy(corev1.ServiceExternalTrafficPolicyCluster).
				WithPorts(
					corev1ac.ServicePort().WithName("http").WithProtocol(corev1.ProtocolTCP).WithPort(port),
					corev1ac.ServicePort().WithName("dns").WithProtocol(corev1.ProtocolUDP).WithPort(port),
				)))
		check.Must(t, err)
		return desired
	}
	read := func() *corev1.Service {
		observed := &corev1.Service{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "some"}, observed); err != nil {
			t.Fatal(err)
		}
		return observed
	}
	by := func(manager string, change func(*corev1.Service)) func() {
		return func() {
			before := read()
			after := before.DeepCopy()
			change(after)
			check.Must(t, c.Patch(t.Context(), after, client.MergeFrom(before), client.FieldOwner(manager)))
		}
	}
	mustApply(t, apply.New(c, owner), service(80), nil)
	for _, tc := range []struct {
		name   string
		before func()
		port   int32
		sent   bool
	}{
		{"the same desired state", func() {}, 80, false},
		{"a label of another manager", by("other", func(s *corev1.Service) { s.Labels["theirs"] = "x" }), 80, false},
		{"a desired label changed", by("other", func(s *corev1.Service) { s.Labels["a"] = "theirs" }), 80, true},
		{"a desired label removed", by("other", func(s *corev1.Service) { delete(s.Labels, "a") }), 80, true},
		{"a desired annotation changed by a client with the same name", by(owner, func(s *corev1.Service) { s.Annotations["b"] = "x" }), 80, true},
		{"another manager adds to the selector", by("other", func(s *corev1.Service) { s.Spec.Selector["theirs"] = "x" }), 80, true},
		{"a desired port changed", by("other", func(s *corev1.Service) { s.Spec.Ports[0].Name = "theirs" }), 80, true},
		{"a desired port removed", by("other", func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[1:] }), 80, true},
		{"the owner removed", by("other", func(s *corev1.Service) { s.OwnerReferences = nil }), 80, true},
		{"other ports", func() {}, 90, true},
		{"the same desired state again", func() {}, 90, false},
	} {
		tc.before()
		observed := read()
		apply.SummarizeService(observed, owner)
		once := observed.DeepCopy()
		apply.SummarizeService(observed, owner)
		if diff := cmp.Diff(once, observed); diff != "" {
			t.Errorf("%s: summarized again (-once +twice):\n%s", tc.name, diff)
		}
		desired := service(tc.port)
		if _, err := apply.New(c, owner).Apply(t.Context(), desired, observed); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := desired.GetResourceVersion() != ""; got != tc.sent {
			t.Errorf("%s: sent is %t, want %t", tc.name, got, tc.sent)
		}
		if observed = read(); observed.Labels["a"] != "1" || observed.Annotations["b"] != "2" || len(observed.Spec.Selector) != 1 ||
			len(observed.Spec.Ports) != 2 || observed.Spec.Ports[0].Name != "http" || observed.Spec.Ports[0].Port != tc.port || len(observed.OwnerReferences) != 1 {
			t.Errorf("%s: not repaired: %v", tc.name, observed)
		}
	}
	whole := read()
	desired := service(90)
	if _, err := apply.New(c, owner).Apply(t.Context(), desired, whole); err != nil || desired.GetResourceVersion() == "" {
		t.Errorf("a Service with whole managed fields: error %v, sent is %t", err, desired.GetResourceVersion() != "")
	}
	apply.SummarizeService(whole, "another")
	if len(whole.ManagedFields) > 0 {
		t.Errorf("managed fields of others remain: %v", whole.ManagedFields)
	}
}

// Routes of the Gateway API are such objects if the cluster serves a version of which the operator has no Go types.
func TestObjectWithAFinalizerIsDeletedThoughItsKindIsNotInTheScheme(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	object := configMap(namespace, "some")
	object.SetFinalizers([]string{"example.com/kept"})
	check.Must(t, c.Create(t.Context(), object))
	unknown, err := client.New(apiserver.Config(t), client.Options{Scheme: runtime.NewScheme()})
	check.Must(t, err)
	observed := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object.GetName(), UID: object.GetUID()}}
	observed.SetGroupVersionKind(object.GroupVersionKind())
	check.Must(t, apply.New(unknown, "tester").Delete(t.Context(), observed))
	if observe(t, c, namespace).DeletionTimestamp == nil {
		t.Error("the object is not being deleted")
	}
}
