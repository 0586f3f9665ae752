package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/counter"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// world has the objects that exist while a claim is provisioned for the Pod web-0 on node-1.
type world struct {
	pvc   *corev1.PersistentVolumeClaim
	pod   *corev1.Pod
	class *listenersv1alpha1.ListenerClass
	other []client.Object
}

func newWorld() *world {
	return &world{
		pvc: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name: "listener-web-0", Namespace: "shop", UID: "claim-uid",
				Annotations: map[string]string{names.AnnotationListenerClass: "public", "note": "kept"},
			},
			Spec: objects.ClaimSpec(""),
		},
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop", UID: "pod-uid"},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}},
				Volumes:    []corev1.Volume{objects.ClaimVolume("listener", "listener-web-0")},
			},
		},
		class: &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "public"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: true},
		},
	}
}

// byName makes the claim name the Listener web, which exists unless listener is nil.
func (w *world) byName(listener *listenersv1alpha1.Listener) {
	w.pvc.Annotations = map[string]string{names.AnnotationListenerName: "web"}
	if listener != nil {
		listener.Name, listener.Namespace = "web", "shop"
		w.other = append(w.other, listener)
	}
}

// listenerOf adds a Listener that was created for a claim of this name with this uid.
func (w *world) listenerOf(uid types.UID) {
	w.other = append(w.other, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{
		Name: w.pvc.Name, Namespace: w.pvc.Namespace,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: w.pvc.Name, UID: uid}},
	}})
}

// provisioner returns a Provisioner in this world, and its events.
func (w *world) provisioner(t *testing.T, intercept interceptor.Funcs) (*Provisioner, chan string) {
	t.Helper()
	objects := append([]client.Object{w.pvc, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}}}, w.other...)
	if w.pod != nil {
		objects = append(objects, w.pod)
	}
	if w.class != nil {
		objects = append(objects, w.class)
	}
	c := fakeclient.New(t, intercept, objects...)
	recorder := events.NewFakeRecorder(10)
	return &Provisioner{Client: fakeclient.Cached(c, "operators"), Events: recorder, Applier: apply.New(c, names.FieldManagerVolume)}, recorder.Events
}

func (w *world) provision(t *testing.T, intercept interceptor.Funcs) (*corev1.PersistentVolume, client.Client, chan string, error) {
	t.Helper()
	p, recorded := w.provisioner(t, intercept)
	pv, state, err := p.Provision(t.Context(), controller.ProvisionOptions{
		PVName: "pvc-claim-uid", PVC: w.pvc, SelectedNodeName: "node-1", StorageClass: &storagev1.StorageClass{},
	})
	if state != controller.ProvisioningFinished {
		t.Errorf("state %s, want finished: nothing continues in the background", state)
	}
	return pv, p.Client, recorded, err
}

// A volume is pinned when its Pod is bound to a node, also if the scheduler has selected a node for the claim.
func TestProvisionedVolume(t *testing.T) {
	pv, _, _, err := newWorld().provision(t, interceptor.Funcs{})
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-claim-uid", Labels: map[string]string{
			"listeners.stackable.tech/listener-namespace": "shop", "listeners.stackable.tech/listener-name": "listener-web-0",
		}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			VolumeMode:                    ptr.To(corev1.PersistentVolumeFilesystem),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "listeners.stackable.tech", VolumeHandle: "pvc-claim-uid",
				VolumeAttributes: map[string]string{"listeners.stackable.tech/listener-class": "public", "note": "kept"},
			}},
		},
	}
	if diff := cmp.Diff(want, pv); diff != "" {
		t.Errorf("volume (-want +got):\n%s", diff)
	}
}

func TestListenerOfAnEarlierClaimGetsTheNewOneAsOwner(t *testing.T) {
	w := newWorld()
	w.listenerOf("earlier")
	_, c, _, err := w.provision(t, interceptor.Funcs{})
	if err != nil {
		t.Fatal(err)
	}
	var got listenersv1alpha1.Listener
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.pvc), &got); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(got.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == w.pvc.UID }) {
		t.Errorf("owners %+v, want also the claim", got.OwnerReferences)
	}
}

