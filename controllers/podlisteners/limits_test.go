package podlisteners_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// mountAgain gives the Pod so many volumes of its claim, whose Listener has so many ports. It returns them, and entries
// of the volumes without addresses.
func (w *world) mountAgain(volumes, number int) (map[string]int32, map[string]listenersv1alpha1.PodListener) {
	ports, entries := map[string]int32{}, map[string]listenersv1alpha1.PodListener{}
	for i := range number {
		ports[fmt.Sprintf("port-%d", i)] = int32(30000 + i) //nolint:gosec // at most 31023
	}
	w.Listener.Status.NodePorts, w.Pod.Spec.Volumes = ports, nil
	for i := range volumes {
		volume := fmt.Sprintf("v%d", i)
		w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, objects.ClaimVolume(volume, "listener-web-0"))
		entries[volume] = listenersv1alpha1.PodListener{PersistentVolumeName: "pvc-claim-uid"}
	}
	return ports, entries
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
				_, entries := w.mountAgain(tc.volumes, tc.ports)
				if before {
					w.existing = newObject()
					w.existing.Spec.Listeners = entries
				}
				c, recorded := w.mustRun(t)
				spec := published(t, c)
				if len(spec.Listeners) != tc.want || len(spec.StartAddresses) != tc.want || len(spec.Listeners["v0"].IngressAddresses) == 0 {
					t.Errorf("%d volumes have entries, and %d addresses from the start, want the first %d", len(spec.Listeners), len(spec.StartAddresses), tc.want)
				}
				events := drain(recorded)
				if tc.want == tc.volumes && len(events) > 0 || tc.want < tc.volumes && len(events) != 1 {
					t.Fatalf("events: %q", events)
				}
				for _, words := range []string{
					fmt.Sprintf(`Warning WaitingForAddress Volume "v%d" of Pod shop/web-0`, tc.want),
					"as may others", "at most 16 listener volumes", "use fewer",
				} {
					if tc.want < tc.volumes && !strings.Contains(events[0], words) {
						t.Errorf("the event lacks %q: %s", words, events[0])
					}
				}
			})
		}
	}
}

func TestAVolumeKeepsItsAddressesWhenEarlierOnesGetTooMany(t *testing.T) {
	w := newWorld()
	ports, entries := w.mountAgain(5, 1024)
	const last = "v4"
	entries[last] = listenersv1alpha1.PodListener{
		PersistentVolumeName: "pvc-claim-uid", IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", Ports: ports}},
	}
	w.existing = newObject()
	w.existing.Spec.Listeners = entries
	c, _ := w.mustRun(t)
	if spec := published(t, c); len(spec.Listeners) >= 5 || len(spec.Listeners[last].IngressAddresses) == 0 {
		t.Errorf("%d volumes have entries, and the last one has %d addresses", len(spec.Listeners), len(spec.Listeners[last].IngressAddresses))
	}
}

// many gives the Pod so many inline volumes of a class, and its container so many ports.
func (w *world) many(volumes, ports int) {
	w.Pod.Spec.Volumes, w.Claim, w.Volume, w.Listener = nil, nil, nil, nil
	for i := range volumes {
		w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, objects.InlineVolume(fmt.Sprint("v", i), byClass("public")))
	}
	container := &w.Pod.Spec.Containers[0]
	container.Ports = nil
	for i := range ports {
		port := corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(i + 1)} //nolint:gosec // few
		container.Ports = append(container.Ports, port)
	}
}

