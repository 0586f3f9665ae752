package podlisteners_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// inline gives the Pod an inline volume in place of its claim, with these attributes.
func (w *world) inline(attributes map[string]string) {
	w.Pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", attributes)}
	w.Claim, w.Volume = nil, nil
}

// inlineOfClass gives the Pod an inline volume of a class in place of its claim. Its Listener does not exist.
func (w *world) inlineOfClass() {
	w.inline(byClass("public"))
	w.Listener = nil
}

// keep has the inline volume of a class keep its Listener.
func (w *world) keep() { w.Pod.Spec.Volumes[0].CSI.VolumeAttributes[names.AttributeKeep] = "true" }

// ofInline makes a Listener the one of the inline volume, with these owners.
func ofInline(listener *listenersv1alpha1.Listener, owners ...metav1.OwnerReference) *listenersv1alpha1.Listener {
	listener.Name, listener.OwnerReferences = "web-0-listener", owners
	listener.Annotations = map[string]string{names.AnnotationClaim: "web-0-listener"}
	return listener
}

// leftListener returns the Listener of the inline volume, as an earlier Pod has left it, which was not exposed yet.
func leftListener(owners ...metav1.OwnerReference) *listenersv1alpha1.Listener {
	return ofInline(&listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: "kept"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")},
	}, owners...)
}

func TestAClassThatForbidsInlineVolumesLetsThemKeepTheirListeners(t *testing.T) {
	for name, tc := range map[string]struct {
		attributes     map[string]string
		policy         listenersv1alpha1.InlineVolumePolicy
		listener, next string
	}{
		"that it has":                       {byClass("public"), "Forbidden", "web-0-listener", "ListenerClass public allows no inline volumes"},
		"that it names":                     {byName("web"), "Forbidden", "web", ""},
		"that it names, as it permits them": {byName("web"), "", "web", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Class.Spec.InlineVolumes = tc.policy
			w.inline(tc.attributes)
			if tc.listener != "web" {
				ofInline(w.Listener, owner("Pod", "web-0", podUID))
			}
			c, recorded := w.mustRun(t)
			want := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: nodeAddr, ListenerName: tc.listener},
			}}
			check.Equal(t, "PodListeners", want, published(t, c), withoutStart)
			if all := drain(recorded); (len(all) == 0) != (tc.next == "") || !strings.Contains(strings.Join(all, ""), "the next Pod will be refused, because "+tc.next) && tc.next != "" {
				t.Errorf("events %q", all)
			}
		})
	}
}

// The Listener belongs to the Pod, and to the controller of the Pod if it is kept.
func TestAnInlineVolumeOfAClassHasAListener(t *testing.T) {
	set, pod, earlier := keeper(statefulSet), owner("Pod", "web-0", podUID), owner("Pod", "web-0", "earlier")
	before := func(owners ...metav1.OwnerReference) func(*world) {
		return func(w *world) { w.Listener = leftListener(owners...) }
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
			w := newWorld((*world).inlineOfClass)
			if tc.keep != "" {
				w.Pod.Spec.Volumes[0].CSI.VolumeAttributes[names.AttributeKeep] = tc.keep
			}
			w.Pod.OwnerReferences = []metav1.OwnerReference{statefulSet}
			tc.change(w)
			c, _ := w.mustRun(t)
			listener := listenerNamed(t, c, "web-0-listener")
			if listener == nil {
				t.Fatal("no Listener")
			}
			check.Equal(t, "owners", tc.want, listener.OwnerReferences)
			if listener.Class() != "public" || len(listener.Spec.Ports) != 1 || listener.Annotations[names.AnnotationClaim] != "web-0-listener" {
				t.Errorf("Listener %+v", listener)
			}
			if labels := stored(t, c, w.Pod).Labels; labels[names.PodMountLabel(listener.UID)] != "web-0-listener" {
				t.Errorf("labels of the Pod %v", labels)
			}
		})
	}
}

