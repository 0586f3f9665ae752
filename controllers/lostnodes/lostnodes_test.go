package lostnodes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var claimKey = types.NamespacedName{Namespace: "shop", Name: "listener-web-0"}

// reconcile reconciles the claim, and returns when it has to be reconciled again.
func (r *run) reconcile() time.Duration {
	r.t.Helper()
	result, err := r.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: claimKey})
	check.Must(r.t, err)
	return result.RequeueAfter
}

// volume returns the volume of the claim.
func (r *run) volume() *corev1.PersistentVolume {
	r.t.Helper()
	pv := &corev1.PersistentVolume{}
	check.Must(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Name: "pvc-claim-uid"}, pv))
	return pv
}

// wantReleased checks that the volume was replaced by one that is not pinned, or else that it was not changed.
func (r *run) wantReleased(w *world, released bool) {
	r.t.Helper()
	pv := r.volume()
	isReleased := pv.UID != w.Volume.UID && pv.Spec.NodeAffinity == nil
	if isReleased != released || !released && (pv.UID != w.Volume.UID || pv.ResourceVersion != "999") {
		r.t.Errorf("released: %t, want %t; the volume is %+v", isReleased, released, pv)
	}
}

func (r *run) listener() *listenersv1alpha1.Listener {
	r.t.Helper()
	l := &listenersv1alpha1.Listener{}
	check.Must(r.t, r.api.Get(r.t.Context(), claimKey, l))
	return l
}

// condition returns the status, the reason and the message of the condition of the Listener.
func (r *run) condition() string {
	r.t.Helper()
	return text(meta.FindStatusCondition(r.listener().Status.Conditions, listenersv1alpha1.ListenerNodesAvailable))
}