func TestListenerOfANewClaimIsNotCreatedYet(t *testing.T) {
	w := newWorld()
	_, c, _, err := w.provision(t, interceptor.Funcs{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.pvc), &listenersv1alpha1.Listener{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the Listener: %v, want that it does not exist", err)
	}
}

func TestListenerOfAClaimIsKeptWhenItsClassNoLongerAllowsTheNamespace(t *testing.T) {
	w := newWorld()
	w.class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{}
	w.listenerOf(w.pvc.UID)
	if pv, _, _, err := w.provision(t, interceptor.Funcs{}); err != nil || pv == nil {
		t.Errorf("volume %v, error %v", pv, err)
	}
}

// The Service of such a Listener still works.
func TestListenerWithAddressesNeedsNoClass(t *testing.T) {
	for name, status := range map[string]*listenersv1alpha1.ListenerStatus{
		"addresses":  {IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP}}},
		"node ports": {NodePorts: map[string]int32{"http": 30080}},
	} {
		w := newWorld()
		w.class = nil
		w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("gone")}, Status: status})
		if pv, _, _, err := w.provision(t, interceptor.Funcs{}); err != nil || pv == nil {
			t.Errorf("%s: volume %v, error %v", name, pv, err)
		}
	}
}

func TestPortsInOverridesOfTheClassSuffice(t *testing.T) {
	w := newWorld()
	w.pod.Spec.Containers[0].Ports = nil
	w.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"name":"http","port":80}]}}`)
	if pv, _, _, err := w.provision(t, interceptor.Funcs{}); err != nil || pv == nil {
		t.Errorf("volume %v, error %v", pv, err)
	}
}

func TestNamedListenerIsUsedUnchanged(t *testing.T) {
	w := newWorld()
	w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")}})
	pv, c, _, err := w.provision(t, interceptor.Funcs{})
	if err != nil {
		t.Fatal(err)
	}
	if got := pv.Labels[names.LabelListenerName]; got != "web" {
		t.Errorf("the volume has Listener %q", got)
	}
	var created listenersv1alpha1.Listener
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.pvc), &created); !apierrors.IsNotFound(err) {
		t.Errorf("a Listener was created for a claim that names one: %v", err)
	}
}

func TestClaimThatCannotBeProvisionedGetsAnEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		reason string
		text   string
	}{
		"neither annotation": {func(w *world) { w.pvc.Annotations = nil }, "InvalidClaim", "neither"},
		"both annotations":   {func(w *world) { w.pvc.Annotations[names.AnnotationListenerName] = "web" }, "InvalidClaim", "both"},
		"a port that the Pod does not have": {
			func(w *world) { w.pvc.Annotations[names.AnnotationPorts] = "http, https" }, "InvalidClaim", `lists "https", but the containers of Pod web-0 have only the ports http`,
		},
		"ports of a named Listener": {func(w *world) {
			w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")}})
			w.pvc.Annotations[names.AnnotationPorts] = "http"
		}, "InvalidClaim", "list the ports in spec.ports of the Listener"},
		"annotation that nearly fits": {func(w *world) {
			w.pvc.Annotations = map[string]string{"listener.stackable.tech/listener-class": "public"}
		}, "InvalidClaim", "it has the annotation listener.stackable.tech/listener-class: did you mean listeners.stackable.tech/listener-class?"},
		"Listener with a namespace": {func(w *world) {
			w.pvc.Annotations = map[string]string{names.AnnotationListenerName: "shop/web"}
		}, "InvalidName", "must be the name alone"},
		"unknown class":          {func(w *world) { w.class = nil }, "ClassNotFound", `"public"`},
		"class with a long name": {func(w *world) { w.pvc.Annotations[names.AnnotationListenerClass] = strings.Repeat("a", 5000) }, "ClassNotFound", "aaa"},
		"unknown Listener":       {func(w *world) { w.byName(nil) }, "ListenerNotFound", "shop/web"},
		"Listener without class": {func(w *world) { w.byName(&listenersv1alpha1.Listener{}) }, "ClassNotSet", "shop/web"},
		"Listener of an unknown class": {func(w *world) {
			w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("gone")}})
		}, "ClassNotFound", `"gone"`},
		"class that does not allow the namespace": {func(w *world) {
			w.class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"other"}}
		}, "NamespaceNotAllowed", "ListenerClass public does not allow namespace shop; name another class"},
		"no ports, and overrides of the class with none": {func(w *world) {
			w.pod.Spec.Containers[0].Ports = nil
			w.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[],"sessionAffinity":"ClientIP"}}`)
		}, "NoPorts", "web-0"},
		"no ports": {func(w *world) { w.pod.Spec.Containers[0].Ports = nil }, "NoPorts", "web-0"},
		"no Pod":   {func(w *world) { w.pod = nil }, "WaitForFirstConsumer", "was deleted"},
		"name that starts with a digit": {func(w *world) {
			w.pvc.Name = "0-web"
			w.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "0-web"
		}, "InvalidName", `"0-web"`},
		"name of 64 characters": {func(w *world) {
			w.pvc.Name = strings.Repeat("a", 64)
			w.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = w.pvc.Name
		}, "InvalidName", "no more than 63"},
		"Listener of a user with the name of the claim": {func(w *world) {
			w.other = append(w.other, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "listener-web-0", Namespace: "shop"}})
		}, "ForeignListener", "shop/listener-web-0"},
		"Listener of an earlier claim that is being deleted": {func(w *world) {
			w.other = append(w.other, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{
				Name: "listener-web-0", Namespace: "shop", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"test/keep"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-0", UID: "gone"}},
			}})
		}, "ListenerTerminating", "shop/listener-web-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			before := len(w.other)
			pv, c, recorded, err := w.provision(t, interceptor.Funcs{})
			if pv != nil {
				t.Errorf("a volume was provisioned: %+v", pv)
			}
			var listeners listenersv1alpha1.ListenerList
			if err := c.List(t.Context(), &listeners); err != nil || len(listeners.Items) != before {
				t.Errorf("there are %d Listeners, want %d (%v)", len(listeners.Items), before, err)
			}
			// The library does not retry after an IgnoredError.
			if ignored := (*controller.IgnoredError)(nil); !errors.As(err, &ignored) {
				t.Errorf("error %v, want an IgnoredError", err)
			}
			select {
			case event := <-recorded:
				if note := strings.TrimPrefix(event, "Warning "+tc.reason+" "); len(note) > 1024 {
					t.Errorf("the API server drops an event of %d bytes", len(note))
				}
				if !strings.HasPrefix(event, "Warning "+tc.reason+" ") || !strings.Contains(event, tc.text) {
					t.Errorf("event %q, want reason %s and %s in the message", event, tc.reason, tc.text)
				}
			default:
				t.Error("no event")
			}
		})
	}
}

