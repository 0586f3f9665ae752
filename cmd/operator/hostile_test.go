package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// hostileNames are strings that the API server accepts as a value that names another object. No client can send a
// request for some of them: they are no path segments of a URL.
var hostileNames = map[string]string{
	"percent":   "x%2f",
	"path":      "../../secrets",
	"slash":     "a/b",
	"dot":       "..",
	"subdomain": "a.b",
	"digit":     "0-web",
	"upper":     "Web",
	"blank":     " ",
	"break":     "a\nb",
	"long":      strings.Repeat("x", 64),
	"endless":   strings.Repeat("x", 4096),
	"unicode":   "wéb",
}

// hostileCase is an object that a user has written, and what shows that the operator has handled it for good.
type hostileCase struct {
	object client.Object
	// handled returns "" when the operator has handled the object.
	handled func(context.Context, client.Object) string
}

// TestNamesThatCannotBeUsedCauseNoErrors creates objects with names and references that no other object can have, in
// every field that a user can write and the operator reads. Each is reported or removed at the first attempt: an error
// would be retried for ever.
func TestNamesThatCannotBeUsedCauseNoErrors(t *testing.T) {
	h := newHostile(t)
	before := h.errors()
	cases := h.cases()
	for name, tc := range cases {
		if err := h.Create(t.Context(), tc.object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, tc := range cases {
		NewWithT(t).Eventually(func() string { return tc.handled(t.Context(), tc.object) }).
			WithTimeout(apiserver.Timeout).WithPolling(50*time.Millisecond).Should(BeEmpty(), name)
	}
	if after := h.errors(); after != before {
		t.Errorf("the operator counts %v errors in addition, each of which it retries for ever; see the log", after-before)
	}
	h.checkLabels()
	var events eventsv1.EventList
	check.Must(t, h.List(t.Context(), &events, client.InNamespace(h.namespace)))
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "ProvisioningFailed" {
			t.Errorf("the provisioner retries claim %s for ever: %s", e.Regarding.Name, e.Note)
		}
	}
}

// hostile runs the operator in a namespace, beside what Kubernetes' own controllers do.
type hostile struct {
	*mover
	class string
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	m := newMover(t, nodePortClass())
	return &hostile{m, m.named("ports")}
}

// errors returns how many reconciles of all controllers have ended with an error.
func (h *hostile) errors() float64 {
	h.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	check.Must(h.T, err)
	var sum float64
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// checkLabels fails the test if a label of any metric has a value that a user has chosen, each of which would be a
// series.
func (h *hostile) checkLabels() {
	h.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	check.Must(h.T, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				// The names of the hostile objects contain the name of their namespace, or a hostile name.
				for _, name := range hostileNames {
					if label.GetValue() == name || strings.Contains(label.GetValue(), h.namespace) && label.GetValue() != h.class {
						h.Errorf("%s has the label %s=%.100q", f.GetName(), label.GetName(), label.GetValue())
					}
				}
			}
		}
	}
}

func (h *hostile) cases() map[string]hostileCase {
	cases := map[string]hostileCase{}
	for kind, name := range hostileNames {
		cases["claim of a Listener named "+kind] = hostileCase{h.claim("named-"+kind, names.AnnotationListenerName, name), h.hasWarning}
		cases["claim of a class named "+kind] = hostileCase{h.claim("classed-"+kind, names.AnnotationListenerClass, name), h.hasWarning}
		cases["Listener of a class named "+kind] = hostileCase{h.listener("of-"+kind, name), h.isNotAccepted}
		cases["PodListeners of a Pod named "+kind] = hostileCase{h.podListeners("owned-"+kind, metav1.OwnerReference{
			APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID("uid-" + kind),
		}), h.isDeleted}
		cases["PodListeners of a "+kind] = hostileCase{h.podListeners("kind-"+kind, metav1.OwnerReference{
			APIVersion: "v1", Kind: name, Name: "x", UID: types.UID("kind-" + kind),
		}), h.isDeleted}
		cases["selector of a Listener with label "+kind] = hostileCase{h.selecting("selecting-"+kind, name), h.isNotAcceptedOrHasService}
		cases["released claim at time "+kind] = hostileCase{h.classed("releasing-"+kind, names.AnnotationRelease, name), h.isBound}
		handled := h.hasWarning
		if kind == "blank" { // as without the annotation
			handled = h.isBound
		}
		cases["claim of a port named "+kind] = hostileCase{h.classed("ported-"+kind, names.AnnotationPorts, name), handled}
		cases["mount of a volume that names Listener "+kind] = hostileCase{h.mounted("mounted-"+kind, name), h.hasWarning}
	}
	for _, name := range []string{"a.claim", "0-claim", strings.Repeat("y", 64), strings.Repeat("z", 253)} { // no Service has such a name
		cases["claim named "+name] = hostileCase{h.claim(name, names.AnnotationListenerClass, h.class), h.isBound}
	}
	for _, name := range []string{"a.listener", "0-listener", strings.Repeat("v", 64), strings.Repeat("w", 253)} {
		cases["Listener named "+name] = hostileCase{h.listener(name, h.class), h.isNotAcceptedOrHasService}
	}
	return cases
}

