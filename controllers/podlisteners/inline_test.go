package podlisteners_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
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

func TestAClassThatForbidsInlineVolumesLetsThemKeepTheirListeners(t *testing.T) {
	for name, tc := range map[string]struct{ attribute, listener, next string }{
		"that it has":   {names.AnnotationListenerClass + "=public", "web-0-listener", "ListenerClass public allows no inline volumes"},
		"that it names": {names.AnnotationListenerName + "=web", "web", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Class.Spec.InlineVolumes = listenersv1alpha1.InlineVolumePolicyForbidden
			key, value, _ := strings.Cut(tc.attribute, "=")
			w.inline(map[string]string{key: value})
			w.Listener.Name = tc.listener
			if tc.listener != "web" {
				w.Listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: podUID}}
				w.Listener.Annotations = map[string]string{names.AnnotationClaim: tc.listener}
			}
			c, recorded := w.mustRun(t)
			if entry := published(t, c).Listeners["listener"]; entry.ListenerName != tc.listener || len(entry.IngressAddresses) == 0 {
				t.Errorf("entry %+v", entry)
			}
			if all := drain(recorded); (len(all) == 0) != (tc.next == "") || !strings.Contains(strings.Join(all, ""), "the next Pod will be refused, because "+tc.next) && tc.next != "" {
				t.Errorf("events %q", all)
			}
		})
	}
}

// The Listener belongs to the Pod, and to the controller of the Pod if it is kept.
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
		"that ends with the Pod":    {"", func(*world) {}, []metav1.OwnerReference{pod}},
		"that is not kept":          {"false", func(*world) {}, []metav1.OwnerReference{pod}},
		"that is kept":              {"true", func(*world) {}, []metav1.OwnerReference{pod, set}},
		"that was kept for the Pod": {"true", before(earlier, set), []metav1.OwnerReference{pod, set}},
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

// A controller may create any number of Pods that never run. What has been kept for the Pod stays.
func TestAPodThatNoKubeletHasAcceptedHasNoListener(t *testing.T) {
	kept := func(w *world) {
		w.Listener = &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0-listener", UID: "kept",
			Annotations: map[string]string{names.AnnotationClaim: "web-0-listener", names.AnnotationKeptFor: "web-0"},
		}, Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")}}
	}
	for name, tc := range map[string]struct {
		change     func(*world)
		has, ready bool
	}{
		"it has scheduling gates": {change: func(w *world) {
			w.Pod.Spec.NodeName, w.Pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated},
			}}
		}},
		"it is unschedulable": {change: func(w *world) {
			w.Pod.Spec.NodeName, w.Pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
			}}
		}},
		"it was bound to a node a moment ago": {change: func(w *world) { w.Pod.Status = corev1.PodStatus{Phase: corev1.PodPending} }},
		"its kubelet has rejected it": {change: func(w *world) {
			w.Pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeAffinity", StartTime: w.Pod.Status.StartTime}
		}},
		"its kubelet has accepted it":     {func(w *world) { w.Pod.Status.Phase = corev1.PodPending }, true, true},
		"it has a Listener, but no node":  {func(w *world) { kept(w); w.Pod.Spec.NodeName, w.Pod.Status = "", corev1.PodStatus{} }, true, false},
		"it has a Listener, and its node": {func(w *world) { kept(w); w.Pod.Status = corev1.PodStatus{} }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Listener = nil
			w.inline(map[string]string{names.AnnotationListenerClass: "public"})
			tc.change(w)
			c, recorded := w.mustRun(t)
			pod := &corev1.Pod{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Pod), pod); err != nil {
				t.Fatal(err)
			}
			if listener := listenerOf(t, c); (listener != nil) != tc.has || (len(pod.Labels) > 0) != tc.ready {
				t.Errorf("Listener %+v, labels %v", listener, pod.Labels)
			}
			if object := published(t, c); object != nil && !tc.has {
				t.Errorf("PodListeners %+v", object)
			}
			if all := drain(recorded); len(all) > 0 {
				t.Errorf("events %q", all)
			}
		})
	}
}