// Users look at the Pod first, and the scheduler only says that it has unbound claims.
func TestPodsOfAClaimThatCannotBeProvisionedGetTheEvent(t *testing.T) {
	w := newWorld()
	w.class = nil
	for i := range maxPods + 5 { // a Deployment that mounts one claim
		pod := w.pod.DeepCopy()
		pod.Name, pod.UID = fmt.Sprintf("web-%d", i+1), types.UID(fmt.Sprint("uid-", i+1))
		w.other = append(w.other, pod)
	}
	p, _ := w.provisioner(t, interceptor.Funcs{})
	var recorded eventsByKind
	p.Events = &recorded
	if _, _, err := p.Provision(t.Context(), controller.ProvisionOptions{PVC: w.pvc, StorageClass: &storagev1.StorageClass{}}); err == nil {
		t.Error("no error")
	}
	if n := len(recorded["PersistentVolumeClaim"]); n != 1 {
		t.Errorf("%d events of the claim", n)
	}
	if n := len(recorded["Pod"]); n != maxPods {
		t.Errorf("%d events of Pods, want %d", n, maxPods)
	}
	const want = `ClassNotFound PersistentVolumeClaim listener-web-0 has no volume: ListenerClass "public" does not exist; the volume is provisioned as soon as it does`
	if len(recorded["Pod"]) > 0 && recorded["Pod"][0] != want {
		t.Errorf("event %q, want %q", recorded["Pod"][0], want)
	}
}

