package lostnodes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/names"
)

func TestDecision(t *testing.T) {
	const lostNode, requested = "node node-1 is lost since", "the annotation listener-operator.dev/release requests it"
	for name, tc := range map[string]struct {
		change func(*world)
		// displaced is what the Pods say about the node.
		displaced string
		want      decision // release and invalid are beginnings
	}{
		"node lost, not recorded yet":                        {func(*world) {}, "", decision{lost: true}},
		"node lost for less than releaseAfter":               {lostFor(4 * time.Minute), "", decision{lost: true, wait: 6 * time.Minute}},
		"node lost for releaseAfter":                         {lostFor(10 * time.Minute), "", decision{lost: true, release: lostNode}},
		"record of the future, as of a clock that was wrong": {lostFor(-time.Hour), "", decision{lost: true, wait: 10 * time.Minute}},
		"record that is no time":                             {func(w *world) { w.Volume.Annotations[names.AnnotationLostSince] = "yesterday" }, "", decision{lost: true, wait: 10 * time.Minute}},
		"node exists again":                                  {all(lostFor(time.Hour), exists()), "", decision{}},
		"node out of service":                                {all(lostFor(time.Hour), exists(outOfService)), "", decision{lost: true, release: lostNode}},
		"node not ready, which may pass":                     {exists(corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}), "", decision{}},
		"no releaseAfter":                                    {func(w *world) { lostFor(time.Hour)(w); w.Class.Spec.Pinning.ReleaseAfter = nil }, "", decision{lost: true}},
		"pinnedNodePorts": {func(w *world) {
			lostFor(time.Hour)(w)
			w.Class.Spec.Pinning, w.Class.Spec.PinnedNodePorts = nil, true
		}, "", decision{lost: true}},
		"class does not exist":              {func(w *world) { lostFor(time.Hour)(w); w.Class = nil }, "", decision{lost: true}},
		"class is not pinned any more":      {func(w *world) { lostFor(time.Hour)(w); w.Class.Spec.Pinning = nil }, "", decision{lost: true, release: lostNode}},
		"excluded":                          {all(lostFor(time.Hour), annotated("never")), "", decision{lost: true}},
		"Preferred, node lost a moment ago": {all(lostPreferred, lostFor(time.Second)), "", decision{lost: true, wait: 9 * time.Second}},
		"Preferred, node lost for longer than its replacement takes": {
			all(lostPreferred, lostFor(10*time.Second)), "", decision{lost: true, release: lostNode},
		},
		"Preferred, node lost a moment ago, Pod waits": {
			all(lostPreferred, lostFor(time.Second)), "why", decision{lost: true, wait: 9 * time.Second},
		},
		"Preferred, node exists":                {(*world).preferred, "", decision{}},
		"Preferred, node does not take the Pod": {(*world).preferred, "why", decision{release: "why"}},
		"Preferred, node that was created again does not take the Pod yet": {func(w *world) {
			w.preferred()
			w.find("node-1").CreationTimestamp = metav1.NewTime(start.Add(-20 * time.Second))
		}, "why", decision{wait: 40 * time.Second}},
		"Preferred, excluded":          {all((*world).preferred, annotated("never")), "why", decision{}},
		"request":                      {annotated(ago(time.Second)), "", decision{lost: true, release: requested}},
		"request, node exists":         {all(annotated(ago(0)), exists()), "", decision{release: requested}},
		"request in another time zone": {annotated("2026-05-01T04:59:00+02:00"), "", decision{lost: true, release: requested}},
		"request that was carried out": {annotated(ago(2 * time.Hour)), "", decision{lost: true}},
		"request of the second in which the volume was created": {annotated(ago(time.Hour)), "", decision{lost: true}},
		"request of the future":                                 {annotated(ago(-time.Minute)), "", decision{lost: true, wait: time.Minute}},
		"request of the future, later than the release that the class demands": {
			all(lostFor(9*time.Minute), annotated(ago(-time.Hour))), "", decision{lost: true, wait: time.Minute},
		},
		"unknown value": {annotated("now"), "", decision{lost: true, invalid: `the annotation listener-operator.dev/release has the value "now"; allowed are`}},
		"unknown value, release demanded": {
			all(lostFor(time.Hour), annotated("yes")), "", decision{lost: true, release: lostNode, invalid: `the annotation listener-operator.dev/release has the value "yes"`},
		},
		"request for a volume that is not pinned": {func(w *world) { w.Volume.Spec.NodeAffinity = nil; annotated(ago(time.Second))(w) }, "", decision{}},
		"node affinity of another key":            {func(w *world) { w.requirement().Key = corev1.LabelHostname; lostFor(time.Hour)(w) }, "", decision{}},
		"node affinity of two nodes": {func(w *world) {
			w.requirement().Values = []string{"node-1", "node-9"}
			lostFor(time.Hour)(w)
		}, "", decision{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.change)
			o := w.observed()
			o.displaced = tc.displaced
			got := o.decide(start)
			if got.lost != tc.want.lost || got.wait != tc.want.wait || !begins(got.release, tc.want.release) || !begins(got.invalid, tc.want.invalid) {
				t.Errorf("decided %+v, want %+v", got, tc.want)
			}
		})
	}
}

// outOfService is the taint by which an administrator says that a node is lost.
var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}

// lostPreferred is preferred, while no node exists.
func lostPreferred(w *world) {
	w.preferred()
	w.nodes = nil
}

// observed returns what is observed of a world.
func (w *world) observed() *observed {
	o := &observed{claim: w.Claim, pv: w.Volume, listener: w.Listener, class: w.Class, nodes: map[string]*corev1.Node{}}
	for _, n := range w.nodes {
		o.nodes[n.Name] = n
	}
	return o
}

func begins(text, beginning string) bool {
	return strings.HasPrefix(text, beginning) && (text == "") == (beginning == "")
}

func lostFor(d time.Duration) func(*world) {
	return func(w *world) { w.Volume.Annotations[names.AnnotationLostSince] = ago(d) }
}

func annotated(value string) func(*world) {
	return func(w *world) { w.Claim.Annotations[names.AnnotationRelease] = value }
}

func TestMessageOfALostNodeStatesWhatFollows(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"releaseAfter": {func(*world) {}, "does not exist; the volume will be released at 2026-05-01T03:10:00Z"},
		"no releaseAfter": {
			func(w *world) { w.Class.Spec.Pinning.ReleaseAfter = nil },
			"is not released automatically: to release it, set the annotation listener-operator.dev/release",
		},
		"excluded":       {annotated("never"), "is not released, because its claim has the annotation listener-operator.dev/release: never"},
		"out of service": {exists(outOfService), "node node-1, which PersistentVolume pvc-claim-uid is pinned to, is out of service"},
		"Preferred":      {lostPreferred, "will be released at 2026-05-01T03:00:10Z"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newWorld(tc.change).observed().lostMessage(start); !strings.Contains(got, tc.want) {
				t.Errorf("message %q, want %q in it", got, tc.want)
			}
		})
	}
}