// A controller may create any number of Pods that never run. What has been kept for the Pod stays.
func TestAPodThatNoKubeletHasAcceptedHasNoListener(t *testing.T) {
	kept := func(w *world) {
		w.Listener = leftListener()
		w.Listener.Annotations[names.AnnotationKeptFor] = "web-0"
	}
	unbound := func(reason string) func(*world) {
		return func(w *world) {
			w.Pod.Spec.NodeName, w.Pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason},
			}}
		}
	}
	for name, tc := range map[string]struct {
		change     func(*world)
		has, ready bool
	}{
		"it has scheduling gates":             {change: unbound(corev1.PodReasonSchedulingGated)},
		"it is unschedulable":                 {change: unbound(corev1.PodReasonUnschedulable)},
		"it was bound to a node a moment ago": {change: func(w *world) { w.Pod.Status = corev1.PodStatus{Phase: corev1.PodPending} }},
		"its kubelet has rejected it": {change: func(w *world) {
			w.Pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeAffinity", StartTime: w.Pod.Status.StartTime}
		}},
		"its kubelet has accepted it":     {func(w *world) { w.Pod.Status.Phase = corev1.PodPending }, true, true},
		"it has a Listener, but no node":  {func(w *world) { kept(w); w.Pod.Spec.NodeName, w.Pod.Status = "", corev1.PodStatus{} }, true, false},
		"it has a Listener, and its node": {func(w *world) { kept(w); w.Pod.Status = corev1.PodStatus{} }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld((*world).inlineOfClass, tc.change)
			c, recorded := w.mustRun(t)
			labels := stored(t, c, w.Pod).Labels
			if listener := listenerNamed(t, c, "web-0-listener"); (listener != nil) != tc.has || (len(labels) > 0) != tc.ready {
				t.Errorf("Listener %+v, labels %v", listener, labels)
			}
			if object := published(t, c); object != nil && !tc.has {
				t.Errorf("PodListeners %+v", object)
			}
			expectNoEvents(t, recorded)
		})
	}
}

// The node authorizer may refuse what the kubelet reports, which repeats it only after up to ten seconds.
func TestAPodWithoutAVerdictOfItsKubeletHasAListenerAfterASecond(t *testing.T) {
	w := newWorld((*world).inlineOfClass)
	w.Pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	c, now := w.start(t, interceptor.Funcs{}), clocktesting.NewFakePassiveClock(time.Now())
	c.Clock = now
	bound := now.Now()
	for _, since := range []time.Duration{0, 400 * time.Millisecond, 999 * time.Millisecond, time.Second} {
		now.SetTime(bound.Add(since))
		result, err := c.try()
		check.Must(t, err)
		has := listenerNamed(t, c.client, "web-0-listener") != nil
		if want := since == time.Second; has != want || !want && result.RequeueAfter != time.Second-since {
			t.Errorf("after %s: there is a Listener: %t, again in %s", since, has, result.RequeueAfter)
		}
	}
}

// Velero restores Pods before their Listeners, which have the numbers. StatefulSets create what it does not restore.
func TestAnInlineVolumeWaitsForARestoredListener(t *testing.T) {
	for name, tc := range map[string]struct {
		pod, set bool // from a backup
		age      time.Duration
		wait     bool
	}{
		"from a backup":                            {pod: true, wait: true},
		"from a backup, long ago":                  {pod: true, age: 2 * time.Minute},
		"of a StatefulSet from a backup":           {set: true, wait: true},
		"of a StatefulSet from a backup, long ago": {set: true, age: 2 * time.Minute},
		"from no backup":                           {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld((*world).inlineOfClass, (*world).keep)
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Pod.Namespace, Name: "web", UID: "set"}}
			w.Pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
			w.Pod.GenerateName, w.Pod.Labels = "web-", map[string]string{appsv1.StatefulSetPodNameLabel: w.Pod.Name}
			for o, restored := range map[client.Object]bool{w.Pod: tc.pod, set: tc.set} {
				if restored {
					o.SetLabels(labels.Merge(o.GetLabels(), labels.Set{names.LabelRestore: "monday"}))
					o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-tc.age)))
				}
			}
			c := w.start(t, interceptor.Funcs{}, set)
			if after := c.reconcile().RequeueAfter; tc.wait && (after <= 0 || after > time.Minute) {
				t.Errorf("looks again after %s", after)
			}
			if listener := listenerNamed(t, c.client, "web-0-listener"); (listener == nil) != tc.wait {
				t.Errorf("Listener %+v", listener)
			}
			if got := strings.Join(drain(c.recorded), ""); strings.HasPrefix(got, "Normal WaitingForRestore ") != tc.wait {
				t.Errorf("events %q", got)
			}
		})
	}
}

