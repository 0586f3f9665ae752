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

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// world is the shared one while the claim is provisioned, with other objects.
type world struct {
	*objects.World
	other []client.Object
	// api has the objects, once there is a Reconciler.
	api client.Client
}

func newWorld() *world {
	w := &world{World: objects.NewWorld()}
	w.Node, w.Volume, w.Listener = nil, nil, nil
	w.Class.Spec.PinnedNodePorts = true
	w.Claim.Spec.VolumeName, w.Claim.Labels, w.Claim.Annotations["note"] = "", nil, "kept"
	w.Pod.Spec.NodeName = ""
	return w
}

// byName makes the claim name the Listener web, which exists unless listener is nil.
func (w *world) byName(listener *listenersv1alpha1.Listener) {
	w.Claim.Annotations = map[string]string{names.AnnotationListenerName: "web"}
	if listener != nil {
		listener.Name, listener.Namespace = "web", "shop"
		w.other = append(w.other, listener)
	}
}

// listenerOf adds a Listener that was created for a claim of this name with this uid.
func (w *world) listenerOf(uid types.UID) {
	w.other = append(w.other, &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.Claim.Name, Namespace: w.Claim.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: w.Claim.Name, UID: uid}},
		},
		Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")},
	})
}

// reconciler returns a Reconciler in this world, and its events.
func (w *world) reconciler(t *testing.T, intercept interceptor.Funcs) (*Reconciler, chan string) {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver}
	c := fakeclient.New(t, intercept, w.Objects(append(w.other, class)...)...)
	w.api = c
	recorder := events.NewFakeRecorder(10)
	return &Reconciler{
		Client: fakeclient.Cached(c, "operators"), Events: recorder, Applier: apply.New(c, names.FieldManagerVolume), Clock: clock.RealClock{}, created: cache.NewExpiring(),
	}, recorder.Events
}

// reconcile reconciles the claim.
func (w *world) reconcile(t *testing.T, r *Reconciler) (reconcile.Result, error) {
	t.Helper()
	return r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.Claim)})
}

// provision reconciles the claim, and returns its volume, or nil if it has none.
func (w *world) provision(t *testing.T, intercept interceptor.Funcs) (*corev1.PersistentVolume, client.Client, chan string, error) {
	t.Helper()
	r, recorded := w.reconciler(t, intercept)
	_, err := w.reconcile(t, r)
	pv, getErr := lookup.Get(t.Context(), w.api, client.ObjectKey{Name: claim.VolumeName(w.Claim)}, &corev1.PersistentVolume{})
	if getErr != nil {
		t.Fatal(getErr)
	}
	return pv, r.Client, recorded, err
}

// A volume is pinned when its Pod is bound to a node, also if the scheduler has selected a node for the claim.
func TestProvisionedVolume(t *testing.T) {
	w := newWorld()
	pv, c, _, err := w.provision(t, interceptor.Funcs{})
	if err != nil || pv == nil {
		t.Fatal(pv, err)
	}
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-claim-uid", ResourceVersion: "1",
			Labels: map[string]string{
				"listeners.stackable.tech/listener-namespace": "shop", "listeners.stackable.tech/listener-name": "listener-web-0",
			},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "listeners.stackable.tech"},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")},
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "listener-web-0", UID: "claim-uid"},
			StorageClassName:              "listeners.stackable.tech",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			VolumeMode:                    ptr.To(corev1.PersistentVolumeFilesystem),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "listeners.stackable.tech", VolumeHandle: "pvc-claim-uid",
				VolumeAttributes: map[string]string{"listeners.stackable.tech/listener-class": "public", "note": "kept"},
			}},
		},
	}
	check.Equal(t, "volume", want, pv)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Claim), &listenersv1alpha1.Listener{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the Listener, which is not created yet: %v", err)
	}
}

