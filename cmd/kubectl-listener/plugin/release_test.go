package plugin_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestReleaseRequestsTheReleaseFromALostNodeOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *world)
		claim   string // defaults to the claim of the world
		force   bool
		state   string
		text    string
		// value is the annotation's afterwards: "now", or as it is.
		value string
	}{
		"the node does not exist": {
			prepare: func(t *testing.T, w *world) { w.remove(t, w.node) }, state: "OK", text: "is requested", value: "now",
		},
		"the node is out of service": {
			prepare: func(t *testing.T, w *world) {
				w.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
				w.update(t, w.node)
			},
			state: "OK", text: "is requested", value: "now",
		},
		"the node exists": {
			prepare: func(*testing.T, *world) {}, state: "Failed", text: "containers of the Pod may still run there",
		},
		"the node exists, by force": {
			prepare: func(*testing.T, *world) {}, force: true, state: "OK", text: "is requested", value: "now",
		},
		"the claim excludes it": {
			prepare: func(t *testing.T, w *world) {
				w.remove(t, w.node)
				w.annotate(t, names.ReleaseNever)
			},
			state: "Failed", text: `is "never"`, value: names.ReleaseNever,
		},
		"the claim excludes it, by force": {
			prepare: func(t *testing.T, w *world) {
				w.remove(t, w.node)
				w.annotate(t, names.ReleaseNever)
			},
			force: true, state: "OK", text: "is requested", value: "now",
		},
		"it is requested already": {
			prepare: func(t *testing.T, w *world) {
				w.remove(t, w.node)
				w.annotate(t, "2999-01-01T00:00:00Z")
			},
			state: "Warning", text: "already requested", value: "2999-01-01T00:00:00Z",
		},
		"an earlier request was carried out": {
			prepare: func(t *testing.T, w *world) {
				w.remove(t, w.node)
				w.annotate(t, "2000-01-01T00:00:00Z")
			},
			state: "OK", text: "is requested", value: "now",
		},
		"the claim has no volume": {
			prepare: func(t *testing.T, w *world) { w.create(t, w.newClaim("other", ofClass(w.class.Name))) },
			claim:   "other", state: "Failed", text: "has no volume",
		},
		"the volume is another one's": {
			prepare: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{})
				pvc.Spec.VolumeName = w.volume.Name
				w.create(t, pvc)
			},
			claim: "other", force: true, state: "Failed", text: "has no listener volume",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.prepare(t, w)
			claim := cmp.Or(tc.claim, w.claim.Name)
			args := []string{"release", claim, "-n", w.namespace}
			if tc.force {
				args = append(args, "--force")
			}
			started := time.Now().Truncate(time.Second)
			if f := resultOf(t, apiserver.Config(t), args...).Findings[0]; f.State != tc.state || !strings.Contains(f.Message, tc.text) || (f.State == "Failed") != (f.Remedy != "") {
				t.Errorf("%+v", f)
			}
			check.Must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: claim}, w.claim))
			value := w.claim.Annotations[names.AnnotationRelease]
			if at, err := time.Parse(time.RFC3339, value); tc.value == "now" && (err != nil || at.Before(started)) || tc.value != "now" && value != tc.value {
				t.Errorf("the annotation is %q, want %q", value, tc.value)
			}
		})
	}
}

// annotate sets the annotation of the claim about releases.
func (w *world) annotate(t *testing.T, value string) {
	t.Helper()
	w.claim.Annotations[names.AnnotationRelease] = value
	w.update(t, w.claim)
}

// TestReleaseGivesNoAllClear is about the text: the request says nothing about the node, which may be lost.
func TestReleaseGivesNoAllClear(t *testing.T) {
	w := newWorld(t)
	w.remove(t, w.node)
	out, err := run(t, apiserver.Config(t), "release", w.claim.Name, "-n", w.namespace)
	if err != nil || !strings.Contains(out, "is requested") || strings.Contains(out, "wrong") || strings.HasSuffix(out, "\n\n") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}
