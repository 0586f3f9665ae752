//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// steadyLoad is a steady load on the cluster: requests from outside to each replica of a StatefulSet at its own
// address, and on each node Pods with a listener volume that start and are deleted one after the other.
type steadyLoad struct {
	*scenario
	class    string
	replicas []*replica
	mounters []*mounter
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// replica is a Pod that answers at an address that must not change.
type replica struct {
	name, node string
	address    listenersv1alpha1.IngressAddress

	mu sync.Mutex
	// requests, lost and wrong are the numbers of requests, of those without an answer, and of those that another Pod
	// answered. answered is when the last request was sent that the Pod answered.
	requests, lost, wrong int
	answered              time.Time
}

// mounter creates Pods with a listener volume on a node.
type mounter struct {
	node string

	mu sync.Mutex
	// ready is the number of Pods that became ready, and created is when the last of them was created.
	ready   int
	created time.Time
}

// requestPeriod is the time between an answer and the next request to a replica.
const requestPeriod = 50 * time.Millisecond

// startSteadyLoad starts the load, and waits until all replicas answer.
func startSteadyLoad(s *scenario) *steadyLoad {
	s.Helper()
	class := s.createClass(pinned())
	ctx, cancel := context.WithCancel(s.ctx)
	l := &steadyLoad{scenario: s, class: class.Name, cancel: cancel}
	s.Cleanup(l.stop)
	set := statefulSet("base", int32(len(testbed.Nodes())), byClass(class.Name)) //nolint:gosec // a handful
	spread(set)
	// Pods stay on a node that is not reached as long as by default in Kubernetes; this cluster's default is shorter.
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		set.Spec.Template.Spec.Tolerations = append(set.Spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
		})
	}
	s.create(set)
	for i, node := range testbed.Nodes() {
		name := fmt.Sprintf("base-%d", i)
		p := s.awaitReady(name)
		r := &replica{name: name, node: p.Spec.NodeName, address: s.awaitPodListener(p, "listener").IngressAddresses[0]}
		s.awaitAnswer(r.address, name)
		l.replicas = append(l.replicas, r)
		l.running.Go(func() { wait.UntilWithContext(ctx, r.request, requestPeriod) })
		m := &mounter{node: testbed.NodeName(node)}
		l.mounters = append(l.mounters, m)
		l.running.Go(func() { l.mount(ctx, m) })
	}
	return l
}

// stop ends the load.
func (l *steadyLoad) stop() {
	l.cancel()
	l.running.Wait()
}

// request requests the name of the replica from outside the cluster.
func (r *replica) request(ctx context.Context) {
	sent := time.Now()
	got, err := requestWith(ctx, patientClient, r.address, "/whoami")
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	switch {
	case err != nil:
		r.lost++
	case got != r.name:
		r.wrong++
	default:
		r.answered = sent
	}
}

// mount creates Pods with a listener volume on a node, and deletes each when it is ready, until ctx is done. It repeats
// what fails because of the API server.
func (l *steadyLoad) mount(ctx context.Context, m *mounter) {
	for i := 0; ctx.Err() == nil; i++ {
		p := l.podOn(m.node, fmt.Sprintf("mount-%s-%d", m.node, i))
		created := time.Now()
		if eventually(ctx, func(ctx context.Context) error { return client.IgnoreAlreadyExists(api.Create(ctx, p.DeepCopy())) }) != nil {
			return
		}
		ready, err := l.awaitReadyOrDeleted(ctx, p.Name)
		if err != nil {
			return
		}
		if ready {
			m.mu.Lock()
			m.ready, m.created = m.ready+1, created
			m.mu.Unlock()
		}
		if eventually(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(api.Delete(ctx, p)) }) != nil {
			return
		}
	}
}

// podOn returns a Pod with a listener volume that runs on a node.
func (l *steadyLoad) podOn(node, name string) *corev1.Pod {
	p := pod(name, byClass(l.class))
	p.Namespace, p.Spec.NodeSelector = l.namespace, onNode(node)
	return p
}

// awaitReadyOrDeleted waits until a Pod is ready, also while the API server fails now and then. It returns false if the
// Pod is deleted before, for example because its node is lost.
func (l *steadyLoad) awaitReadyOrDeleted(ctx context.Context, name string) (ready bool, err error) {
	settled := func(kind watch.EventType, p *corev1.Pod) bool {
		ready = kind != watch.Deleted && p.DeletionTimestamp == nil && isReady(p)
		return ready || kind == watch.Deleted || p.DeletionTimestamp != nil
	}
	return ready, eventually(ctx, func(ctx context.Context) error {
		var pods corev1.PodList
		options := selectObject(l.key(name))
		if err := api.List(ctx, &pods, options); err != nil || len(pods.Items) == 0 || settled(watch.Added, &pods.Items[0]) {
			return err
		}
		// The watch starts at the list's version, so that a deletion in between is not missed.
		options.Raw = &metav1.ListOptions{ResourceVersion: pods.ResourceVersion}
		_, err := watchUntil(ctx, &corev1.Pod{}, options, settled)
		return err
	})
}

// counts are figures of the load at one time.
type counts struct {
	requests, lost, wrong map[string]int // by node
	ready                 int
}