// A Listener that a backup brought back has its annotation, but neither owners nor a status.
func TestListenerThatWasRestoredOrKeptBecomesThatOfTheClaim(t *testing.T) {
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		class  string
	}{
		"restored":                  {nil, "public"},
		"restored with a new class": {nil, "other"},
		"kept":                      {[]metav1.OwnerReference{set}, "public"},
		"kept, with a new class":    {[]metav1.OwnerReference{set}, "other"},
		"kept, before the garbage collector removes the earlier claim": {
			[]metav1.OwnerReference{set, {APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "listener-web-0", UID: "earlier"}}, "other",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.listenerOf("earlier")
			listener := w.other[0].(*listenersv1alpha1.Listener)
			listener.UID, listener.OwnerReferences, listener.Spec.ClassName = "listener-uid", tc.owners, &tc.class
			listener.Annotations = map[string]string{names.AnnotationClaim: listener.Name}
			pv, c, _, err := w.provision(t, interceptor.Funcs{})
			if err != nil || pv == nil {
				t.Fatal(pv, err)
			}
			check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(w.Claim), listener))
			if listener.UID != "listener-uid" || !claim.HasOwner(listener, w.Claim.UID) || listener.Class() != "public" {
				t.Errorf("the Listener is %+v, want that of the claim", listener)
			}
		})
	}
}

// A Pod must not start with the addresses of a class that its claim does not name any more.
func TestListenerOfAnEarlierClaimIsNotUsedIfItNamedAnotherClass(t *testing.T) {
	for name, tc := range map[string]struct {
		owner metav1.OwnerReference
		class string
		kept  bool
	}{
		"earlier claim of another class":  {metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "listener-web-0", UID: "earlier"}, "other", false},
		"earlier volume of another class": {metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-earlier", UID: "earlier"}, "other", false},
		"earlier claim of the class":      {metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "listener-web-0", UID: "earlier"}, "public", true},
		"this claim":                      {metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "listener-web-0", UID: "claim-uid"}, "other", true},
		"the volume of this claim":        {metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-claim-uid", UID: "restored"}, "other", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Claim.CreationTimestamp = metav1.Now()
			w.listenerOf(tc.owner.UID)
			listener := w.other[0].(*listenersv1alpha1.Listener)
			listener.OwnerReferences, listener.Spec.ClassName, listener.UID = []metav1.OwnerReference{tc.owner}, &tc.class, "listener-uid"
			r, recorded := w.reconciler(t, interceptor.Funcs{})
			result, err := w.reconcile(t, r)
			if err != nil || len(recorded) > 0 || (result.RequeueAfter > 0) == tc.kept {
				t.Errorf("result %+v, error %v, %d events", result, err, len(recorded))
			}
			has := func(o client.Object, name string) bool {
				return w.api.Get(t.Context(), client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, o) == nil
			}
			if got := has(&corev1.PersistentVolume{}, "pvc-claim-uid"); got != tc.kept {
				t.Errorf("the volume exists while the Listener does: %t", got)
			}
			if got := has(listener, listener.Name) && claim.HasOwner(listener, "claim-uid"); got != tc.kept {
				t.Errorf("the Listener is that of the claim: %t", got)
			}
			if err := w.api.Delete(t.Context(), listener); err != nil { // as the garbage collector does
				t.Fatal(err)
			}
			if _, err := w.reconcile(t, r); err != nil || !has(&corev1.PersistentVolume{}, "pvc-claim-uid") {
				t.Errorf("no volume after the Listener is deleted: %v", err)
			}
		})
	}
}

