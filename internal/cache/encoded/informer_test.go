package encoded

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

func TestEncodedObjectsAreDecodedAsTheyWere(t *testing.T) {
	now := metav1.Unix(1700000000, 0)
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0", UID: "uid", ResourceVersion: "7", Generation: 3, CreationTimestamp: now, DeletionTimestamp: &now,
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "text"}, Finalizers: []string{"example.com/theirs"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "pod", Controller: ptr.To(true)}},
	}
	addresses := []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: "IP", Ports: map[string]int32{"http": 80}}}
	service := &corev1.Service{
		ObjectMeta: meta,
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}}, ClusterIPs: []string{"10.0.0.1"}},
	}
	service.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: names.FieldManagerService, Operation: "Apply", APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:clusterIPs":{}}}`)}}
	apply.SummarizeService(service, names.FieldManagerService)
	if len(service.ManagedFields) != 1 {
		t.Fatal("the Service has no summary")
	}
	for _, o := range []client.Object{
		&corev1.Pod{
			ObjectMeta: meta,
			Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{
				{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		},
		&corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: "NoSchedule", TimeAdded: &now}}}},
		service,
		&corev1.PersistentVolumeClaim{
			ObjectMeta: meta,
			Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			}},
		},
		&corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver}},
		}},
		&listenersv1alpha1.Listener{
			ObjectMeta: meta,
			Spec: listenersv1alpha1.ListenerSpec{
				ClassName: ptr.To("public"), ObjectOverrides: []runtime.RawExtension{{Raw: []byte(`{"kind":"Service"}`)}},
			},
			// A list that is empty is not one that is missing.
			Status: &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}, NodePorts: map[string]int32{"http": 30080}},
		},
		&listenersv1alpha1.Listener{ObjectMeta: meta},
		&listenersv1alpha1.PodListeners{ObjectMeta: meta, Spec: listenersv1alpha1.PodListenersSpec{
			Listeners: map[string]listenersv1alpha1.PodListener{"a": {ListenerName: "web", IngressAddresses: addresses}},
		}},
	} {
		c := codec{reflect.TypeOf(o)}
		encoded, err := c.encode(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(any(o), c.decode(encoded)); diff != "" {
			t.Errorf("%T (-before +after):\n%s", o, diff)
		}
		if m := encoded.GetObjectMeta(); m.GetNamespace() != o.GetNamespace() || m.GetName() != o.GetName() || m.GetResourceVersion() != o.GetResourceVersion() {
			t.Errorf("%T has the identity %v", o, m)
		}
	}
}

// event is what a handler got.
type event struct {
	what          string
	before, after any
}

type recorder chan event

func (r recorder) OnAdd(o any, _ bool)        { r <- event{what: "add", after: o} }
func (r recorder) OnUpdate(before, after any) { r <- event{"update", before, after} }
func (r recorder) OnDelete(o any)             { r <- event{what: "delete", before: o} }
func (r recorder) expect(g Gomega, want event) {
	g.ExpectWithOffset(1, cmp.Diff(want, <-r, cmp.AllowUnexported(event{}))).To(BeEmpty())
}

// newClaimInformer returns an informer of claims whose transform adds a label.
func newClaimInformer(t *testing.T, source toolscache.ListerWatcher) toolscache.SharedIndexInformer {
	t.Helper()
	object := &corev1.PersistentVolumeClaim{}
	i := NewInformer([]client.Object{object})(source, object, 0, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	})
	if err := i.SetTransform(func(o any) (any, error) {
		claim, ok := o.(*corev1.PersistentVolumeClaim)
		if !ok {
			return nil, errors.New("the transform gets something else than claims")
		}
		claim = claim.DeepCopy()
		claim.Labels = map[string]string{"transformed": "once" + claim.Labels["transformed"]}
		return claim, nil
	}); err != nil {
		t.Fatal(err)
	}
	return i
}

func newClaim(name, volume, version string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume},
	}
}

