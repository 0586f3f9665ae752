package lostnodes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const (
	noRoom       = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's node affinity."
	noRoomBefore = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had volume node affinity conflict."
	agentAbsent  = "0/2 nodes are available: 1 listeners.stackable.tech CSI driver is not installed on the node, 1 node(s) didn't match PersistentVolume's node affinity."
	unboundClaim = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
)

// The volume is pinned to node-1, with policy Preferred; node-2 takes the Pod.
func TestVolumeIsReleasedBecauseOfItsPinOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict string
		change  func(*world)
		want    string // in the reason; "" if it is not released
	}{
		"cordoned":              {noRoom, cordoned, "because of its taint node.kubernetes.io/unschedulable"},
		"tainted":               {noRoom, taint("node-1", "maintenance"), "because of its taint maintenance"},
		"being deleted":         {noRoom, func(w *world) { deleted(w.find("node-1")) }, "being deleted"},
		"without an agent":      {noRoom, func(w *world) { w.find("node-1").Labels = nil }, "it lacks the label listeners.stackable.tech/hostname"},
		"full":                  {noRoom, func(*world) {}, "about which the scheduler says: 0/2 nodes are available: 1 Insufficient cpu"},
		"full, Kubernetes 1.32": {noRoomBefore, func(*world) {}, "1 Insufficient cpu"},
		"selector of another node": {noRoom, func(w *world) {
			w.pods[0].Spec.NodeSelector = map[string]string{names.TopologyKey: "node-2"}
		}, "node selector"},

		"scheduled":                                    {"", cordoned, ""},
		"an agent that is just replaced":               {agentAbsent, func(*world) {}, ""},
		"verdict about a claim that was not bound yet": {unboundClaim, func(*world) {}, ""},
		"being deleted itself":                         {noRoom, func(w *world) { cordoned(w); deleted(w.pods[0]) }, ""},
		"other node cordoned":                          {noRoom, func(w *world) { cordoned(w); w.find("node-2").Spec.Unschedulable = true }, ""},
		"other node tainted":                           {noRoom, all(cordoned, taint("node-2", "infra")), ""},
		"other node without an agent":                  {noRoom, func(w *world) { cordoned(w); w.find("node-2").Labels = nil }, ""},
		"other node not selected": {noRoom, func(w *world) {
			cordoned(w)
			w.pods[0].Spec.NodeSelector = map[string]string{names.TopologyKey: "node-1"}
		}, ""},
		"other node excluded by an affinity": {noRoom, func(w *world) {
			cordoned(w)
			w.pods[0].Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: claim.NodeAffinity("node-1").Required,
			}}
		}, ""},
		"other node tolerated": {noRoom, func(w *world) {
			cordoned(w)
			taint("node-2", "infra")(w)
			w.pods[0].Spec.Tolerations = []corev1.Toleration{{Key: "infra", Operator: corev1.TolerationOpExists}}
		}, "unschedulable"},
		"beside an inline volume": {noRoom, func(w *world) {
			cordoned(w)
			w.pods[0].Spec.Volumes = append(w.pods[0].Spec.Volumes, objects.InlineVolume("inline", nil))
		}, "unschedulable"},
		"policy Required":           {noRoom, func(w *world) { cordoned(w); w.Class.Spec.Pinning.Policy = listenersv1alpha1.PinningPolicyRequired }, ""},
		"class not pinned any more": {noRoom, func(w *world) { cordoned(w); w.Class.Spec.Pinning = nil }, "unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld((*world).preferred, has(rejected(tc.verdict)))
			if tc.verdict == "" {
				has(pod(""))(w)
			}
			tc.change(w)
			checkDisplaced(t, w, tc.want)
		})
	}
}

// The Pod has another claim. Its volume must not keep the Pod from the other node, unless it is released as well.
func TestOtherVolumesOfThePodCount(t *testing.T) {
	foreign := func(w *world, affinity *corev1.VolumeNodeAffinity) []client.Object {
		return []client.Object{
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: "data-uid"},
				Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "disk"}},
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
				NodeAffinity: affinity, PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/disk"}},
			}},
		}
	}
	unbound := func(mode storagev1.VolumeBindingMode) []client.Object {
		return []client.Object{
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop"},
				Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("disks")}},
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: "disks.example", VolumeBindingMode: &mode},
		}
	}
	second := func(w *world, className string) []client.Object {
		pvc, pv, listener := w.Claim.DeepCopy(), w.Volume.DeepCopy(), w.Listener.DeepCopy()
		pvc.Name, pvc.UID, pvc.Spec.VolumeName = "data", "data-uid", "pvc-data-uid"
		pv.Name, pv.UID, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "pvc-data-uid", "data-pv-uid", "data", "data-uid"
		listener.Name, listener.UID, listener.Spec.ClassName = "data", "data-listener-uid", &className
		strict := w.Class.DeepCopy()
		strict.Name, strict.Spec.Pinning.Policy = "strict", listenersv1alpha1.PinningPolicyRequired
		return []client.Object{pvc, pv, listener, strict}
	}
	for name, tc := range map[string]struct {
		objects func(*world) []client.Object
		want    string
	}{
		"disk that every node has":       {func(w *world) []client.Object { return foreign(w, nil) }, "unschedulable"},
		"disk on the other node":         {func(w *world) []client.Object { return foreign(w, claim.NodeAffinity("node-2")) }, "unschedulable"},
		"disk on the node of the volume": {func(w *world) []client.Object { return foreign(w, claim.NodeAffinity("node-1")) }, ""},
		"claim that does not exist":      {func(*world) []client.Object { return nil }, ""},
		"claim that is bound with its Pod": {func(*world) []client.Object {
			return unbound(storagev1.VolumeBindingWaitForFirstConsumer)
		}, "unschedulable"},
		"claim that the scheduler waits for":       {func(*world) []client.Object { return unbound(storagev1.VolumeBindingImmediate) }, ""},
		"listener volume that is released as well": {func(w *world) []client.Object { return second(w, w.Class.Name) }, "unschedulable"},
		"listener volume with policy Required":     {func(w *world) []client.Object { return second(w, "strict") }, ""},
		"listener volume that is excluded from releases": {func(w *world) []client.Object {
			objects := second(w, w.Class.Name)
			objects[0].(*corev1.PersistentVolumeClaim).Annotations[names.AnnotationRelease] = "never"
			return objects
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld((*world).preferred, cordoned, has(rejected(noRoom)))
			w.pods[0].Spec.Volumes = append(w.pods[0].Spec.Volumes, objects.ClaimVolume("data", "data"))
			checkDisplaced(t, w, tc.want, tc.objects(w)...)
		})
	}
}

// checkDisplaced reconciles once, and checks that the volume is released, with these words in the log of why, or stays.
func checkDisplaced(t *testing.T, w *world, want string, more ...client.Object) {
	t.Helper()
	r := w.start(t, interceptor.Funcs{})
	for _, o := range more {
		r.add(o)
	}
	o, err := r.observe(t.Context(), r.Client, client.ObjectKeyFromObject(w.Claim))
	check.Must(t, err)
	got, err := r.displaced(t.Context(), o)
	check.Must(t, err)
	if !strings.Contains(got, want) || (got == "") != (want == "") {
		t.Errorf("released because %q, want %q", got, want)
	}
	r.reconcile()
	check.Equal(t, "released", want != "", r.volume().UID != w.Volume.UID)
}

// find returns a node of the world.
func (w *world) find(name string) *corev1.Node {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func cordoned(w *world) { w.find("node-1").Spec.Unschedulable = true }

func taint(name, key string) func(*world) {
	return func(w *world) {
		w.find(name).Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	}
}