// The Service of a Listener with addresses still works without its class.
func TestClaimIsProvisioned(t *testing.T) {
	without := func(status listenersv1alpha1.ListenerStatus) func(*world) {
		return func(w *world) {
			w.Class = nil
			w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("gone")}, Status: &status})
		}
	}
	for name, change := range map[string]func(*world){
		"although its class no longer allows the namespace": func(w *world) {
			w.Class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{}
			w.listenerOf(w.Claim.UID)
		},
		"without a class if its Listener has addresses": without(listenersv1alpha1.ListenerStatus{
			IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP}},
		}),
		"without a class if its Listener has node ports": without(listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": 30080}}),
		"with ports of overrides alone": func(w *world) {
			w.Pod.Spec.Containers[0].Ports = nil
			w.Class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"name":"http","port":80}]}}`)
		},
	} {
		w := newWorld()
		change(w)
		if pv, _, _, err := w.provision(t, interceptor.Funcs{}); err != nil || pv == nil {
			t.Errorf("%s: volume %v, error %v", name, pv, err)
		}
	}
}

// The Service of such a Listener has another name.
func TestAClaimNeedsNoNameOfAService(t *testing.T) {
	long := strings.Repeat("a", 70)
	for name, label := range map[string]string{"7days-data": "7days-data", "web.one": "web.one", long: names.Service(long)} {
		w := newWorld()
		w.Claim.Name, w.Pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name, name
		pv, _, _, err := w.provision(t, interceptor.Funcs{})
		if err != nil || pv == nil {
			t.Fatalf("%s: volume %v, error %v", name, pv, err)
		}
		if got := pv.Labels[names.LabelListenerName]; got != label || pv.Spec.ClaimRef.Name != name {
			t.Errorf("the volume of claim %s has Listener %q, want %q", pv.Spec.ClaimRef.Name, got, label)
		}
	}
}

func TestNamedListenerIsUsedUnchanged(t *testing.T) {
	w := newWorld()
	w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")}})
	pv, c, _, err := w.provision(t, interceptor.Funcs{})
	check.Must(t, err)
	if got := pv.Labels[names.LabelListenerName]; got != "web" {
		t.Errorf("the volume has Listener %q", got)
	}
	var created listenersv1alpha1.Listener
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Claim), &created); !apierrors.IsNotFound(err) {
		t.Errorf("a Listener was created for a claim that names one: %v", err)
	}
}

func TestClaimThatCannotBeProvisionedGetsAnEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		reason string
		text   string
	}{
		"neither annotation": {func(w *world) { w.Claim.Annotations = nil }, "InvalidClaim", "neither"},
		"a block device":     {func(w *world) { w.Claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }, "InvalidClaim", "spec.volumeMode is Block"},
		"both annotations":   {func(w *world) { w.Claim.Annotations[names.AnnotationListenerName] = "web" }, "InvalidClaim", "both"},
		"a port that the Pod does not have": {
			func(w *world) { w.Claim.Annotations[names.AnnotationPorts] = "http, https" }, "InvalidClaim", `lists "https", but the containers of Pod web-0 have only the ports http`,
		},
		"more ports than the class exposes": {func(w *world) {
			w.Pod.Spec.Containers[0].Ports = nil
			for i := range int32(65) {
				port := corev1.ContainerPort{ContainerPort: i + 1}
				w.Pod.Spec.Containers[0].Ports = append(w.Pod.Spec.Containers[0].Ports, port)
			}
		}, "InvalidPorts", "has 65 ports, and ListenerClass public allows 64"},
		"ports of a named Listener": {func(w *world) {
			w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")}})
			w.Claim.Annotations[names.AnnotationPorts] = "http"
		}, "InvalidClaim", "list the ports in spec.ports of the Listener"},
		"annotation that nearly fits": {func(w *world) {
			w.Claim.Annotations = map[string]string{"listener.stackable.tech/listener-class": "public"}
		}, "InvalidClaim", "the annotation listener.stackable.tech/listener-class is unknown: did you mean listeners.stackable.tech/listener-class?"},
		"Listener with a namespace": {func(w *world) {
			w.Claim.Annotations = map[string]string{names.AnnotationListenerName: "shop/web"}
		}, "InvalidName", "must be the name alone"},
		"unknown class":          {func(w *world) { w.Class = nil }, "ClassNotFound", `"public"`},
		"similar class":          {func(w *world) { w.Claim.Annotations[names.AnnotationListenerClass] = "Publik" }, "ClassNotFound", "; did you mean public?"},
		"class with a long name": {func(w *world) { w.Claim.Annotations[names.AnnotationListenerClass] = strings.Repeat("a", 5000) }, "ClassNotFound", "aaa"},
		"unknown Listener":       {func(w *world) { w.byName(nil) }, "ListenerNotFound", "shop/web"},
		"Listener without class": {func(w *world) { w.byName(&listenersv1alpha1.Listener{}) }, "ClassNotSet", "shop/web"},
		"Listener of an unknown class": {func(w *world) {
			w.byName(&listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("gone")}})
		}, "ClassNotFound", `"gone"`},
		"class that does not allow the namespace": {func(w *world) {
			w.Class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"other"}}
		}, "NamespaceNotAllowed", "ListenerClass public does not allow namespace shop; name another class"},
		"no ports, and overrides of the class with none": {func(w *world) {
			w.Pod.Spec.Containers[0].Ports = nil
			w.Class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[],"sessionAffinity":"ClientIP"}}`)
		}, "NoPorts", "web-0"},
		"no ports": {func(w *world) { w.Pod.Spec.Containers[0].Ports = nil }, "NoPorts", "web-0"},
		"what is no name": {func(w *world) {
			w.Claim.Annotations = map[string]string{names.AnnotationListenerName: "Web"}
		}, "InvalidName", `"Web", which no Listener can have as its name`},
		"Listener of a user with the name of the claim": {func(w *world) {
			w.other = append(w.other, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "listener-web-0", Namespace: "shop"}})
		}, "ForeignListener", "shop/listener-web-0"},
		"Listener of an earlier claim of another class, which stays": {func(w *world) {
			w.listenerOf("earlier")
			w.other[0].(*listenersv1alpha1.Listener).Spec.ClassName = ptr.To("other")
		}, "ListenerTerminating", "which named ListenerClass other"},
		"restored Listener, and a class that does not allow the namespace": {func(w *world) {
			w.listenerOf("earlier")
			listener := w.other[0].(*listenersv1alpha1.Listener)
			listener.OwnerReferences, listener.Spec.ClassName = nil, ptr.To("other")
			listener.Annotations = map[string]string{names.AnnotationClaim: listener.Name}
			w.Class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"other"}}
		}, "NamespaceNotAllowed", "ListenerClass public does not allow namespace shop; name another class"},
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
			if err != nil {
				t.Errorf("error %v, after which the claim is retried", err)
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
	w.Class = nil
	for i := range maxPods + 5 { // a Deployment that mounts one claim
		pod := w.Pod.DeepCopy()
		pod.Name, pod.UID = fmt.Sprintf("web-%d", i+1), types.UID(fmt.Sprint("uid-", i+1))
		w.other = append(w.other, pod)
	}
	r, _ := w.reconciler(t, interceptor.Funcs{})
	var recorded eventsByKind
	r.Events = &recorded
	if _, err := w.reconcile(t, r); err != nil {
		t.Fatal(err)
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

func TestWaitingClaimsAreCountedByReason(t *testing.T) {
	w := newWorld()
	class := w.Class
	w.Class = nil
	r, _ := w.reconciler(t, interceptor.Funcs{})
	waiting := func(reason string) float64 {
		var m dto.Metric
		check.Must(t, waitingClaims.WithLabelValues(reason).Write(&m))
		return m.GetGauge().GetValue()
	}
	before := waiting("ClassNotFound") // of other tests
	expect := func(when string, want float64) {
		t.Helper()
		if _, err := w.reconcile(t, r); err != nil {
			t.Fatal(err)
		}
		if got := waiting("ClassNotFound") - before; got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("without the class", 1)
	expect("without the class, again", 1)
	check.Must(t, w.api.Create(t.Context(), class))
	expect("with the class", 0)
	if err := errors.Join(w.api.Delete(t.Context(), class), w.api.Delete(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-claim-uid"}})); err != nil {
		t.Fatal(err)
	}
	expect("without the class and the volume", 1)
	check.Must(t, w.api.Delete(t.Context(), w.Claim))
	expect("after the claim was deleted", 0)
}

// Kubernetes deletes events after an hour. The scheduler does not say what a claim waits for, so each Pod has the
// event.
func TestEventOfAWaitingClaimIsRepeatedAndForEachPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Class = nil
		r, recorded := w.reconciler(t, interceptor.Funcs{})
		for i, step := range []struct {
			after time.Duration
			// pods is the number of Pods, and events is the number of new events.
			pods, events int
		}{
			{0, 1, 2}, {time.Second, 1, 0}, {time.Second, 2, 3}, {message.Repeat, 2, 3},
		} {
			time.Sleep(step.after)
			if step.pods == 2 {
				second := w.Pod.DeepCopy()
				second.Name, second.UID, second.ResourceVersion = "web-1", "second", ""
				check.Must(t, client.IgnoreAlreadyExists(w.api.Create(t.Context(), second)))
			}
			result, err := w.reconcile(t, r)
			if err != nil || result.RequeueAfter != message.Repeat {
				t.Errorf("step %d: %v, error %v", i, result, err)
			}
			if got := len(recorded); got != step.events {
				t.Errorf("step %d: %d events, want %d", i, got, step.events)
			}
			for len(recorded) > 0 {
				<-recorded
			}
		}
	})
}

// A StatefulSet creates its claims a moment before its Pods.
func TestClassBasedClaimWaitsForAPodWithoutAWarning(t *testing.T) {
	for name, change := range map[string]func(*world){
		"without a Pod": func(w *world) { w.Pod = nil },
		"Pod that is deleted": func(w *world) {
			w.Pod.DeletionTimestamp, w.Pod.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				change(w)
				w.Claim.CreationTimestamp = metav1.Now()
				r, recorded := w.reconciler(t, interceptor.Funcs{})
				result, err := w.reconcile(t, r)
				if err != nil || result.RequeueAfter != shortWait || len(recorded) > 0 {
					t.Errorf("at first: %v, error %v, %d events", result, err, len(recorded))
				}
				time.Sleep(shortWait)
				if _, err := w.reconcile(t, r); err != nil || len(recorded) != 1 {
					t.Fatalf("later: error %v, %d events, want one", err, len(recorded))
				}
				if event := <-recorded; !strings.HasPrefix(event, "Normal WaitForFirstConsumer waiting for the first Pod") {
					t.Errorf("event %q", event)
				}
			})
		})
	}
}