// text returns the status, the reason and the message of a condition, or "" if there is none.
func text(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// wantEvents checks the beginnings of the events since the last call.
func (r *run) wantEvents(want ...string) {
	r.t.Helper()
	for _, w := range want {
		select {
		case got := <-r.events:
			if !strings.HasPrefix(got, w) {
				r.t.Errorf("event %q, want %q", got, w)
			}
		default:
			r.t.Errorf("no event, want %q", w)
		}
	}
	for len(r.events) > 0 {
		r.t.Errorf("unexpected event %q", <-r.events)
	}
}

func (r *run) add(o client.Object) {
	r.t.Helper()
	check.Must(r.t, r.api.Create(r.t.Context(), o))
}

func (r *run) update(o client.Object, change func()) {
	r.t.Helper()
	check.Must(r.t, r.api.Get(r.t.Context(), client.ObjectKeyFromObject(o), o))
	change()
	check.Must(r.t, r.api.Update(r.t.Context(), o))
}

// The class may not exist. Package podlisteners gives it to the Listener if it does.
func TestAReleaseDoesNotChangeTheClassOfAListener(t *testing.T) {
	w := newWorld(annotated(ago(time.Minute)), lostFor(time.Minute))
	w.Claim.Annotations[names.AnnotationListenerClass] = "other"
	r := w.start(t, interceptor.Funcs{})
	r.reconcile()
	r.wantEvents("Normal VolumeReleased PersistentVolume pvc-claim-uid is released from node node-1")
	if l := r.listener(); l.Class() != "public" || !claim.HasOwner(l, w.Claim.UID) {
		t.Errorf("the Listener has class %s and owners %v", l.Class(), l.OwnerReferences)
	}
}

// TestVolumeOfALostNodeIsReplaced follows a volume from the loss of its node until its Pod is on another one.
func TestVolumeOfALostNodeIsReplaced(t *testing.T) {
	w := newWorld()
	r := w.start(t, interceptor.Funcs{})
	r.reconcile()
	r.wantEvents("Warning NodeLost node node-1, which PersistentVolume pvc-claim-uid is pinned to, does not exist; the volume will be released at 2026-05-01T03:10:00Z")
	check.Equal(t, "decides again after", 10*time.Minute, r.reconcile())
	check.Equal(t, "condition", "False NodeLost: node node-1, which PersistentVolume pvc-claim-uid is pinned to, is lost since 2026-05-01T03:00:00Z", r.condition())
	r.clock.SetTime(start.Add(10 * time.Minute))
	r.reconcile()
	r.wantEvents("Normal VolumeReleased PersistentVolume pvc-claim-uid is released from node node-1")
	released := r.volume()
	want := w.Volume.DeepCopy()
	want.UID, want.ResourceVersion, want.CreationTimestamp = released.UID, released.ResourceVersion, released.CreationTimestamp
	want.Finalizers, want.Spec.NodeAffinity = nil, nil
	want.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
	want.Spec.ClaimRef.APIVersion, want.Spec.ClaimRef.Kind = "v1", "PersistentVolumeClaim"
	want.Spec.CSI.VolumeAttributes = w.Claim.Annotations
	want.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": names.Driver, names.AnnotationReleasedFrom: "node-1"}
	if diff := cmp.Diff(want, released); diff != "" || released.UID == w.Volume.UID {
		t.Errorf("the new volume (-want +got):\n%s", diff)
	}
	l := r.listener()
	if l.UID != w.Listener.UID || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != w.Claim.UID {
		// The fake client does not remove the owner that another manager set.
		if len(l.OwnerReferences) != 2 || l.OwnerReferences[1].UID != w.Claim.UID {
			t.Errorf("owners of the Listener: %+v", l.OwnerReferences)
		}
	}
	r.reconcile()
	check.Equal(t, "condition", "False VolumeReleased: PersistentVolume pvc-claim-uid is released from node node-1, and waits for its Pod to start", r.condition())
	r.add(pod("node-2"))
	r.update(released, func() { released.Spec.NodeAffinity = claim.NodeAffinity("node-2") })
	r.reconcile()
	r.wantEvents("Normal VolumeMoved PersistentVolume pvc-claim-uid moved from node node-1 to node node-2", "Normal VolumeMoved") // claim and Pod
	for range 2 {
		r.reconcile()
		check.Equal(t, "condition", "True VolumeMoved: PersistentVolume pvc-claim-uid moved from node node-1 to node node-2", r.condition())
	}
	r.wantEvents()
}

// A node that is created again, at once or later, keeps its volumes, and its loss is forgotten.
func TestNodeThatReturnsKeepsItsVolumes(t *testing.T) {
	for _, policy := range []listenersv1alpha1.PinningPolicy{listenersv1alpha1.PinningPolicyRequired, listenersv1alpha1.PinningPolicyPreferred} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld()
			w.Class.Spec.Pinning.Policy = policy
			w.pods = []*corev1.Pod{rejected(noRoom)}
			r := w.start(t, interceptor.Funcs{})
			r.reconcile()
			r.clock.SetTime(start.Add(time.Second))
			if wait := r.reconcile(); wait == 0 {
				t.Error("it is not decided again")
			}
			again := node("node-1", corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
			again.CreationTimestamp = metav1.NewTime(start.Add(time.Second))
			r.add(again)
			r.reconcile()
			r.reconcile()
			if pv := r.volume(); pv.UID != w.Volume.UID || len(pv.Annotations) > 0 {
				t.Errorf("volume %s has the annotations %v", pv.UID, pv.Annotations)
			}
			check.Equal(t, "condition", "True NodeReturned: every node that a volume is pinned to exists", r.condition())
			check.Must(t, r.api.Delete(t.Context(), node("node-1"))) // the time of the next loss counts
			r.clock.SetTime(start.Add(time.Hour))
			r.reconcile()
			check.Equal(t, "time of the loss", "2026-05-01T04:00:00Z", r.volume().Annotations[names.AnnotationLostSince])
		})
	}
}

// The cache may not have the Node yet, or still have it.
func TestLossIsConfirmedByTheAPIServer(t *testing.T) {
	for name, recorded := range map[string]bool{"not recorded": false, "recorded": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if recorded {
				lostFor(time.Hour)(w)
			}
			r := w.start(t, interceptor.Funcs{})
			r.APIReader = interceptor.NewClient(r.api, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if n, ok := o.(*corev1.Node); ok && key.Name == "node-1" {
						node("node-1").DeepCopyInto(n)
						return nil
					}
					return c.Get(ctx, key, o, options...)
				},
			})
			r.reconcile()
			r.wantReleased(w, false)
			r.wantEvents()
		})
	}
}

func TestReleaseIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"a Pod mounts the volume on a node that exists":       {all(exists(), has(pod("node-1"))), "Pod web-0 on node node-1 uses it"},
		"a Pod that is being deleted still mounts the volume": {all(exists(), has(deleted(pod("node-1")))), "Pod web-0 on node node-1 uses it"},
		"foreign finalizer": {func(w *world) { w.Volume.Finalizers = append(w.Volume.Finalizers, "backup.example/keep") },
			"its finalizers backup.example/keep belong to others"},
		"node affinity of another key": {func(w *world) { w.requirement().Key = corev1.LabelHostname }, "the operator did not set its node affinity"},
		"claim names a Listener": {func(w *world) {
			delete(w.Claim.Annotations, names.AnnotationListenerClass)
			w.Claim.Annotations[names.AnnotationListenerName] = "other"
		}, "the annotations of the claim do not select the same Listener any more"},
		"claim selects nothing": {func(w *world) { delete(w.Claim.Annotations, names.AnnotationListenerClass) },
			"the annotations of the claim do not select the same Listener any more"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(annotated(ago(time.Minute)), lostFor(time.Minute), tc.change)
			r := w.start(t, interceptor.Funcs{})
			for range 4 { // it is said once
				r.reconcile()
			}
			if pv := r.volume(); pv.UID != w.Volume.UID || pv.DeletionTimestamp != nil || cmp.Diff(w.Volume.Finalizers, pv.Finalizers) != "" {
				t.Errorf("the volume was changed: %+v", pv.ObjectMeta)
			}
			text := "Warning ReleaseRefused PersistentVolume pvc-claim-uid is not released, although the annotation listener-operator.dev/release requests it: "
			if got := <-r.events; !strings.HasPrefix(got, text+tc.want) {
				t.Errorf("event %q, want %q", got, text+tc.want)
			}
			for range w.pods {
				<-r.events // the Pod's
			}
			r.wantEvents()
		})
	}
}

func TestPodsThatDoNotMountTheVolumePermitItsRelease(t *testing.T) {
	finished := pod("node-2")
	finished.Status.Phase = corev1.PodFailed
	other := pod("node-2")
	other.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other"
	for name, p := range map[string]*corev1.Pod{
		"finished": finished, "on the lost node": pod("node-1"), "not scheduled": pod(""), "on a node out of service": pod("node-3"),
		"with another claim": other,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(lostFor(time.Hour))
			w.nodes, w.pods = append(w.nodes, node("node-3", outOfService)), []*corev1.Pod{p}
			r := w.start(t, interceptor.Funcs{})
			r.reconcile()
			r.wantReleased(w, true)
		})
	}
}

// Users choose how many Pods a namespace has, and how large they are.
func TestAReleaseReadsPodsInPages(t *testing.T) {
	w := newWorld(lostFor(time.Hour))
	w.pods = []*corev1.Pod{pod("node-1")}
	r, lists := w.start(t, interceptor.Funcs{}), 0
	r.APIReader = interceptor.NewClient(r.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ofPods := list.(*corev1.PodList); ofPods {
				lists++
				if o := (&client.ListOptions{}).ApplyOptions(options); o.Limit == 0 || o.Limit > 20 {
					t.Errorf("%d Pods are read at once", o.Limit)
				}
			}
			return c.List(ctx, list, options...)
		},
	})
	r.reconcile()
	if pv := r.volume(); pv.UID == w.Volume.UID || lists == 0 {
		t.Errorf("the volume was not released, after %d lists of Pods: %+v", lists, pv)
	}
}

func TestUnknownRequestIsExplained(t *testing.T) {
	w := newWorld()
	w.Volume.Spec.NodeAffinity = nil
	annotated("now")(w)
	r := w.start(t, interceptor.Funcs{})
	r.reconcile()
	r.reconcile()
	r.wantEvents(`Warning InvalidRelease the annotation listener-operator.dev/release has the value "now"; ` +
		`allowed are the time of the request, such as 2026-05-01T03:00:00Z, and "never"`)
}