// claim returns a claim with an annotation, and creates its Pod.
func (h *hostile) claim(name, annotation, value string) *corev1.PersistentVolumeClaim {
	h.Helper()
	check.Must(h.T, h.Create(h.Context(), h.mounting(name)))
	claim := claimOf(h.namespace, name)
	claim.Annotations[annotation] = value
	return claim
}

// classed returns a claim that could be provisioned without another annotation.
func (h *hostile) classed(name, annotation, value string) *corev1.PersistentVolumeClaim {
	h.Helper()
	claim := h.claim(name, annotation, value)
	claim.Annotations[names.AnnotationListenerClass] = h.class
	return claim
}

// mounted returns a Pod on a node that mounts a volume that was created by hand for a Listener of this name.
func (h *hostile) mounted(name, listener string) *corev1.Pod {
	h.Helper()
	claim := claimOf(h.namespace, name)
	claim.Spec.VolumeName = h.namespace + "-" + name
	check.Must(h.T, h.Create(h.Context(), claim))
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName, Annotations: map[string]string{names.AnnotationNode: listener}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, StorageClassName: names.Driver,
			ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: name, VolumeAttributes: map[string]string{names.AnnotationListenerName: listener},
			}},
		},
	}
	check.Must(h.T, h.Create(h.Context(), volume))
	return h.mounting(name)
}

func (h *hostile) listener(name, class string) *listenersv1alpha1.Listener {
	return &listenersv1alpha1.Listener{ObjectMeta: h.meta(name), Spec: listenersv1alpha1.ListenerSpec{
		ClassName: ptr.To(class), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}},
	}}
}

// selecting returns a Listener that selects Pods by a label, and overrides labels of its Service by it.
func (h *hostile) selecting(name, label string) *listenersv1alpha1.Listener {
	listener := h.listener(name, h.class)
	listener.Spec.ExtraPodSelectorLabels = map[string]string{label: label}
	listener.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":%q,"labels":{%q:%q}}}`, name, h.namespace, label, label)}}
	return listener
}

func (h *hostile) podListeners(name string, owner metav1.OwnerReference) *listenersv1alpha1.PodListeners {
	return &listenersv1alpha1.PodListeners{ObjectMeta: metav1.ObjectMeta{
		Namespace: h.namespace, Name: listenersv1alpha1.PodListenersName(types.UID(name)), OwnerReferences: []metav1.OwnerReference{owner},
		Finalizers: []string{"example.com/keep"},
	}, Spec: listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{}}}
}

// hasWarning: an event reports why the object cannot be used.
func (h *hostile) hasWarning(ctx context.Context, o client.Object) string {
	events := h.events(ctx, o)
	if slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, corev1.EventTypeWarning) }) {
		return ""
	}
	return fmt.Sprintf("no event of a warning, but %q", events)
}

// events returns the types and notes of the events of an object.
func (h *hostile) events(ctx context.Context, o client.Object) []string {
	var all eventsv1.EventList
	if err := h.List(ctx, &all, client.InNamespace(h.namespace)); err != nil {
		return []string{err.Error()}
	}
	var events []string
	for i := range all.Items {
		if e := &all.Items[i]; e.Regarding.UID == o.GetUID() {
			events = append(events, e.Type+" "+e.Note)
		}
	}
	return events
}

func (h *hostile) isDeleted(ctx context.Context, o client.Object) string {
	if err := h.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		return fmt.Sprintf("%s exists: %v", o.GetName(), err)
	}
	return ""
}

func (h *hostile) isNotAccepted(ctx context.Context, o client.Object) string {
	listener := o.(*listenersv1alpha1.Listener)
	if err := h.Get(ctx, client.ObjectKeyFromObject(o), listener); err != nil {
		return err.Error()
	}
	if listener.Status == nil || !meta.IsStatusConditionFalse(listener.Status.Conditions, listenersv1alpha1.ListenerAccepted) {
		return fmt.Sprintf("accepted: %+v", listener.Status)
	}
	return ""
}

// isNotAcceptedOrHasService: some labels are valid.
func (h *hostile) isNotAcceptedOrHasService(ctx context.Context, o client.Object) string {
	problem := h.isNotAccepted(ctx, o)
	if problem == "" || h.Get(ctx, names.ServiceKey(o.(*listenersv1alpha1.Listener)), &corev1.Service{}) == nil {
		return ""
	}
	return problem
}

func (h *hostile) isBound(ctx context.Context, o client.Object) string {
	claim := o.(*corev1.PersistentVolumeClaim)
	if err := h.Get(ctx, client.ObjectKeyFromObject(o), claim); err != nil {
		return err.Error()
	}
	if claim.Status.Phase == corev1.ClaimBound {
		return ""
	}
	var volume corev1.PersistentVolume
	err := h.Get(ctx, client.ObjectKey{Name: "pvc-" + string(claim.UID)}, &volume)
	return fmt.Sprintf("claim %+v %+v, volume %+v (%v), events %q", claim.ObjectMeta, claim.Status, volume.Spec, err, h.events(ctx, o))
}