// eventsByKind has the reasons and notes of warnings, by the kind of the object.
type eventsByKind map[string][]string

// Eventf implements events.EventRecorder.
func (e *eventsByKind) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", regarding), "*v1.")
	if *e == nil {
		*e = eventsByKind{}
	}
	(*e)[kind] = append((*e)[kind], reason+" "+fmt.Sprintf(note, args...))
}

func TestWaitingClaimsAreThoseThatStillWait(t *testing.T) {
	w := newWorld()
	class := w.class
	w.class = nil
	p, _ := w.provisioner(t, interceptor.Funcs{})
	provision := func() {
		t.Helper()
		_, _, _ = p.Provision(t.Context(), controller.ProvisionOptions{PVName: "pvc-claim-uid", PVC: w.pvc, StorageClass: &storagev1.StorageClass{}})
	}
	expect := func(when string, want ...pendingClaim) {
		t.Helper()
		if got := p.pending.list(p.unbound(t.Context())); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("before")
	before := counter.Value(t, "listener_operator_provisioning_errors_total")
	provision()
	provision()
	expect("without the class", pendingClaim{client.ObjectKeyFromObject(w.pvc), "ClassNotFound"})
	if n := counter.Value(t, "listener_operator_provisioning_errors_total") - before; n != 0 {
		t.Errorf("a claim that waits is counted as %v errors", n)
	}
	if err := p.Client.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	provision()
	expect("with the class")
	if err := p.Client.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	provision()
	if err := p.Client.Delete(t.Context(), w.pvc); err != nil {
		t.Fatal(err)
	}
	expect("after the claim was deleted")
}

// Kubernetes deletes events after an hour.
func TestEventOfAWaitingClaimIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.class = nil
		p, _ := w.provisioner(t, interceptor.Funcs{})
		_, _, _ = p.Provision(t.Context(), controller.ProvisionOptions{PVC: w.pvc, StorageClass: &storagev1.StorageClass{}})
		ctx, cancel := context.WithCancel(t.Context())
		repeated := 0
		go p.repeat(ctx, func(*corev1.PersistentVolumeClaim) { repeated++ })
		time.Sleep(3*time.Hour + time.Minute)
		cancel()
		synctest.Wait()
		if repeated != 6 {
			t.Errorf("repeated %d times in three hours", repeated)
		}
	})
}

func TestClassBasedClaimWaitsForAPodWithoutAWarning(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   bool
	}{
		"with a Pod":    {func(*world) {}, true},
		"without a Pod": {func(w *world) { w.pod = nil }, false},
		"Pod that is deleted": {func(w *world) {
			w.pod.DeletionTimestamp, w.pod.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
		}, false},
		"unknown class":            {func(w *world) { w.pod, w.class = nil, nil }, true},
		"claim of a Listener":      {func(w *world) { w.pod = nil; w.byName(nil) }, true},
		"claim without annotation": {func(w *world) { w.pod = nil; delete(w.pvc.Annotations, names.AnnotationListenerClass) }, true},
		"claim of another driver":  {func(w *world) { w.pod = nil; w.pvc.Annotations[names.AnnotationProvisioner] = "other.example" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.pvc.Annotations[names.AnnotationProvisioner] = names.Driver
			tc.change(w)
			p, recorded := w.provisioner(t, interceptor.Funcs{})
			if got := p.ShouldProvision(t.Context(), w.pvc); got != tc.want {
				t.Errorf("should provision: %v, want %v", got, tc.want)
			}
			var event string
			select {
			case event = <-recorded:
			default:
			}
			if got := strings.HasPrefix(event, "Normal WaitForFirstConsumer waiting for the first Pod"); got == tc.want {
				t.Errorf("event %q", event)
			}
		})
	}
}