func TestAFailedWriteIsReportedAndRetried(t *testing.T) {
	broken := errors.New("the API server is unavailable")
	for name, prepare := range map[string]func(*world){
		"of the volume":   func(*world) {},
		"of the Listener": func(w *world) { w.listenerOf("earlier") },
	} {
		w := newWorld()
		prepare(w)
		_, _, recorded, err := w.provision(t, fakeclient.FailWrite(0, broken))
		if !errors.Is(err, broken) {
			t.Errorf("%s: error %v, want the cause", name, err)
		}
		if len(recorded) != 1 {
			t.Errorf("%s: %d events, want one", name, len(recorded))
			continue
		}
		if event := <-recorded; !strings.HasPrefix(event, "Warning ProvisioningFailed ") || !strings.Contains(event, broken.Error()) {
			t.Errorf("%s: event %q", name, event)
		}
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
	pod := newWorld().Pod
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "by-class"
	c := fakeclient.New(t, interceptor.Funcs{}, listener, pod, bound, ofStorageClass,
		claimFor("by-class", names.AnnotationListenerClass, "public"),
		claimFor("by-name", names.AnnotationListenerName, "web"),
		claimFor("other", names.AnnotationListenerClass, "other"),
	)
	r := &Reconciler{Client: fakeclient.Cached(c, "operators")}
	for name, tc := range map[string]struct {
		object   client.Object
		toClaims handler.MapFunc
		want     []string
	}{
		"class":                    {&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "public"}}, r.classToClaims, []string{"by-class", "by-name"}},
		"Listener":                 {listener, r.listenerToClaims, []string{"by-name"}},
		"namespace":                {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, r.namespaceToClaims, []string{"by-class", "by-name", "of-storage-class", "other"}},
		"StorageClass":             {&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "listeners"}, Provisioner: names.Driver}, r.storageClassToClaims, []string{"by-class", "by-name", "of-storage-class", "other"}},
		"volume":                   {volumeOf("by-class"), index.VolumeToClaim, []string{"by-class"}},
		"volume of another driver": {&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Name: "by-class"}}}, index.VolumeToClaim, nil},
	} {
		var got []string
		for _, request := range tc.toClaims(t.Context(), tc.object) {
			got = append(got, request.Name)
		}
		if slices.Sort(got); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// volumeOf returns the volume that is provisioned for a claim.
func volumeOf(name string) *corev1.PersistentVolume {
	return claim.Volume(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid"}}, name)
}

func TestOnlyClaimsThatNeedAVolumeOfTheDriverAreProvisioned(t *testing.T) {
	classes := []client.Object{}
	for name, class := range map[string]*storagev1.StorageClass{
		"immediate": {Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)},
		"late":      {Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
		"other":     {Provisioner: "disks.example.com"},
	} {
		class.Name = name
		classes = append(classes, class)
	}
	of := func(class string) func(*world) {
		return func(w *world) { w.Claim.Spec.StorageClassName = &class }
	}
	for name, tc := range map[string]struct {
		change func(*world)
		want   bool
	}{
		"binding mode Immediate":            {of("immediate"), true},
		"default binding mode":              {func(*world) {}, true},
		"binding mode WaitForFirstConsumer": {of("late"), false},
		"binding mode WaitForFirstConsumer, with a node": {func(w *world) {
			of("late")(w)
			w.Claim.Annotations["volume.kubernetes.io/selected-node"] = "node-1"
		}, true},
		"another driver": {of("other"), false},
		"another driver, and the annotation of this one": {func(w *world) {
			of("other")(w)
			w.Claim.Annotations[names.AnnotationProvisioner] = names.Driver
		}, false},
		"unknown StorageClass": {of("unknown"), false},
		"no StorageClass":      {func(w *world) { w.Claim.Spec.StorageClassName = nil }, false},
		"a volume":             {func(w *world) { w.Claim.Spec.VolumeName = "pv" }, false},
		"deletion": {func(w *world) {
			w.Claim.DeletionTimestamp, w.Claim.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
		}, false},
		"a namespace that is being deleted": {func(w *world) {
			w.other = append(w.other, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"test/keep"},
			}})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.other = slices.Clone(classes)
			tc.change(w)
			pv, _, recorded, err := w.provision(t, interceptor.Funcs{})
			if err != nil || (pv != nil) != tc.want || len(recorded) > 0 {
				t.Errorf("volume %v, error %v, %d events, want a volume: %t", pv, err, len(recorded), tc.want)
			}
		})
	}
}

func TestReleasedVolumesAreDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolume)
		// deleted and finalizer are whether the volume is deleted, and has the finalizer of Stackable's listener
		// operator.
		deleted, finalizer bool
	}{
		"bound":    {change: func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound }},
		"released": {change: func(*corev1.PersistentVolume) {}, deleted: true},
		"released, to be retained": {change: func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}},
		"bound, with the finalizer": {change: func(pv *corev1.PersistentVolume) {
			pv.Status.Phase, pv.Finalizers = corev1.VolumeBound, []string{"external-provisioner.volume.kubernetes.io/finalizer", "test/keep"}
		}},
		"of another provisioner": {change: func(pv *corev1.PersistentVolume) {
			pv.Annotations["pv.kubernetes.io/provisioned-by"] = "other.example"
			pv.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
		}, finalizer: true},
		"of another driver": {change: func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.Driver = "other.example"
			pv.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
		}, finalizer: true},
	} {
		t.Run(name, func(t *testing.T) {
			pv := volumeOf("web")
			pv.Status.Phase = corev1.VolumeReleased
			tc.change(pv)
			c := fakeclient.New(t, interceptor.Funcs{}, pv)
			check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(pv), pv))
			if concernsDeleter(pv) {
				if _, err := (deleter{c}).Reconcile(t.Context(), pv); err != nil {
					t.Fatal(err)
				}
			}
			after, err := lookup.Get(t.Context(), c, client.ObjectKeyFromObject(pv), &corev1.PersistentVolume{})
			if err != nil || (after == nil) != tc.deleted {
				t.Errorf("volume %v, error %v, want it deleted: %t", after, err, tc.deleted)
			}
			if after != nil && slices.Contains(after.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer") != tc.finalizer {
				t.Errorf("finalizers %v", after.Finalizers)
			}
		})
	}
}