// A foreign finalizer that is added while the release is in progress delays it, and stays.
func TestForeignFinalizerOfAVolumeBeingReleasedStays(t *testing.T) {
	w := newWorld()
	w.Volume.Finalizers = append(w.Volume.Finalizers, "backup.example/keep")
	w.Volume.DeletionTimestamp = ptr.To(metav1.NewTime(start))
	w.Volume.Annotations[names.AnnotationReleasedFrom] = "node-1"
	r := w.start(t, interceptor.Funcs{})
	r.reconcile()
	r.reconcile()
	r.wantEvents("Warning ReleaseRefused PersistentVolume pvc-claim-uid is being deleted, to release it from node node-1, " +
		"but has finalizers of others, who have to remove them: backup.example/keep")
	pv := r.volume()
	check.Equal(t, "finalizers", w.Volume.Finalizers, pv.Finalizers)
	r.update(pv, func() { pv.Finalizers = []string{finalizerProtection} })
	r.reconcile()
	r.wantReleased(w, true)
}

// The provisioner removes the finalizer that volumes of Stackable's listener operator have; the release waits for that.
func TestReleaseWaitsForTheProvisioner(t *testing.T) {
	w := newWorld(lostFor(time.Hour))
	w.Volume.Finalizers = []string{finalizerProtection, finalizerProvisioner}
	r := w.start(t, interceptor.Funcs{})
	r.reconcile()
	r.wantEvents()
	pv := r.volume()
	if pv.UID != w.Volume.UID || pv.DeletionTimestamp != nil {
		t.Fatalf("the volume was changed: %+v", pv.ObjectMeta)
	}
	r.update(pv, func() { pv.Finalizers = []string{finalizerProtection} })
	r.reconcile()
	if r.volume().UID == w.Volume.UID {
		t.Error("the volume was not released")
	}
}

// A release that began is completed, even if the node is back. A Pod that runs there meanwhile keeps its address.
func TestReleaseIsCompletedAlthoughTheNodeIsBack(t *testing.T) {
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want *corev1.VolumeNodeAffinity
	}{
		"no Pod":               {nil, nil},
		"a Pod runs there":     {[]*corev1.Pod{pod("node-1")}, claim.NodeAffinity("node-1")},
		"a Pod runs elsewhere": {[]*corev1.Pod{pod("node-2")}, claim.NodeAffinity("node-2")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(exists(), has(tc.pods...))
			w.Volume.DeletionTimestamp = ptr.To(metav1.NewTime(start))
			w.Volume.Annotations[names.AnnotationReleasedFrom] = "node-1"
			r := w.start(t, interceptor.Funcs{})
			r.reconcile()
			if diff := cmp.Diff(tc.want, r.volume().Spec.NodeAffinity); diff != "" || r.volume().UID == w.Volume.UID {
				t.Errorf("node affinity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVolumeThatDoesNotExistIsCreatedAgain(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain)}
	for name, tc := range map[string]struct {
		change func(*world)
		class  *storagev1.StorageClass
		want   *corev1.VolumeNodeAffinity
	}{
		"no Pod":                                 {func(*world) {}, nil, nil},
		"claim that Kubernetes did not annotate": {func(w *world) { delete(w.Claim.Annotations, names.AnnotationProvisioner) }, nil, nil},
		"reclaim policy of the StorageClass":     {func(*world) {}, class, nil},
		"Pod of a pinned class":                  {has(pod("node-2")), nil, claim.NodeAffinity("node-2")},
		"Pod of a class that is not pinned":      {func(w *world) { has(pod("node-2"))(w); w.Class.Spec.Pinning = nil }, nil, nil},
		"Pod on a lost node":                     {has(pod("node-1")), nil, nil},
		"claim with both annotations, which Stackable's listener operator accepted": {
			func(w *world) { w.Claim.Annotations[names.AnnotationListenerName] = "other" }, nil, nil,
		},
		"no Listener": {func(w *world) { w.Listener = nil }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Volume = nil
			tc.change(w)
			r := w.start(t, interceptor.Funcs{})
			policy, events := corev1.PersistentVolumeReclaimDelete, []string{"Normal VolumeRestored PersistentVolume pvc-claim-uid did not exist any more, and was created again from its claim"}
			if tc.class != nil {
				r.add(tc.class)
				policy = *tc.class.ReclaimPolicy
			}
			if len(w.pods) > 0 { // that knows it, too
				events = append(events, "Normal VolumeRestored")
			}
			r.reconcile()
			pv := r.volume()
			check.Equal(t, "node affinity", tc.want, pv.Spec.NodeAffinity)
			if pv.Spec.ClaimRef.UID != "claim-uid" || pv.Spec.PersistentVolumeReclaimPolicy != policy || pv.Spec.CSI.VolumeHandle != pv.Name ||
				pv.Labels[names.LabelListenerName] != "listener-web-0" || pv.Annotations[names.AnnotationReleasedFrom] != "" {
				raw, _ := json.Marshal(pv)
				t.Errorf("volume %s", raw)
			}
			r.wantEvents(events...)
		})
	}
}

func TestVolumeThatCannotBeCreatedAgainIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"claim without a selector": {func(w *world) { delete(w.Claim.Annotations, names.AnnotationListenerClass) },
			[]string{"Warning VolumeNotRestored PersistentVolume pvc-claim-uid does not exist, and cannot be created again, because neither listeners.stackable.tech/listener-class nor"}},
		"claim of a Listener that cannot exist": {func(w *world) {
			delete(w.Claim.Annotations, names.AnnotationListenerClass)
			w.Claim.Annotations[names.AnnotationListenerName] = "x%2f"
		}, []string{`Warning VolumeNotRestored PersistentVolume pvc-claim-uid does not exist, and cannot be created again, because the annotation listeners.stackable.tech/listener-name is "x%2f"`}},
		"volume that the operator did not provision": {func(w *world) { w.Claim.Spec.VolumeName = "by-hand" },
			[]string{"Warning VolumeNotRestored PersistentVolume by-hand does not exist, and would not be the one of this claim"}},
		"claim of another provisioner": {func(w *world) { w.Claim.Annotations[names.AnnotationProvisioner] = "disks.example" }, nil},
		"claim that is being deleted":  {func(w *world) { deleted(w.Claim) }, nil},
		"claim without a volume":       {func(w *world) { w.Claim.Spec.VolumeName = "" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Volume = nil
			tc.change(w)
			r := w.start(t, interceptor.Funcs{})
			r.reconcile()
			r.reconcile()
			r.wantEvents(tc.want...)
			var volumes corev1.PersistentVolumeList
			if err := r.api.List(t.Context(), &volumes); err != nil || len(volumes.Items) > 0 {
				t.Errorf("volumes: %v, %v", volumes.Items, err)
			}
		})
	}
}