// A StatefulSet creates its claims a moment before its Pods.
func TestANewClaimWaitsForAPodWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pod = nil
		w.pvc.Annotations[names.AnnotationProvisioner], w.pvc.CreationTimestamp = names.Driver, metav1.Now()
		p, recorded := w.provisioner(t, interceptor.Funcs{})
		var requeued []types.NamespacedName
		p.requeue = func(claim types.NamespacedName) { requeued = append(requeued, claim) }
		for range 2 {
			if p.ShouldProvision(t.Context(), w.pvc) || len(recorded) > 0 {
				t.Errorf("it is to be provisioned, or has an event: %d", len(recorded))
			}
		}
		time.Sleep(shortWait)
		synctest.Wait()
		if diff := cmp.Diff([]types.NamespacedName{client.ObjectKeyFromObject(w.pvc)}, requeued); diff != "" {
			t.Errorf("requeued claims (-want +got):\n%s", diff)
		}
		if p.ShouldProvision(t.Context(), w.pvc) || len(recorded) != 1 {
			t.Errorf("it is to be provisioned, or has another number of events than one: %d", len(recorded))
		}
	})
}

func TestProvisionReturnsAFailedWrite(t *testing.T) {
	broken := errors.New("the API server is unavailable")
	w := newWorld()
	w.listenerOf("earlier")
	before := counter.Value(t, "listener_operator_provisioning_errors_total")
	_, _, recorded, err := w.provision(t, fakeclient.FailWrite(0, broken))
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the cause, so that the library retries", err)
	}
	if n := counter.Value(t, "listener_operator_provisioning_errors_total") - before; n != 1 {
		t.Errorf("%v errors are counted", n)
	}
	if len(recorded) > 0 {
		t.Errorf("unexpected event: %s", <-recorded)
	}
}

func TestWaitingClaimsAreRequeued(t *testing.T) {
	claimFor := func(name, key, value string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Annotations: map[string]string{key: value}}}
	}
	bound := claimFor("bound", names.AnnotationListenerClass, "public")
	bound.Spec.VolumeName, bound.Spec.StorageClassName = "pvc-1", ptr.To("listeners")
	ofStorageClass := claimFor("of-storage-class", names.AnnotationListenerName, "none")
	ofStorageClass.Spec.StorageClassName = ptr.To("listeners")
	listener := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")},
	}
	pod := newWorld().pod
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "by-class"
	c := fakeclient.New(t, interceptor.Funcs{}, listener, pod, bound, ofStorageClass,
		claimFor("by-class", names.AnnotationListenerClass, "public"),
		claimFor("by-name", names.AnnotationListenerName, "web"),
		claimFor("other", names.AnnotationListenerClass, "other"),
	)
	both, named := []string{"by-class", "by-name"}, []string{"by-name"}
	for name, tc := range map[string]struct {
		object   client.Object
		toClaims func(waitingClaims) mapFunc
		// The claims that are requeued when the object is added, updated and deleted.
		added, updated, deleted []string
	}{
		"of a class":    {&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "public"}}, func(w waitingClaims) mapFunc { return w.classToClaims }, both, both, both},
		"of a Listener": {listener, func(w waitingClaims) mapFunc { return w.listenerToClaims }, named, named, named},
		"of a StorageClass": {
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "listeners"}, Provisioner: names.Driver},
			func(w waitingClaims) mapFunc { return w.storageClassToClaims }, []string{"of-storage-class"}, nil, nil,
		},
		"of a StorageClass of another driver": {
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "listeners"}, Provisioner: "other.example"},
			func(w waitingClaims) mapFunc { return w.storageClassToClaims }, nil, nil, nil,
		},
		// Its status changes often, and no claim depends on that.
		"of a Pod": {pod, func(w waitingClaims) mapFunc { return w.podToClaims }, []string{"by-class"}, nil, nil},
		"of a Listener with its name": {
			&listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "by-class", Namespace: "shop"}},
			func(w waitingClaims) mapFunc { return w.listenerToClaims }, nil, nil, []string{"by-class"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			w := waitingClaims{reader: fakeclient.Cached(c, "operators"), requeue: func(pvc *corev1.PersistentVolumeClaim) { got = append(got, pvc.Name) }}
			handler := w.handler(t.Context(), tc.toClaims(w))
			handler.OnAdd(tc.object, true)
			if len(got) > 0 {
				t.Errorf("requeued %v for the initial list", got)
			}
			for _, change := range []struct {
				what string
				tell func()
				want []string
			}{
				{"added", func() { handler.OnAdd(tc.object, false) }, tc.added},
				{"updated", func() { handler.OnUpdate(tc.object, tc.object) }, tc.updated},
				{"deleted", func() { handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: tc.object}) }, tc.deleted},
			} {
				got = nil
				change.tell()
				if diff := cmp.Diff(change.want, got); diff != "" {
					t.Errorf("requeued when it is %s (-want +got):\n%s", change.what, diff)
				}
			}
		})
	}
}