func TestAnInlineVolumeThatCannotBeMountedIsRefused(t *testing.T) {
	public := byClass("public")
	with := func(key, value string) map[string]string {
		return map[string]string{names.AnnotationListenerClass: "public", key: value}
	}
	foreign := func(owner metav1.OwnerReference) func(*world) { return func(w *world) { ofInline(w.Listener, owner) } }
	absent := func(w *world) { w.Listener = nil }
	claimed := foreign(owner("PersistentVolumeClaim", "web-0-listener", "c"))
	pinned := func(w *world) { w.Class.Spec.PinnedNodePorts = true }
	for name, tc := range map[string]struct {
		attributes map[string]string
		change     func(*world)
		want       string
	}{
		"without a selector": {nil, func(*world) {}, `Warning InvalidVolume Volume "listener" is not mounted: neither`},
		"of a pinned class":  {public, pinned, `Warning InvalidVolume Volume "listener" is not mounted: ListenerClass public pins`},
		"of a class that forbids it": {public, func(w *world) {
			w.Listener, w.Class.Spec.InlineVolumes = nil, listenersv1alpha1.InlineVolumePolicyForbidden
		}, "ListenerClass public allows no inline volumes"},
		"of a class that forbids it, after an earlier Pod": {with(names.AttributeKeep, "true"), func(w *world) {
			foreign(statefulSet)(w)
			w.Pod.OwnerReferences, w.Class.Spec.InlineVolumes = []metav1.OwnerReference{statefulSet}, listenersv1alpha1.InlineVolumePolicyForbidden
		}, "ListenerClass public allows no inline volumes"},
		"with a port that is misspelt": {
			with(names.AnnotationPorts, "htpp"), absent,
			`the attribute listener-operator.dev/ports lists "htpp", but the containers of Pod web-0 have only the ports`,
		},
		"with a port too many": {with(names.AnnotationPorts, "http,admin"), absent, `the attribute listener-operator.dev/ports lists "admin"`},
		"of a pinned Listener": {byName("web"), pinned, "needs a claim"},
		"without ports":        {public, func(w *world) { w.Pod.Spec.Containers = nil }, "no container of Pod web-0 has a port"},
		"kept by nothing":      {with(names.AttributeKeep, "true"), func(*world) {}, "no controller creates one"},
		"of an invalid name":   {byName("shop/web"), func(*world) {}, "Warning InvalidName"},
		"of the name of a claim": {public, func(w *world) {
			claimed(w)
			w.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0-listener", UID: "c"}}
		}, "Warning ForeignListener"},
		"whose Listener goes with an earlier claim": {public, claimed, ""},
		"of another Pod": {public, foreign(owner("Pod", "web", "c")), "inline volume listener of Pod web-0"},
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
			if l := listenerNamed(t, c, "web-0-listener"); l != nil && l.UID != w.Listener.UID {
				t.Errorf("Listener %+v", l)
			}
		})
	}
}

// What a Pod was given it keeps until it ends, and its addresses follow. An event says what the next Pod will read.
func TestWhatRefusesTheNextPodChangesNothingForTheOneThatRuns(t *testing.T) {
	const next = "stays as it is until the Pod ends, but the next Pod will be refused, because "
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"the class pins volumes now":                {func(w *world) { w.Class.Spec.PinnedNodePorts = true }, next + "ListenerClass public pins"},
		"the Pod has lost its controller":           {func(w *world) { w.Pod.OwnerReferences = nil }, ""},
		"the Pod has lost the label of its name":    {func(w *world) { w.Pod.GenerateName = "web-" }, ""},
		"the Pod and the Listener have lost theirs": {func(w *world) { w.Pod.OwnerReferences, w.Listener.OwnerReferences = nil, nil }, ""},
		"the Listener has lost its annotation":      {func(w *world) { w.Listener.Annotations = nil }, next + "Listener web-0-listener exists but was not created for"},
		"the Listener is kept for another Pod now": {
			func(w *world) { w.Listener.Annotations[names.AnnotationKeptFor] = "web" },
			next + "Listener web-0-listener exists but is kept for volume 0-listener of Pod web",
		},
		"another Pod owns the Listener": {
			func(w *world) { w.Listener.OwnerReferences = []metav1.OwnerReference{owner("Pod", "web", "w")} },
			next + "Listener web-0-listener exists but belongs to Pod web",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.inline(byClass("public"))
			w.keep()
			w.Pod.OwnerReferences = []metav1.OwnerReference{statefulSet}
			ofInline(w.Listener, owner("Pod", "web-0", podUID), keeper(statefulSet))
			w.Listener.Annotations[names.AnnotationKeptFor] = "web-0"
			w.Pod.Labels = map[string]string{names.PodMountLabel(w.Listener.UID): "web-0-listener"}
			w.publishedBefore(listenersv1alpha1.PodListener{Scope: "Node", IngressAddresses: nodeAddr, ListenerName: "web-0-listener"})
			w.Node.Status.Addresses[0].Address = "192.0.2.7"
			w.Listener.Status.IngressAddresses = nil
			tc.change(w)
			c, recorded := w.mustRun(t)
			check.Equal(t, "addresses", at("192.0.2.7"), published(t, c).Listeners["listener"].IngressAddresses)
			if text := strings.Join(drain(recorded), "\n"); (text == "") != (tc.want == "") || !strings.Contains(text, tc.want) {
				t.Errorf("events %q, want %q", text, tc.want)
			}
			listener := listenerNamed(t, c, "web-0-listener")
			if listener == nil || listener.UID != w.Listener.UID || tc.want == "" && listener.Annotations[names.AnnotationKeptFor] != "web-0" {
				t.Errorf("Listener %+v", listener)
			}
			check.Equal(t, "owners", w.Listener.OwnerReferences, listener.OwnerReferences)
			if labels := stored(t, c, w.Pod).Labels; len(labels) != 1 {
				t.Errorf("labels %v", labels)
			}
		})
	}
}
