//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// userData is the data of a Pod that an upgrade must not change.
type userData struct {
	UID       types.UID
	Restarts  int32
	Node      string
	Addresses []listenersv1alpha1.IngressAddress
	// Service is the uid of the Pod's Service, and Ports are its node ports.
	Service types.UID
	Ports   []int32
	Files   map[string]string
}

// collectUserData returns the data of the scenario's Pods, by name.
func (m *olmScenario) collectUserData() map[string]userData {
	m.Helper()
	var pods corev1.PodList
	m.must(api.List(m.ctx, &pods, client.InNamespace(m.namespace)))
	all := map[string]userData{}
	for i := range pods.Items {
		p := &pods.Items[i]
		listener := p.Name + "-listener"
		if strings.HasPrefix(p.Name, "broker-") {
			listener = "listener-" + p.Name
		}
		service := mustGet(m.scenario, &corev1.Service{}, m.key(listener))
		d := userData{UID: p.UID, Node: p.Spec.NodeName, Addresses: m.awaitPodListener(p, "listener").IngressAddresses, Service: service.UID}
		for _, c := range p.Status.ContainerStatuses {
			d.Restarts += c.RestartCount
		}
		d.Files = m.readFiles(d.Addresses[0])
		for _, port := range service.Spec.Ports {
			d.Ports = append(d.Ports, port.NodePort)
		}
		all[p.Name] = d
	}
	return all
}

// checkUserData checks that the data of Pods is unchanged, and that clients reach them.
func (m *olmScenario) checkUserData(before map[string]userData) {
	m.Helper()
	if diff := cmp.Diff(before, m.collectUserData()); diff != "" {
		m.Errorf("data of users changed (-before +after):\n%s", diff)
	}
	for name, d := range before {
		if got, err := request(m.timeoutContext(), d.Addresses[0], "/whoami"); err != nil || got != name {
			m.Errorf("%s: %q answered, %v", name, got, err)
		}
	}
}

// load is what users do during an upgrade.
type load struct {
	cancel   context.CancelFunc
	work     sync.WaitGroup
	mu       sync.Mutex
	requests int
	slowest  time.Duration
	mounts   []time.Duration
	// unavailable is the highest number of agents that were unavailable at once.
	unavailable int32
	// failures are the errors, by activity.
	failures map[string]*failure
}

// failure is the number of errors of an activity, and the first of them.
type failure struct {
	times int
	first error
}

// startLoad starts clients outside the cluster that send requests to the Pods, starts and deletes Pods with new
// volumes, and watches the number of unavailable agents.
func (m *olmScenario) startLoad(pods map[string]userData) *load {
	ctx, cancel := context.WithCancel(m.ctx)
	l := &load{cancel: cancel, failures: map[string]*failure{}}
	for name, d := range pods {
		l.work.Go(func() { l.sendRequests(ctx, name, d.Addresses[0]) })
	}
	l.work.Go(func() { l.startPods(ctx, m) })
	l.work.Go(func() { l.watchAgents(ctx, m.operatorNamespace) })
	return l
}

// sendRequests requests the name of a Pod repeatedly.
func (l *load) sendRequests(ctx context.Context, want string, a listenersv1alpha1.IngressAddress) {
	for ctx.Err() == nil {
		began := time.Now()
		got, err := requestWith(context.WithoutCancel(ctx), patientClient, a, "/whoami")
		if err == nil && got != want {
			err = fmt.Errorf("%q answered", got)
		}
		l.record(func() {
			l.requests++
			l.slowest = max(l.slowest, time.Since(began))
			l.recordError("requesting "+want, err)
		})
		select {
		case <-ctx.Done():
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// startPods creates and deletes Pods one after another.
func (l *load) startPods(ctx context.Context, m *olmScenario) {
	for i := 0; ctx.Err() == nil; i++ {
		p := pod(fmt.Sprintf("mount-%d", i), byClass("external-unstable"))
		p.Namespace = m.namespace
		began := time.Now()
		err := createAndDelete(context.WithoutCancel(ctx), p)
		l.record(func() {
			l.mounts = append(l.mounts, time.Since(began))
			l.recordError("starting and deleting Pods", err)
		})
	}
}

// createAndDelete creates a Pod, waits until it is ready, and deletes it.
func createAndDelete(ctx context.Context, p *corev1.Pod) error {
	creation, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := api.Create(creation, p); err != nil {
		return err
	}
	_, err := await(creation, &corev1.Pod{}, client.ObjectKeyFromObject(p), isReady)
	deletion, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return errors.Join(err, api.Delete(deletion, p), awaitDeleted(deletion, &corev1.Pod{}, client.ObjectKeyFromObject(p)))
}

// watchAgents watches the number of unavailable agents.
func (l *load) watchAgents(ctx context.Context, namespace string) {
	_, err := watchUntil(ctx, &appsv1.DaemonSet{}, selectObject(client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}),
		func(_ watch.EventType, d *appsv1.DaemonSet) bool {
			l.record(func() { l.unavailable = max(l.unavailable, d.Status.NumberUnavailable) })
			return false
		})
	if ctx.Err() == nil {
		l.record(func() { l.recordError("watching the agents", err) })
	}
}

func (l *load) record(write func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	write()
}

// recordError records an error unless it is nil.
func (l *load) recordError(doing string, err error) {
	if err == nil {
		return
	}
	if l.failures[doing] == nil {
		l.failures[doing] = &failure{first: err}
	}
	l.failures[doing].times++
}

// stopAndCheck stops the load and checks that there were no errors, and at most one unavailable agent.
func (l *load) stopAndCheck(m *olmScenario) {
	m.Helper()
	l.cancel()
	l.work.Wait()
	for doing, f := range l.failures {
		m.Errorf("%s failed %d times, first with: %v", doing, f.times, f.first)
	}
	slices.Sort(l.mounts)
	m.Logf("%d requests, the slowest took %s; %d Pods started and deleted, each in %s (median; slowest %s); at most %d agents were unavailable at once",
		l.requests, l.slowest.Round(time.Millisecond), len(l.mounts), l.mounts[len(l.mounts)/2].Round(time.Millisecond),
		l.mounts[len(l.mounts)-1].Round(time.Millisecond), l.unavailable)
	if l.unavailable > 1 {
		m.Errorf("%d agents were unavailable at once, want at most a tenth, which is 1", l.unavailable)
	}
}