// Neither a volume of another driver nor one that is bound to another claim is the claim's.
func TestVolumesOfOthersAreNotTouched(t *testing.T) {
	for name, change := range map[string]func(*world){
		"another driver": func(w *world) { w.Volume.Spec.CSI.Driver = "disks.example" },
		"another claim":  func(w *world) { w.Volume.Spec.ClaimRef.UID = "earlier" },
		"no claim":       func(w *world) { w.Volume.Spec.ClaimRef = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(lostFor(time.Hour), annotated(ago(0)), change)
			r := w.start(t, interceptor.Funcs{})
			r.reconcile()
			r.wantReleased(w, false)
			r.wantEvents()
		})
	}
}

// recorded returns a volume with the record of its last mount.
func recorded(pv corev1.PersistentVolume, node string) corev1.PersistentVolume {
	pv.Annotations[names.AnnotationNode] = node
	return pv
}

// The class was changed not to pin, and the Pod starts on its former node again, which is no move.
func TestPodThatStaysOnItsNodeIsNoMove(t *testing.T) {
	w := newWorld()
	w.Class.Spec.Pinning = nil
	w.nodes = append(w.nodes, node("node-1"))
	w.Volume.Spec.NodeAffinity = nil
	w.Volume.Annotations[names.AnnotationReleasedFrom] = "node-1"
	*w.Volume = recorded(*w.Volume, "node-1")
	r := w.start(t, interceptor.Funcs{})
	r.reconcile()
	if r.volume().Annotations[names.AnnotationReleasedFrom] == "" || !strings.HasPrefix(r.condition(), "False VolumeReleased") {
		t.Errorf("before the Pod is there, annotations %v, condition %q", r.volume().Annotations, r.condition())
	}
	r.add(pod("node-1"))
	r.reconcile()
	r.reconcile()
	if r.volume().Annotations[names.AnnotationReleasedFrom] != "" || !strings.HasPrefix(r.condition(), "True NodeReturned") {
		t.Errorf("annotations %v, condition %q", r.volume().Annotations, r.condition())
	}
	r.wantEvents()
}

