//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// steadyLoad is a steady load on the cluster: requests from outside to each replica of a StatefulSet at its own
// address, and Pods with a listener volume that start and are deleted one after the other.
type steadyLoad struct {
	*scenario
	class    string
	replicas []*replica
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu sync.Mutex
	// started and ready are the numbers of Pods that were created and became ready.
	started, ready int
	// deleted are the uids of the Pods that were deleted, with the nodes that they ran on.
	deleted map[types.UID]string
}

// replica is a Pod that answers at an address that must not change.
type replica struct {
	name, node string
	address    listenersv1alpha1.IngressAddress

	mu sync.Mutex
	// requests, lost and wrong are the numbers of requests, of those without an answer, and of those that another Pod
	// answered. answered is when the last answer arrived.
	requests, lost, wrong int
	answered              time.Time
}

// loadClient allows for nodes that have other work: a late answer is not lost.
var loadClient = &http.Client{
	Timeout: 10 * time.Second,
	Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return testbed.ClientDial(ctx, network, address)
		},
	},
}

// startSteadyLoad starts the load, and waits until all replicas answer.
func startSteadyLoad(s *scenario) *steadyLoad {
	s.Helper()
	class := s.createClass(pinned())
	ctx, cancel := context.WithCancel(s.ctx)
	l := &steadyLoad{scenario: s, class: class.Name, cancel: cancel, deleted: map[types.UID]string{}}
	set := statefulSet("base", int32(len(testbed.Nodes())), byClass(class.Name)) //nolint:gosec // a handful
	set.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "base"}},
	}}
	s.create(set)
	for i := range testbed.Nodes() {
		name := fmt.Sprintf("base-%d", i)
		p := s.awaitReady(name)
		r := &replica{name: name, node: p.Spec.NodeName, address: s.awaitPodListener(p, "listener").IngressAddresses[0]}
		s.awaitAnswer(r.address, name)
		l.replicas = append(l.replicas, r)
		l.running.Go(func() { r.request(ctx) })
	}
	l.running.Go(func() { l.mount(ctx) })
	s.Cleanup(l.stop)
	return l
}

// stop ends the load.
func (l *steadyLoad) stop() {
	l.cancel()
	l.running.Wait()
}