// The claim changes while its volume is created: Kubernetes annotates it.
func TestAVolumeThatTheCacheLacksIsNotCreatedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, creates := newWorld(), 0
		r, _ := w.reconciler(t, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				creates++
				return c.Create(ctx, o, options...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if _, ok := o.(*corev1.PersistentVolume); ok {
					return apierrors.NewNotFound(corev1.Resource("persistentvolumes"), key.Name)
				}
				return c.Get(ctx, key, o, options...)
			},
		})
		for range 2 {
			if _, err := w.reconcile(t, r); err != nil {
				t.Fatal(err)
			}
		}
		if result, err := w.reconcile(t, r); err != nil || creates != 1 || result.RequeueAfter != cacheLag {
			t.Errorf("%d requests to create it, then %v, error %v", creates, result, err)
		}
		time.Sleep(cacheLag) // it may have been deleted by hand
		if _, err := w.reconcile(t, r); err != nil || creates != 2 {
			t.Errorf("%d requests to create it a moment later, error %v", creates, err)
		}
	})
}

// The cache may not show yet that a volume has to be retained.
func TestAVolumeThatWasChangedSinceIsNotDeleted(t *testing.T) {
	pv := volumeOf("web")
	pv.Status.Phase = corev1.VolumeReleased
	c := fakeclient.New(t, interceptor.Funcs{}, pv)
	stale := &corev1.PersistentVolume{}
	check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(pv), stale))
	retained := stale.DeepCopy()
	retained.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	check.Must(t, c.Update(t.Context(), retained))
	if _, err := (deleter{c}).Reconcile(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pv), pv); err != nil {
		t.Errorf("the volume: %v", err)
	}
}

// Velero restores claims and Pods before custom resources.
func TestAClaimFromABackupWaitsAMinuteForItsListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Claim.CreationTimestamp = metav1.Now()
		w.Claim.Labels = map[string]string{"velero.io/restore-name": "monday"}
		r, recorded := w.reconciler(t, interceptor.Funcs{})
		provisioned := func() bool {
			return r.Client.Get(t.Context(), client.ObjectKey{Name: claim.VolumeName(w.Claim)}, &corev1.PersistentVolume{}) == nil
		}
		result, err := w.reconcile(t, r)
		if err != nil || result.RequeueAfter != time.Minute || provisioned() {
			t.Errorf("the result is %+v, error %v, provisioned: %v", result, err, provisioned())
		}
		if event := <-recorded; !strings.HasPrefix(event, "Normal WaitingForRestore the claim comes from a backup") {
			t.Errorf("the event is %q", event)
		}
		time.Sleep(result.RequeueAfter)
		if result, err := w.reconcile(t, r); err != nil || result.RequeueAfter != 0 || !provisioned() {
			t.Errorf("after a minute, the result is %+v, error %v, provisioned: %v", result, err, provisioned())
		}
	})
}