func transformed(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	claim.Labels = map[string]string{"transformed": "once"}
	return claim
}

func byVolume(o any) ([]string, error) {
	return []string{o.(*corev1.PersistentVolumeClaim).Spec.VolumeName}, nil
}

func TestReadersAndHandlersGetDecodedObjects(t *testing.T) {
	g := NewWithT(t)
	source := cachetesting.NewFakePVCControllerSource()
	source.Add(newClaim("a", "pv-1", ""))
	i := newClaimInformer(t, source)
	g.Expect(i.AddIndexers(toolscache.Indexers{"volume": byVolume})).To(Succeed())
	first, second, third := make(recorder, 10), make(recorder, 10), make(recorder, 10)
	for _, add := range []func() (toolscache.ResourceEventHandlerRegistration, error){
		func() (toolscache.ResourceEventHandlerRegistration, error) { return i.AddEventHandler(first) },
		func() (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithResyncPeriod(second, 0)
		},
		func() (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithOptions(third, toolscache.HandlerOptions{})
		},
	} {
		_, err := add()
		g.Expect(err).NotTo(HaveOccurred())
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); i.RunWithContext(ctx) }()
	defer func() { cancel(); <-stopped }()

	a1 := transformed(newClaim("a", "pv-1", "1"))
	all := []recorder{first, second, third}
	for _, r := range all {
		r.expect(g, event{what: "add", after: a1})
	}
	source.Modify(newClaim("a", "pv-2", ""))
	a2 := transformed(newClaim("a", "pv-2", "2"))
	for _, r := range all {
		r.expect(g, event{"update", a1, a2})
	}

	for name, store := range map[string]toolscache.Store{"store": i.GetStore(), "indexer": i.GetIndexer()} {
		got, exists, err := store.GetByKey("shop/a")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(exists).To(BeTrue(), name)
		g.Expect(cmp.Diff(any(a2), got)).To(BeEmpty(), name)
		got.(*corev1.PersistentVolumeClaim).Labels["changed"] = "by a reader"
		got, _, err = store.Get(a1)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cmp.Diff(any(a2), got)).To(BeEmpty(), name)
		g.Expect(cmp.Diff([]any{a2}, store.List())).To(BeEmpty(), name)
		got, exists, err = store.GetByKey("shop/b")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(exists).To(BeFalse(), name)
		g.Expect(got).To(BeNil(), name)
	}
	stored := i.(*informer).SharedIndexInformer.GetStore().List()
	g.Expect(stored).To(HaveLen(1))
	g.Expect(stored[0]).To(BeAssignableToTypeOf(&encoded{}))
	indexed, err := i.GetIndexer().ByIndex("volume", "pv-2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmp.Diff([]any{a2}, indexed)).To(BeEmpty())
	indexed, err = i.GetIndexer().Index("volume", a2)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmp.Diff([]any{a2}, indexed)).To(BeEmpty())
	indexed, err = i.GetIndexer().ByIndex(toolscache.NamespaceIndex, "shop")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(indexed).To(HaveLen(1))

	source.Delete(newClaim("a", "pv-2", ""))
	for _, r := range all {
		r.expect(g, event{what: "delete", before: transformed(newClaim("a", "pv-2", "3"))})
	}
}

// After an interruption of a watch, the informer may not have seen the last version of a deleted object.
func TestTombstonesAreDecoded(t *testing.T) {
	c := codec{reflect.TypeFor[*corev1.PersistentVolumeClaim]()}
	claim := newClaim("a", "pv-1", "1")
	encoded, err := c.encode(claim)
	if err != nil {
		t.Fatal(err)
	}
	want := toolscache.DeletedFinalStateUnknown{Key: "shop/a", Obj: claim}
	if diff := cmp.Diff(any(want), c.decode(toolscache.DeletedFinalStateUnknown{Key: "shop/a", Obj: encoded})); diff != "" {
		t.Errorf("tombstone (-want +got):\n%s", diff)
	}
}