// The cache may not have the condition that says that the volume has moved, when it has the volume without annotation.
func TestMoveIsReportedAlthoughTheCacheIsBehind(t *testing.T) {
	w := newWorld()
	w.nodes = append(w.nodes, node("node-1"))
	r := w.start(t, interceptor.Funcs{})
	says := func(status metav1.ConditionStatus, reason string) {
		check.Must(t, r.api.Get(t.Context(), claimKey, w.Listener))
		meta.SetStatusCondition(&w.Listener.Status.Conditions, metav1.Condition{Type: listenersv1alpha1.ListenerNodesAvailable, Status: status, Reason: reason})
		check.Must(t, r.api.Status().Update(t.Context(), w.Listener))
	}
	says(metav1.ConditionFalse, listenersv1alpha1.ReasonVolumeReleased)
	behind := w.Listener.DeepCopy()
	says(metav1.ConditionTrue, listenersv1alpha1.ReasonVolumeMoved)
	r.Client = interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if l, ok := o.(*listenersv1alpha1.Listener); ok {
				behind.DeepCopyInto(l)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: claimKey})
	if !apierrors.IsConflict(err) || !strings.HasPrefix(r.condition(), "True VolumeMoved") {
		t.Errorf("error %v, condition %q", err, r.condition())
	}
}

// The condition of a shared Listener describes the worst of its volumes, and names all that are in this state.
func TestConditionDescribesAllVolumes(t *testing.T) {
	volume := func(name, node, since, from string) corev1.PersistentVolume {
		pv := newWorld().Volume
		pv.Name, pv.Annotations = name, map[string]string{names.AnnotationLostSince: since, names.AnnotationReleasedFrom: from}
		pv.Spec.NodeAffinity = nil
		if node != "" {
			pv.Spec.NodeAffinity = claim.NodeAffinity(node)
		}
		return *pv
	}
	fine, moved := volume("a", "node-1", "", ""), volume("b", "node-2", "", "node-1")
	released, lost := volume("c", "", "", "node-1"), volume("d", "node-1", "T", "")
	moving := volume("e", "node-1", "T", "node-1") // marked, but not deleted yet
	is := func(status metav1.ConditionStatus, reason string) *metav1.Condition {
		return &metav1.Condition{Status: status, Reason: reason}
	}
	for name, tc := range map[string]struct {
		volumes []corev1.PersistentVolume
		before  *metav1.Condition
		want    string
	}{
		"nothing happened": {[]corev1.PersistentVolume{fine}, nil, ""},
		"moved":            {[]corev1.PersistentVolume{fine, moved}, nil, "True VolumeMoved: PersistentVolume b moved from node node-1 to node node-2"},
		"released":         {[]corev1.PersistentVolume{moved, released}, nil, "False VolumeReleased: PersistentVolume c is released from node node-1, and waits for its Pod to start"},
		"lost":             {[]corev1.PersistentVolume{moved, released, lost}, nil, "False NodeLost: node node-1, which PersistentVolume d is pinned to, is lost since T"},
		"two lost":         {[]corev1.PersistentVolume{moving, lost}, nil, "False NodeLost: node node-1, which PersistentVolume d is pinned to, is lost since T; node node-1, which PersistentVolume e is pinned to, is lost since T"},
		"released, the former node is still recorded": {
			[]corev1.PersistentVolume{recorded(volume("g", "", "", "node-1"), "node-1")}, nil,
			"False VolumeReleased: PersistentVolume g is released from node node-1, and waits for its Pod to start",
		},
		"moved, not pinned any more": {
			[]corev1.PersistentVolume{recorded(volume("g", "", "", "node-1"), "node-2")}, nil,
			"True VolumeMoved: PersistentVolume g moved from node node-1 to node node-2",
		},
		"reported before":         {[]corev1.PersistentVolume{fine}, is(metav1.ConditionTrue, "VolumeMoved"), "True VolumeMoved: "},
		"the node is back":        {[]corev1.PersistentVolume{fine}, is(metav1.ConditionFalse, "NodeLost"), "True NodeReturned: every node that a volume is pinned to exists"},
		"pinned to the same node": {[]corev1.PersistentVolume{volume("f", "node-1", "", "node-1")}, is(metav1.ConditionFalse, "VolumeReleased"), "True NodeReturned: every node that a volume is pinned to exists"},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "condition", tc.want, text(condition(tc.volumes, 1, tc.before)))
		})
	}
}