// Nobody can create such Pods since there is a policy, but some may have existed before.
func TestAPodWithMoreVolumesThanCountHasListenersForThoseThatDo(t *testing.T) {
	for name, tc := range map[string]struct {
		node           string
		volumes, ports int
		listeners      int
		events         []string // each at least once, and no others
	}{
		"volumes":                 {"node-1", 2500, 1, 16, []string{"WaitingForAddress Volume \"v16\""}},
		"volumes, without a node": {"", 2500, 1, 0, nil},
		"volumes and ports": {"node-1", 2500, 6000, 0, []string{
			"WaitingForAddress Volume \"v16\"", "InvalidPorts Volume",
		}},
		"volumes and ports, without a node":      {"", 2500, 6000, 0, nil},
		"as many volumes and ports as may exist": {"node-1", 16, 64, 16, nil},
		"a port more than the class exposes": {"node-1", 1, 65, 0, []string{
			"has 65 ports, and ListenerClass public allows 64; remove some",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.many(tc.volumes, tc.ports)
			w.Pod.Spec.NodeName = tc.node
			c, recorded := w.mustRun(t)
			var listeners listenersv1alpha1.ListenerList
			if err := c.List(t.Context(), &listeners); err != nil || len(listeners.Items) != tc.listeners {
				t.Errorf("there are %d Listeners, want %d: %v", len(listeners.Items), tc.listeners, err)
			}
			if len(recorded) > 2*listenersv1alpha1.MaxVolumes {
				t.Errorf("there are %d events", len(recorded))
			}
			seen := map[string]bool{}
			for _, event := range drain(recorded) {
				expected := false
				for _, words := range tc.events {
					if strings.Contains(event, words) {
						seen[words], expected = true, true
					}
				}
				if !expected || len(event) > 1100 {
					t.Errorf("unexpected event of %d bytes: %.300s", len(event), event)
				}
			}
			if len(seen) < len(tc.events) {
				t.Errorf("want events with %q, got those with %v", tc.events, seen)
			}
		})
	}
}

// A class may be changed after a Listener has got ports.
func TestAListenerKeepsItsPortsWhenAPodHasMoreThanTheClassExposes(t *testing.T) {
	w := newWorld()
	w.many(1, 65)
	w.Listener = leftListener()
	w.Listener.Name, w.Listener.Annotations[names.AnnotationClaim] = "web-0-v0", "web-0-v0"
	w.Listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "before", Port: 80}}
	c, recorded := w.mustRun(t)
	if ports := stored(t, c, w.Listener).Spec.Ports; len(ports) != 1 || ports[0].Name != "before" {
		t.Errorf("the Listener has the ports %v", ports)
	}
	if event := <-recorded; !strings.Contains(event, "Warning InvalidPorts") {
		t.Errorf("the event is %s", event)
	}
}

// The products of what the author of a Pod chooses are linear in the size of the Pod.
func TestPodsCostLinearTime(t *testing.T) {
	work := func(size int, product bool, change func(w *world, n int)) growth.Work {
		return growth.Work{Size: size, Product: product, Do: func(n int) {
			w := newWorld()
			change(w, n)
			w.mustRun(t)
		}}
	}
	const module = "github.com/listener-operator/listener-operator/internal/"
	growth.CheckLinear(t, map[string]growth.Work{
		"Pod: inline volumes and ports":      work(8, true, func(w *world, n int) { w.many(n, n) }),
		"Pod: many inline volumes and ports": work(500, true, func(w *world, n int) { w.many(n, 2*n) }),
		"Pod: inline volumes that list ports": work(16, true, func(w *world, n int) {
			w.many(n, n)
			for i := range w.Pod.Spec.Volumes {
				w.Pod.Spec.Volumes[i].CSI.VolumeAttributes[names.AnnotationPorts] = strings.Repeat("p1,none,", n)
			}
		}),
		"Pod: labels and volumes": work(200, false, func(w *world, n int) {
			w.many(n, 1)
			w.Pod.Labels = map[string]string{}
			for i := range n {
				w.Pod.Labels[fmt.Sprint(names.PodMountLabelPrefix, i)] = "web"
			}
		}),
		"Pod: containers and mounts": work(30, true, func(w *world, n int) {
			w.many(n, 1)
			for i := range n {
				container := corev1.Container{Name: fmt.Sprint("c", i)}
				for j := range n {
					container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprint("v", j)})
				}
				status := corev1.ContainerStatus{Name: container.Name}
				w.Pod.Spec.Containers = append(w.Pod.Spec.Containers, container)
				w.Pod.Status.ContainerStatuses = append(w.Pod.Status.ContainerStatuses, status)
			}
		}),
	}, ".", module+"claim", module+"cache", module+"message", module+"index", module+"exposure")
}
