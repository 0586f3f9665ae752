//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// burst is the number of Pods that are started at once on one node.
const burst = 50

// variant is a kind of Pod whose start is measured.
type variant struct {
	name string
	pod  func(name string) *corev1.Pod
}

// variants returns the same Pod with an emptyDir, with a listener volume whose claim is bound, and with a listener
// volume whose claim is new, as at the first start of a StatefulSet. It creates and binds the claims for Pods with
// these names.
func (s *scenario) variants(class string, pods ...string) []variant {
	s.Helper()
	bound := func(name string) *corev1.Pod {
		return podWith(name, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "kept-" + name}})
	}
	var first []*corev1.Pod
	for _, name := range pods {
		s.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "kept-" + name, Annotations: byClass(class)}, Spec: claimSpec()})
		first = append(first, bound(name))
	}
	s.timeStart(first)
	return []variant{
		{"emptyDir", func(name string) *corev1.Pod {
			return podWith(name, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		}},
		{"bound", bound},
		{"fresh", func(name string) *corev1.Pod {
			return pod(name, map[string]map[string]string{"listener": byClass(class)})
		}},
	}
}

// timeStart creates Pods concurrently, waits until their containers run, and removes them and their ephemeral volumes.
// It returns the time that each took from the beginning.
func (s *scenario) timeStart(pods []*corev1.Pod) []time.Duration {
	s.Helper()
	ctx := s.timeoutContext()
	began := time.Now()
	var group errgroup.Group
	for _, p := range pods {
		p.Namespace = s.namespace
		group.Go(func() error { return api.Create(ctx, p) })
	}
	took := map[string]time.Duration{}
	for len(took) < len(pods) {
		_, err := watchUntil(ctx, &corev1.Pod{}, &client.ListOptions{Namespace: s.namespace}, func(kind watch.EventType, p *corev1.Pod) bool {
			if kind != watch.Deleted && p.Status.Phase == corev1.PodRunning && took[p.Name] == 0 {
				took[p.Name] = time.Since(began)
			}
			return len(took) == len(pods)
		})
		if err != nil && !errors.Is(err, errWatchEnded) {
			s.Fatalf("only %d of %d Pods run: %v", len(took), len(pods), err)
		}
	}
	if err := group.Wait(); err != nil {
		s.Fatalf("creating Pods: %v", err)
	}
	s.removeAll(pods)
	var all []time.Duration
	for _, d := range took {
		all = append(all, d)
	}
	return all
}

// removeAll removes Pods and waits until their ephemeral volumes are deleted, so that the deletion does not disturb the
// next measurement.
func (s *scenario) removeAll(pods []*corev1.Pod) {
	s.Helper()
	for _, p := range pods {
		s.remove(p)
	}
	for _, p := range pods {
		mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
		for _, v := range p.Spec.Volumes {
			if v.Ephemeral == nil {
				continue
			}
			claim := s.key(p.Name + "-" + v.Name)
			mustAwaitDeleted(s, &corev1.PersistentVolumeClaim{}, claim)
			mustAwaitDeleted(s, &corev1.Service{}, claim)
		}
	}
	var volumes corev1.PersistentVolumeList
	if err := api.List(s.ctx, &volumes); err != nil {
		s.Fatalf("listing volumes: %v", err)
	}
	for i := range volumes.Items {
		if volumes.Items[i].Status.Phase == corev1.VolumeReleased {
			mustAwaitDeleted(s, &corev1.PersistentVolume{}, client.ObjectKeyFromObject(&volumes.Items[i]))
		}
	}
}

// BenchmarkPodToRunning compares the time from the creation of a Pod until its container runs, one Pod after the other.
// It includes up to a second for a new claim of any driver that waits for the Pod's node: the scheduler checks such
// claims once a second.
func BenchmarkPodToRunning(b *testing.B) {
	s := newScenario(b)
	all := s.variants(s.createClass(unpinned()).Name, "web")
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, c := range all {
			took[c.name] = append(took[c.name], s.timeStart([]*corev1.Pod{c.pod("web")})...)
		}
	}
	for _, c := range all {
		report(b, c.name, took[c.name])
	}
}

// BenchmarkBurstToRunning compares the same for many Pods at once on one node.
func BenchmarkBurstToRunning(b *testing.B) {
	s := newScenario(b)
	var members []string
	for i := range burst {
		members = append(members, fmt.Sprintf("web-%d", i))
	}
	all := s.variants(s.createClass(unpinned()).Name, members...)
	took, last := map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for _, c := range all {
			var pods []*corev1.Pod
			for _, name := range members {
				p := c.pod(name)
				p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: testbed.NodeName(1)}
				pods = append(pods, p)
			}
			durations := s.timeStart(pods)
			took[c.name], last[c.name] = append(took[c.name], durations...), append(last[c.name], slices.Max(durations))
		}
	}
	for _, c := range all {
		report(b, c.name, took[c.name])
		report(b, c.name+"-last", last[c.name])
	}
}

// BenchmarkAddressToFile measures the time from the change of a load balancer's address until the file in the Pod has
// it.
func BenchmarkAddressToFile(b *testing.B) {
	s := newScenario(b)
	spec := loadBalanced()
	spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeIP
	s.create(pod("web", map[string]map[string]string{"listener": byClass(s.createClass(spec).Name)}))
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	var service corev1.Service
	s.get(&service, s.key("web-listener"))
	s.assignAddress(&service, "192.0.2.1")
	p := s.awaitReady("web")
	var claim corev1.PersistentVolumeClaim
	s.get(&claim, s.key("web-listener"))
	file := filepath.Join(podDir(p), "volumes", "kubernetes.io~csi", claim.Spec.VolumeName, "mount", "default-address", "address")
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		address := fmt.Sprintf("192.0.2.%d", 2+i%100)
		began := time.Now()
		s.assignAddress(&service, address)
		if err := wait.PollUntilContextCancel(s.timeoutContext(), time.Millisecond, true, func(context.Context) (bool, error) {
			content, err := os.ReadFile(file)
			return string(bytes.TrimSpace(content)) == address, err
		}); err != nil {
			b.Fatalf("waiting for %s to have %s: %v", file, address, err)
		}
		took = append(took, time.Since(began))
	}
	report(b, "change", took)
}

// report adds the median and the 99th percentile of durations in milliseconds to a benchmark's line.
func report(b *testing.B, name string, took []time.Duration) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // hides the total time of all variants, which means nothing
	slices.Sort(took)
	for _, percent := range []int{50, 99} {
		value := took[(len(took)*percent+99)/100-1]
		b.ReportMetric(float64(value.Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", name, percent))
	}
}
