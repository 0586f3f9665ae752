package podlisteners_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// inline gives the Pod an inline volume in place of its claim, with these attributes.
func (w *world) inline(attributes map[string]string) {
	w.Pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", attributes)}
	w.Claim, w.Volume = nil, nil
}

// listenerOf returns the Listener of the Pod's inline volume, or nil.
func listenerOf(t *testing.T, c client.Client) *listenersv1alpha1.Listener {
	t.Helper()
	listener := &listenersv1alpha1.Listener{}
	err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-0-listener"}, listener)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestAnInlineVolumeHasTheAddressesOfTheListenerThatItNames(t *testing.T) {
	w := newWorld()
	w.inline(map[string]string{names.AnnotationListenerName: "web"})
	c, recorded := w.mustRun(t)
	want := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{
		"listener": {Scope: "Node", IngressAddresses: nodeAddr, ListenerName: "web"},
	}}
	if diff := cmp.Diff(want, published(t, c), withoutStart); diff != "" {
		t.Errorf("PodListeners (-want +got):\n%s", diff)
	}
	if len(recorded) > 0 {
		t.Errorf("unexpected event: %s", <-recorded)
	}
}

// The Listener exists before the Pod has a node, belongs to the Pod, and to the controller of the Pod if it is kept.
func TestAnInlineVolumeOfAClassHasAListener(t *testing.T) {
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}
	controller := set
	controller.Controller = ptr.To(true)
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: podUID}
	earlier := pod
	earlier.UID = "earlier"
	before := func(owners ...metav1.OwnerReference) func(*world) {
		return func(w *world) {
			w.Listener = &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web-0-listener", UID: "kept", OwnerReferences: owners,
				Annotations: map[string]string{names.AnnotationClaim: "web-0-listener"},
			}, Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")}}
		}
	}
	for name, tc := range map[string]struct {
		keep   string
		change func(*world)
		want   []metav1.OwnerReference
	}{
		"that ends with the Pod":                              {"", func(*world) {}, []metav1.OwnerReference{pod}},
		"that is not kept":                                    {"false", func(*world) {}, []metav1.OwnerReference{pod}},
		"that is kept":                                        {"true", func(*world) {}, []metav1.OwnerReference{pod, set}},
		"before the Pod has a node":                           {"", func(w *world) { w.Pod.Spec.NodeName = "" }, []metav1.OwnerReference{pod}},
		"that was kept for the Pod":                           {"true", before(earlier, set), []metav1.OwnerReference{pod, set}},
		"that an ephemeral claim had, in the template before": {"", before(set), []metav1.OwnerReference{pod}},
		"that is not kept, and that an earlier Pod has left":  {"", before(earlier), []metav1.OwnerReference{pod}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Listener = nil
			attributes := map[string]string{names.AnnotationListenerClass: "public"}
			if tc.keep != "" {
				attributes[names.AttributeKeep] = tc.keep
			}
			w.inline(attributes)
			w.Pod.OwnerReferences = []metav1.OwnerReference{controller}
			tc.change(w)
			c, _ := w.mustRun(t)
			listener := listenerOf(t, c)
			if listener == nil {
				t.Fatal("no Listener")
			}
			if diff := cmp.Diff(tc.want, listener.OwnerReferences); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if listener.Class() != "public" || len(listener.Spec.Ports) != 1 || listener.Annotations[names.AnnotationClaim] != "web-0-listener" {
				t.Errorf("Listener %+v", listener)
			}
			var labelled corev1.Pod
			if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-0"}, &labelled); err != nil || labelled.Labels[names.PodMountLabel(listener.UID)] != "web-0-listener" {
				t.Errorf("labels of the Pod %v, error %v", labelled.Labels, err)
			}
		})
	}
}

func TestAnInlineVolumeThatCannotBeMountedIsRefused(t *testing.T) {
	public := map[string]string{names.AnnotationListenerClass: "public"}
	ofClaim := metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "web-0-listener", UID: "c"}
	foreign := func(owner metav1.OwnerReference) func(*world) {
		return func(w *world) {
			w.Listener.Name, w.Listener.OwnerReferences = "web-0-listener", []metav1.OwnerReference{owner}
			w.Listener.Annotations = map[string]string{names.AnnotationClaim: "web-0-listener"}
		}
	}
	for name, tc := range map[string]struct {
		attributes map[string]string
		change     func(*world)
		want       string
	}{
		"without a selector":   {nil, func(*world) {}, `Warning InvalidVolume Volume "listener" is not mounted: neither`},
		"of a pinned class":    {public, func(w *world) { w.Class.Spec.PinnedNodePorts = true }, "Warning InvalidVolume Volume \"listener\" is not mounted: ListenerClass public pins"},
		"of a pinned Listener": {map[string]string{names.AnnotationListenerName: "web"}, func(w *world) { w.Class.Spec.PinnedNodePorts = true }, "needs a claim"},
		"without ports":        {public, func(w *world) { w.Pod.Spec.Containers = nil }, "no container of Pod web-0 has a port"},
		"kept by nothing":      {map[string]string{names.AnnotationListenerClass: "public", names.AttributeKeep: "true"}, func(*world) {}, "no controller creates one"},
		"of an invalid name":   {map[string]string{names.AnnotationListenerName: "shop/web"}, func(*world) {}, "Warning InvalidName"},
		"of the name of a claim": {public, func(w *world) {
			foreign(ofClaim)(w)
			w.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0-listener", UID: "c"}}
		}, "Warning ForeignListener"},
		"whose Listener goes with an earlier claim": {public, foreign(ofClaim), ""},
		"of another Pod": {public, foreign(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "c"}), "inline volume listener of Pod web-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.inline(tc.attributes)
			tc.change(w)
			c, recorded := w.mustRun(t)
			close(recorded)
			var all []string
			for event := range recorded {
				all = append(all, event)
			}
			if text := strings.Join(all, "\n"); len(all) > 1 || (text == "") != (tc.want == "") || !strings.Contains(text, tc.want) {
				t.Errorf("events %q, want %q", all, tc.want)
			}
			if got := published(t, c); got != nil && len(got.Listeners["listener"].IngressAddresses) > 0 {
				t.Errorf("published %+v", got)
			}
			if l := listenerOf(t, c); l != nil && l.UID != w.Listener.UID {
				t.Errorf("Listener %+v", l)
			}
		})
	}
}
