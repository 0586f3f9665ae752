package podlisteners_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// The agents keep PodListeners in memory. Finished Pods stay until somebody deletes them.
func TestPodListenersOfAFinishedPodAreDeleted(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		w := newWorld()
		w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {IngressAddresses: nodeAddr}})
		w.Pod.Status.Phase = phase
		c, _ := w.mustRun(t)
		if err := c.Get(t.Context(), objectKey, &listenersv1alpha1.PodListeners{}); !apierrors.IsNotFound(err) {
			t.Errorf("Pod in phase %s: reading its PodListeners: %v", phase, err)
		}
	}
}

// It costs nothing to mount the same claim again and again.
func TestAPodHasALimitedNumberOfVolumesAndAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		volumes, ports, want int
	}{
		"few volumes":                      {volumes: 16, ports: 64, want: 16},
		"many volumes":                     {volumes: 200, ports: 64, want: 16},
		"as many ports as a class permits": {volumes: 3, ports: 1024, want: 3},
		"volumes with many ports":          {volumes: 16, ports: 1024, want: 3},
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, written before: %v", name, before), func(t *testing.T) {
				w := newWorld()
				ports, entries := map[string]int32{}, map[string]listenersv1alpha1.PodListener{}
				for i := range tc.ports {
					ports[fmt.Sprintf("port-%d", i)] = int32(30000 + i) //nolint:gosec // at most 31023
				}
				w.Listener.Status.NodePorts, w.Pod.Spec.Volumes = ports, nil
				for i := range tc.volumes {
					volume := fmt.Sprintf("v%d", i)
					w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, objects.ClaimVolume(volume, "listener-web-0"))
					entries[volume] = listenersv1alpha1.PodListener{PersistentVolumeName: "pvc-claim-uid"}
				}
				if before {
					w.publishedBefore(entries)
				}
				c, recorded := w.mustRun(t)
				spec := published(t, c)
				if len(spec.Listeners) != tc.want || len(spec.StartAddresses) != tc.want || len(spec.Listeners["v0"].IngressAddresses) == 0 {
					t.Errorf("%d volumes have entries, and %d addresses from the start, want the first %d", len(spec.Listeners), len(spec.StartAddresses), tc.want)
				}
				var events []string
				for len(recorded) > 0 {
					events = append(events, <-recorded)
				}
				if tc.want == tc.volumes && len(events) > 0 || tc.want < tc.volumes && len(events) != 1 {
					t.Fatalf("events: %q", events)
				}
				for _, words := range []string{
					fmt.Sprintf(`Warning WaitingForAddress Volume "v%d" and %d others of Pod shop/web-0`, tc.want, tc.volumes-tc.want-1), "at most 16 listener volumes", "use fewer",
				} {
					if tc.want < tc.volumes && !strings.Contains(events[0], words) {
						t.Errorf("the event lacks %q: %s", words, events[0])
					}
				}
			})
		}
	}
}