// Velero restores Pods before their Listeners, which have the numbers. StatefulSets create what it does not restore.
func TestAnInlineVolumeWaitsForARestoredListener(t *testing.T) {
	ofPod := func(pod *corev1.Pod, _ *appsv1.StatefulSet) client.Object { return pod }
	ofSet := func(_ *corev1.Pod, set *appsv1.StatefulSet) client.Object { return set }
	for name, tc := range map[string]struct {
		of   func(pod *corev1.Pod, set *appsv1.StatefulSet) client.Object
		age  time.Duration
		wait bool
	}{
		"from a backup":                            {of: ofPod, wait: true},
		"from a backup, long ago":                  {of: ofPod, age: 2 * time.Minute},
		"of a StatefulSet from a backup":           {of: ofSet, wait: true},
		"of a StatefulSet from a backup, long ago": {of: ofSet, age: 2 * time.Minute},
		"from no backup":                           {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Listener = nil
			w.inline(map[string]string{names.AnnotationListenerClass: "public", names.AttributeKeep: "true"})
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Pod.Namespace, Name: "web", UID: "set"}}
			w.Pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
			w.Pod.GenerateName, w.Pod.Labels = "web-", map[string]string{appsv1.StatefulSetPodNameLabel: w.Pod.Name}
			if tc.of != nil {
				o := tc.of(w.Pod, set)
				o.SetLabels(labels.Merge(o.GetLabels(), labels.Set{names.LabelRestore: "monday"}))
				o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-tc.age)))
			}
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(set)...)
			recorder := events.NewFakeRecorder(10)
			r := newReconciler(c, recorder)
			r.Receive(t.Context(), w.Pod)
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey})
			if err != nil || tc.wait && (result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute) {
				t.Errorf("result %v, error %v", result, err)
			}
			if listener := listenerOf(t, c); (listener == nil) != tc.wait {
				t.Errorf("Listener %+v", listener)
			}
			if got := strings.Join(drain(recorder.Events), ""); strings.HasPrefix(got, "Normal WaitingForRestore ") != tc.wait {
				t.Errorf("events %q", got)
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
	type refused struct {
		attributes map[string]string
		change     func(*world)
		want       string
	}
	for name, tc := range map[string]refused{
		"without a selector": {nil, func(*world) {}, `Warning InvalidVolume Volume "listener" is not mounted: neither`},
		"of a pinned class":  {public, func(w *world) { w.Class.Spec.PinnedNodePorts = true }, "Warning InvalidVolume Volume \"listener\" is not mounted: ListenerClass public pins"},
		"of a class that forbids it": {public, func(w *world) {
			w.Listener, w.Class.Spec.InlineVolumes = nil, listenersv1alpha1.InlineVolumePolicyForbidden
		}, "ListenerClass public allows no inline volumes"},
		"of a class that forbids it, after an earlier Pod": {map[string]string{names.AnnotationListenerClass: "public", names.AttributeKeep: "true"}, func(w *world) {
			set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set", Controller: ptr.To(true)}
			foreign(set)(w)
			w.Pod.OwnerReferences, w.Class.Spec.InlineVolumes = []metav1.OwnerReference{set}, listenersv1alpha1.InlineVolumePolicyForbidden
		}, "ListenerClass public allows no inline volumes"},
		"with a port that is misspelt": {map[string]string{names.AnnotationListenerClass: "public", names.AnnotationPorts: "htpp"}, func(w *world) { w.Listener = nil },
			`the attribute listener-operator.dev/ports lists "htpp", but the containers of Pod web-0 have only the ports`},
		"with a port too many": {map[string]string{names.AnnotationListenerClass: "public", names.AnnotationPorts: "http,admin"}, func(w *world) { w.Listener = nil },
			`the attribute listener-operator.dev/ports lists "admin"`},
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
			all := drain(recorded)
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

func drain(recorded chan string) (all []string) {
	for len(recorded) > 0 {
		all = append(all, <-recorded)
	}
	return all
}

// What a Pod was given it keeps until it ends, and its addresses follow. An event says what the next Pod will read.
func TestWhatRefusesTheNextPodChangesNothingForTheOneThatRuns(t *testing.T) {
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set", Controller: ptr.To(true)}
	const next = "stays as it is until the Pod ends, but the next Pod will be refused, because "
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"the class pins volumes now":                {func(w *world) { w.Class.Spec.PinnedNodePorts = true }, next + "ListenerClass public pins"},
		"the Pod has lost its controller":           {func(w *world) { w.Pod.OwnerReferences = nil }, ""},
		"the Pod has lost the label of its name":    {func(w *world) { w.Pod.GenerateName = "web-" }, ""},
		"the Pod and the Listener have lost theirs": {func(w *world) { w.Pod.OwnerReferences, w.Listener.OwnerReferences = nil, nil }, ""},
		"the Listener has lost its annotation": {func(w *world) {
			w.Listener.Annotations = nil
		}, next + "Listener web-0-listener exists but was not created for"},
		"the Listener is kept for another Pod now": {func(w *world) {
			w.Listener.Annotations[names.AnnotationKeptFor] = "web"
		}, next + "Listener web-0-listener exists but is kept for volume 0-listener of Pod web"},
		"another Pod owns the Listener": {func(w *world) {
			w.Listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "w"}}
		}, next + "Listener web-0-listener exists but belongs to Pod web"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.inline(map[string]string{names.AnnotationListenerClass: "public", names.AttributeKeep: "true"})
			w.Pod.OwnerReferences = []metav1.OwnerReference{set}
			w.Listener.Name = "web-0-listener"
			w.Listener.Annotations = map[string]string{names.AnnotationClaim: "web-0-listener", names.AnnotationKeptFor: "web-0"}
			set.Controller = nil
			w.Listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: podUID}, set}
			set.Controller = ptr.To(true)
			w.Pod.Labels = map[string]string{names.PodMountLabel(w.Listener.UID): "web-0-listener"}
			w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {
				Scope: "Node", IngressAddresses: nodeAddr, ListenerName: "web-0-listener",
			}})
			w.Node.Status.Addresses[0].Address = "192.0.2.7"
			w.Listener.Status.IngressAddresses = nil
			tc.change(w)
			c, recorded := w.mustRun(t)
			want := []listenersv1alpha1.IngressAddress{{Address: "192.0.2.7", AddressType: "IP", Ports: portMap}}
			if diff := cmp.Diff(want, published(t, c).Listeners["listener"].IngressAddresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if text := strings.Join(drain(recorded), "\n"); (text == "") != (tc.want == "") || !strings.Contains(text, tc.want) {
				t.Errorf("events %q, want %q", text, tc.want)
			}
			listener := listenerOf(t, c)
			if listener == nil || listener.UID != w.Listener.UID || tc.want == "" && listener.Annotations[names.AnnotationKeptFor] != "web-0" {
				t.Errorf("Listener %+v", listener)
			}
			if diff := cmp.Diff(w.Listener.OwnerReferences, listener.OwnerReferences); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			var pod corev1.Pod
			if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-0"}, &pod); err != nil || len(pod.Labels) != 1 {
				t.Errorf("labels %v, error %v", pod.Labels, err)
			}
		})
	}
}