func TestOnlyClaimsThatNeedAVolumeOfTheDriverWillBeAnnotated(t *testing.T) {
	classes := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for name, class := range map[string]storagev1.StorageClass{
		"immediate": {Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)},
		"default":   {Provisioner: names.Driver},
		"late":      {Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
		"other":     {Provisioner: "disks.example.com"},
	} {
		class.Name = name
		if err := classes.Add(&class); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"binding mode Immediate":            {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("immediate") }, true},
		"default binding mode":              {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("default") }, true},
		"binding mode WaitForFirstConsumer": {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("late") }, false},
		"another driver":                    {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("other") }, false},
		"unknown StorageClass":              {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("unknown") }, false},
		"no StorageClass":                   {func(*corev1.PersistentVolumeClaim) {}, false},
		"a volume": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.VolumeName = ptr.To("immediate"), "pv"
		}, false},
		"deletion": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.DeletionTimestamp = ptr.To("immediate"), ptr.To(metav1.Now())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			claims := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{"name": func(o any) ([]string, error) {
				return []string{o.(*corev1.PersistentVolumeClaim).Name}, nil
			}})
			cached := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "listener"}}
			tc.change(cached)
			if err := claims.Add(cached); err != nil {
				t.Fatal(err)
			}
			objects, err := claimIndexer{claims, classes}.ByIndex("name", "listener")
			if err != nil || len(objects) != 1 {
				t.Fatalf("objects %v, error %v", objects, err)
			}
			if got := objects[0].(*corev1.PersistentVolumeClaim).Annotations[names.AnnotationProvisioner] == names.Driver; got != tc.want {
				t.Errorf("annotated: %t, want %t", got, tc.want)
			}
			if len(cached.Annotations) > 0 {
				t.Error("the cached claim was changed")
			}
		})
	}
}

// The library would retry such a claim for ever.
func TestClaimOfAStorageClassThatDoesNotExistIsNotProvisioned(t *testing.T) {
	w := newWorld()
	w.pvc.Annotations[names.AnnotationProvisioner] = names.Driver
	w.pvc.Spec.StorageClassName = ptr.To("absent")
	p, recorded := w.provisioner(t, interceptor.Funcs{})
	if p.ShouldProvision(t.Context(), w.pvc) || len(recorded) > 0 {
		t.Errorf("the claim is provisioned, or has %d events", len(recorded))
	}
}