func (l *steadyLoad) counts() counts {
	c := counts{requests: map[string]int{}, lost: map[string]int{}, wrong: map[string]int{}}
	for _, r := range l.replicas {
		r.mu.Lock()
		c.requests[r.node], c.lost[r.node], c.wrong[r.node] = r.requests, r.lost, r.wrong
		r.mu.Unlock()
	}
	for _, m := range l.mounters {
		m.mu.Lock()
		c.ready += m.ready
		m.mu.Unlock()
	}
	return c
}

// awaitRecovery waits until each replica has answered a request, and on each node a Pod has become ready, that was sent
// or created after now.
func (l *steadyLoad) awaitRecovery(ctx context.Context) error {
	since := time.Now()
	return eventually(ctx, func(context.Context) error {
		for _, r := range l.replicas {
			r.mu.Lock()
			answered := r.answered
			r.mu.Unlock()
			if answered.Before(since) {
				return fmt.Errorf("%s does not answer", r.name)
			}
		}
		return errors.Join(l.unready(since)...)
	})
}

// unready returns an error for each node on which no Pod has become ready that was created after a time.
func (l *steadyLoad) unready(since time.Time) (errs []error) {
	for _, m := range l.mounters {
		m.mu.Lock()
		if m.created.Before(since) {
			errs = append(errs, fmt.Errorf("no new Pod on %s becomes ready", m.node))
		}
		m.mu.Unlock()
	}
	return errs
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

// leaks returns what deleted Pods have left in the whole cluster: objects, directories on nodes, and descriptors of
// agents.
func (l *steadyLoad) leaks(ctx context.Context) (left []string, err error) {
	objects, pods, volumes, err := leakedObjects(ctx)
	if err != nil {
		return nil, err
	}
	for _, node := range testbed.Nodes() {
		for dir, owned := range map[string]map[string]bool{filepath.Join(testbed.KubeletDir(node), "pods"): pods, stagingRoot(node): volumes} {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // the kubelet creates it when it is needed
				return nil, err
			}
			for _, entry := range entries {
				if path := filepath.Join(dir, entry.Name()); !owned[entry.Name()] {
					left = append(left, path)
				}
			}
		}
	}
	return append(append(left, objects...), openByAgents()...), nil
}

// leakedObjects returns the objects of this operator whose owner does not exist, and the names of the directories that
// may exist for Pods and for volumes.
func leakedObjects(ctx context.Context) (left []string, podDirs, volumeDirs map[string]bool, err error) {
	var volumes corev1.PersistentVolumeList
	var claims corev1.PersistentVolumeClaimList
	var pods corev1.PodList
	var podListeners listenersv1alpha1.PodListenersList
	var listeners listenersv1alpha1.ListenerList
	var services corev1.ServiceList
	// Owners are listed after what they own, so that none of them is newer than its owner.
	for _, list := range []client.ObjectList{&services, &listeners, &podListeners, &volumes, &claims, &pods} {
		if err := api.List(ctx, list); err != nil {
			return nil, nil, nil, err
		}
	}
	exists, podDirs, volumeDirs := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range pods.Items {
		exists[string(pods.Items[i].UID)], podDirs[string(pods.Items[i].UID)] = true, true
	}
	for i := range claims.Items {
		exists[string(claims.Items[i].UID)] = true
	}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		exists[string(volume.UID)] = true
		volumeDirs[stagingName(volume.Name)] = true
		if ref := volume.Spec.ClaimRef; volume.Spec.StorageClassName == names.Driver && (ref == nil || !exists[string(ref.UID)]) {
			left = append(left, "PersistentVolume "+volume.Name)
		}
	}
	for i := range podListeners.Items {
		if uid := listenersv1alpha1.PodUID(podListeners.Items[i].Name); !exists[string(uid)] {
			left = append(left, "PodListeners "+podListeners.Items[i].Name)
		}
	}
	leaked := func(kind string, o client.Object) {
		owners := o.GetOwnerReferences()
		if len(owners) > 0 && !slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return exists[string(owner.UID)] }) {
			left = append(left, kind+" "+o.GetNamespace()+"/"+o.GetName())
		}
		exists[string(o.GetUID())] = true
	}
	for i := range listeners.Items {
		leaked("Listener", &listeners.Items[i])
	}
	for i := range services.Items {
		if services.Items[i].Labels["app.kubernetes.io/managed-by"] == names.ServiceManagedBy {
			leaked("Service", &services.Items[i])
		}
	}
	return left, podDirs, volumeDirs, nil
}

// maxDescriptors is many more than the descriptors that an agent has open when it does nothing.
const maxDescriptors = 64

// openByAgents returns the files below Pods' directories that node agents have open, and the agents that have many open
// files.
func openByAgents() (open []string) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, command := range commands {
		if content, err := os.ReadFile(command); err != nil || !strings.HasPrefix(string(content), "/node-agent\x00") {
			continue
		}
		links, _ := filepath.Glob(filepath.Join(filepath.Dir(command), "fd", "*"))
		if len(links) > maxDescriptors {
			open = append(open, "descriptors of "+filepath.Dir(command))
		}
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && strings.Contains(target, "/pods/") && strings.Contains(target, "kubernetes.io~csi") {
				open = append(open, target)
			}
		}
	}
	return open
}