// request requests the name of the replica from outside of the cluster, until ctx is done.
func (r *replica) request(ctx context.Context) {
	for ctx.Err() == nil {
		got, err := requestWith(ctx, loadClient, r.address, "/whoami")
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.requests++
		switch {
		case err != nil:
			r.lost++
		case got != r.name:
			r.wrong++
		default:
			r.answered = time.Now()
		}
		r.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// mount creates Pods with a listener volume, and deletes each when it is ready, until ctx is done. It repeats what
// fails because of the API server.
func (l *steadyLoad) mount(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		p := pod(fmt.Sprintf("mount-%d", i), map[string]map[string]string{"listener": byClass(l.class)})
		p.Namespace = l.namespace
		if eventually(ctx, func(ctx context.Context) error { return client.IgnoreAlreadyExists(api.Create(ctx, p.DeepCopy())) }) != nil {
			return
		}
		l.mu.Lock()
		l.started++
		l.mu.Unlock()
		if l.awaitReadyAndDelete(ctx, client.ObjectKeyFromObject(p)) != nil {
			return
		}
	}
}

// awaitReadyAndDelete waits until a Pod is ready, and deletes it.
func (l *steadyLoad) awaitReadyAndDelete(ctx context.Context, key client.ObjectKey) error {
	p := &corev1.Pod{}
	if err := eventually(ctx, func(ctx context.Context) error {
		time.Sleep(100 * time.Millisecond)
		err := api.Get(ctx, key, p)
		if err == nil && !isReady(p) {
			err = errors.New("not ready")
		}
		if apierrors.IsNotFound(err) || err != nil && p.DeletionTimestamp != nil {
			return nil // evicted, for example from a node that is lost: its mount is not to be continued
		}
		return err
	}); err != nil {
		return err
	}
	l.mu.Lock()
	if isReady(p) {
		l.ready++
	}
	if p.UID != "" {
		l.deleted[p.UID] = p.Spec.NodeName
	}
	l.mu.Unlock()
	return eventually(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(api.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
	})
}

// counts are figures of the load at one time.
type counts struct {
	requests, lost, wrong map[string]int // by node
	started, ready        int
}

func (l *steadyLoad) counts() counts {
	c := counts{requests: map[string]int{}, lost: map[string]int{}, wrong: map[string]int{}}
	for _, r := range l.replicas {
		r.mu.Lock()
		c.requests[r.node], c.lost[r.node], c.wrong[r.node] = r.requests, r.lost, r.wrong
		r.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.started, c.ready = l.started, l.ready
	return c
}

// awaitRecovery waits until each replica answers, and two Pods that were created after now are ready: the first one may
// have been created before.
func (l *steadyLoad) awaitRecovery(ctx context.Context) error {
	since, ready := time.Now(), l.counts().ready
	return eventually(ctx, func(context.Context) error {
		for _, r := range l.replicas {
			r.mu.Lock()
			answered := r.answered
			r.mu.Unlock()
			if answered.Before(since) {
				return fmt.Errorf("%s does not answer", r.name)
			}
		}
		if l.counts().ready < ready+2 {
			return errors.New("no new Pod becomes ready")
		}
		return nil
	})
}

// changedAddresses returns the replicas whose addresses are not those from the beginning.
func (l *steadyLoad) changedAddresses(ctx context.Context) (changed []string, err error) {
	for _, r := range l.replicas {
		p, listeners := &corev1.Pod{}, &listenersv1alpha1.PodListeners{}
		if err := api.Get(ctx, l.key(r.name), p); err != nil {
			return nil, err
		}
		if err := api.Get(ctx, l.key(listenersv1alpha1.PodListenersName(p.UID)), listeners); err != nil {
			return nil, err
		}
		addresses := listeners.Spec.Listeners["listener"].IngressAddresses
		if len(addresses) != 1 || addresses[0].Address != r.address.Address || addresses[0].Ports["http"] != r.address.Ports["http"] {
			changed = append(changed, r.name)
		}
	}
	return changed, nil
}

// leaks returns what the deleted Pods have left: objects, directories, and descriptors that the agents have open below
// directories of Pods.
func (l *steadyLoad) leaks(ctx context.Context) (left []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var volumes corev1.PersistentVolumeList
	var listeners listenersv1alpha1.ListenerList
	var pods corev1.PodList
	var podListeners listenersv1alpha1.PodListenersList
	for _, list := range []client.ObjectList{&volumes, &listeners, &pods, &podListeners} {
		if err := api.List(ctx, list, client.InNamespace(l.namespace)); err != nil {
			return nil, err
		}
	}
	exists := map[string]bool{}
	for i := range pods.Items {
		exists[pods.Items[i].Name] = true
		exists[listenersv1alpha1.PodListenersName(pods.Items[i].UID)] = true
	}
	owned := func(claim string) bool { // the claim is that of a replica, or of a Pod that exists
		return strings.HasPrefix(claim, "listener-base-") || exists[strings.TrimSuffix(claim, "-listener")]
	}
	for i := range volumes.Items {
		if ref := volumes.Items[i].Spec.ClaimRef; volumes.Items[i].Spec.StorageClassName == names.Driver && ref.Namespace == l.namespace && !owned(ref.Name) {
			left = append(left, "PersistentVolume of "+ref.Name)
		}
	}
	for i := range listeners.Items {
		if !owned(listeners.Items[i].Name) {
			left = append(left, "Listener "+listeners.Items[i].Name)
		}
	}
	for i := range podListeners.Items {
		if !exists[podListeners.Items[i].Name] {
			left = append(left, podListeners.Items[i].Name)
		}
	}
	for uid, node := range l.deleted {
		dir := filepath.Join(testbed.KubeletDir(nodeNumber(node)), "pods", string(uid))
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) && !exists[listenersv1alpha1.PodListenersName(uid)] {
			left = append(left, dir)
		}
	}
	return append(left, openByAgents()...), nil
}

// openByAgents returns the files below Pods' directories that node agents have open.
func openByAgents() (open []string) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, command := range commands {
		if content, err := os.ReadFile(command); err != nil || !strings.HasPrefix(string(content), "/node-agent\x00") {
			continue
		}
		links, _ := filepath.Glob(filepath.Join(filepath.Dir(command), "fd", "*"))
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && strings.Contains(target, "/pods/") && strings.Contains(target, "kubernetes.io~csi") {
				open = append(open, target)
			}
		}
	}
	return open
}
