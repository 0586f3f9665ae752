package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/test/await"
)

// stepTimeout is how long the Pods of one measurement may take to start, and to be removed.
const stepTimeout = 3 * time.Minute

// settling is how long the requests that follow the start of a Pod, such as events, are still counted.
const settling = 300 * time.Millisecond

// claimSpec returns the spec of a claim with another StorageClass.
func claimSpec(storageClass string) corev1.PersistentVolumeClaimSpec {
	spec := objects.ClaimSpec("")
	spec.StorageClassName = &storageClass
	return spec
}

// started is a Pod whose container runs.
type started struct {
	pod *corev1.Pod
	// began is when the creation of its objects began.
	began, running time.Time
}

func (s started) milliseconds() float64 { return milliseconds(s.running.Sub(s.began)) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// period is when the Pods of one measurement were started, until their removal began.
type period struct{ from, to time.Time }

func (p period) contains(t time.Time) bool { return !t.Before(p.from) && t.Before(p.to) }

// prepare creates the namespace of a variant. If its claims have to be bound, it binds them by a Pod for each of the
// numbers below count.
func (b *Bench) prepare(ctx context.Context, v variant, count int) error {
	if err := b.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v.namespace()}}); err != nil {
		return err
	}
	if err := b.clean(ctx, v); err != nil { // what an interrupted run has left
		return err
	}
	if !v.bound {
		return nil
	}
	for i := range count {
		claim := newClaim(keptName(i))
		claim.Namespace = v.namespace()
		if err := b.create(ctx, claim); err != nil {
			return err
		}
	}
	if _, _, err := b.start(ctx, v, "first", count, "", func([]started) error { return nil }); err != nil {
		return err
	}
	return b.clean(ctx, v)
}

// start creates a number of Pods with their objects concurrently, waits until their containers run, and calls inspect.
// The name of each Pod begins with name. node is the node on which they run, "" for any. The caller has to clean.
func (b *Bench) start(
	ctx context.Context, v variant, name string, count int, node string, inspect func([]started) error,
) ([]started, period, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("%s: %s: not finished after %s", v.name, name, stepTimeout))
	defer cancel()
	running, err := b.watchRunning(ctx, v.namespace())
	if err != nil {
		return nil, period{}, err
	}
	all := make([]started, count)
	p := period{from: time.Now()}
	var group errgroup.Group
	for i := range count {
		objects := v.objects(fmt.Sprintf("%s-%d", name, i), i)
		group.Go(func() (err error) {
			all[i].began = p.from
			all[i].pod, err = b.createPod(ctx, v, objects, node)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, period{}, err
	}
	for i := range all {
		if all[i].pod, all[i].running, err = running.of(ctx, all[i].pod.Name); err != nil {
			return nil, period{}, err
		}
	}
	if err := inspect(all); err != nil {
		return nil, period{}, err
	}
	select {
	case <-time.After(settling):
	case <-ctx.Done():
		return nil, period{}, context.Cause(ctx)
	}
	p.to = time.Now()
	return all, p, nil
}

// createPod creates the objects of a Pod, and returns the Pod, the last one.
func (b *Bench) createPod(ctx context.Context, v variant, objects []client.Object, node string) (pod *corev1.Pod, err error) {
	for _, o := range objects {
		if _, ok := o.(*corev1.PersistentVolume); !ok {
			o.SetNamespace(v.namespace())
		}
		var ok bool
		if pod, ok = o.(*corev1.Pod); ok && node != "" {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		}
		if err := b.api.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
	}
	return pod, nil
}

// runningPods has the Pods of a namespace whose containers run, and since when.
type runningPods struct {
	mutex   sync.Mutex
	changed chan struct{}
	pods    map[string]started
	err     error
}

// watchRunning observes the Pods of a namespace, in which there are none yet, until ctx is done.
func (b *Bench) watchRunning(ctx context.Context, namespace string) (*runningPods, error) {
	var list corev1.PodList
	if err := b.api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
	watcher, err := b.api.Watch(ctx, &list, client.InNamespace(namespace), since)
	if err != nil {
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	r := &runningPods{changed: make(chan struct{}), pods: map[string]started{}}
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning {
				r.add(pod, time.Now())
			}
		}
		r.end(errors.New("the API server has ended the watch of Pods"))
	}()
	return r, nil
}

func (r *runningPods) add(pod *corev1.Pod, now time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, known := r.pods[pod.Name]; known {
		return
	}
	r.pods[pod.Name] = started{pod: pod, running: now}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *runningPods) end(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.err = err
	close(r.changed)
	r.changed = make(chan struct{})
}

// of waits until a Pod's container runs, and returns the Pod and the time at which that was observed.
func (r *runningPods) of(ctx context.Context, name string) (*corev1.Pod, time.Time, error) {
	for {
		r.mutex.Lock()
		s, ok := r.pods[name]
		changed, err := r.changed, r.err
		r.mutex.Unlock()
		switch {
		case ok:
			return s.pod, s.running, nil
		case err != nil:
			return nil, time.Time{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, time.Time{}, fmt.Errorf("waiting for Pod %s to run: %w", name, context.Cause(ctx))
		}
	}
}

// clean deletes the Pods of variants and all of their objects, except for claims that stay bound, and waits until they
// are gone, so that their deletion does not disturb the next measurement.
func (b *Bench) clean(ctx context.Context, all ...variant) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("objects are not removed after %s", stepTimeout))
	defer cancel()
	for _, v := range all {
		if err := b.remove(ctx, v); err != nil {
			return err
		}
	}
	for _, v := range all {
		if err := b.awaitRemoved(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes what the benchmark has created for Pods of a variant.
func (b *Bench) remove(ctx context.Context, v variant) error {
	in := client.InNamespace(v.namespace())
	if err := b.api.DeleteAllOf(ctx, &corev1.Pod{}, in); err != nil {
		return fmt.Errorf("deleting Pods: %w", err)
	}
	var claims corev1.PersistentVolumeClaimList
	var services corev1.ServiceList
	var volumes corev1.PersistentVolumeList
	if err := errors.Join(b.api.List(ctx, &claims, in), b.api.List(ctx, &services, in), b.api.List(ctx, &volumes)); err != nil {
		return fmt.Errorf("listing claims, Services and volumes: %w", err)
	}
	return errors.Join(
		remove(ctx, b.api, claims.Items, func(o *corev1.PersistentVolumeClaim) bool { return metav1.GetControllerOf(o) == nil && !isKept(o) }),
		remove(ctx, b.api, services.Items, func(o *corev1.Service) bool { return metav1.GetControllerOf(o) == nil }),
		remove(ctx, b.api, volumes.Items, func(o *corev1.PersistentVolume) bool {
			return o.Spec.HostPath != nil && o.Spec.ClaimRef != nil && o.Spec.ClaimRef.Namespace == v.namespace()
		}),
	)
}

// remove deletes the objects that own selects, unless they are gone.
func remove[T any, P interface {
	*T
	client.Object
}](ctx context.Context, api client.Client, items []T, own func(P) bool) error {
	for i := range items {
		if o := P(&items[i]); own(o) {
			if err := client.IgnoreNotFound(api.Delete(ctx, o)); err != nil {
				return fmt.Errorf("deleting %T %s: %w", o, o.GetName(), err)
			}
		}
	}
	return nil
}

// awaitRemoved waits until all objects of a variant are gone, except the objects of claims that stay bound.
func (b *Bench) awaitRemoved(ctx context.Context, v variant) error {
	in := client.InNamespace(v.namespace())
	return errors.Join(
		awaitNone(ctx, b.api, &corev1.PodList{}, func(l *corev1.PodList) int { return len(l.Items) }, in),
		awaitNone(ctx, b.api, &corev1.PersistentVolumeClaimList{}, func(l *corev1.PersistentVolumeClaimList) int {
			return countObjects(l.Items, func(o *corev1.PersistentVolumeClaim) bool { return !isKept(o) })
		}, in),
		awaitNone(ctx, b.api, &corev1.PersistentVolumeList{}, func(l *corev1.PersistentVolumeList) int {
			return countObjects(l.Items, func(o *corev1.PersistentVolume) bool {
				return o.Spec.ClaimRef != nil && o.Spec.ClaimRef.Namespace == v.namespace() && !strings.HasPrefix(o.Spec.ClaimRef.Name, kept)
			})
		}),
		awaitNone(ctx, b.api, &listenersv1alpha1.ListenerList{}, func(l *listenersv1alpha1.ListenerList) int {
			return countObjects(l.Items, func(o *listenersv1alpha1.Listener) bool { return !isKept(o) })
		}, in),
		awaitNone(ctx, b.api, &corev1.ServiceList{}, func(l *corev1.ServiceList) int {
			return countObjects(l.Items, func(o *corev1.Service) bool { return !isKept(o) })
		}, in),
		awaitNone(ctx, b.api, &listenersv1alpha1.PodListenersList{}, func(l *listenersv1alpha1.PodListenersList) int { return len(l.Items) }, in),
	)
}

func isKept(o client.Object) bool { return strings.HasPrefix(o.GetName(), kept) }

func countObjects[T any](items []T, counted func(*T) bool) int {
	count := 0
	for i := range items {
		if counted(&items[i]) {
			count++
		}
	}
	return count
}

// awaitNone waits until count returns 0 for the objects that options select.
func awaitNone[L client.ObjectList](ctx context.Context, api client.WithWatch, empty L, count func(L) int, options ...client.ListOption) error {
	_, err := await.List(ctx, api, empty, func(list L) string {
		if left := count(list); left > 0 {
			return fmt.Sprintf("%d objects of %T are left", left, empty)
		}
		return ""
	}, func(string) {}, options...)
	if err != nil {
		return fmt.Errorf("waiting for the removal of objects: %w", err)
	}
	return nil
}

// isRace reports whether an event of a Pod is the kubelet's race with the node authorizer, which does not know yet that
// a Pod of the node needs an object: a claim, or the ConfigMap with the certificates of the API server. The kubelet
// watches the latter, and does not say in the event why it does not have it. It emits none if it has the ConfigMap
// within a second.
func isRace(e *corev1.Event) bool {
	return e.Reason == "FailedMount" &&
		(strings.Contains(e.Message, "no relationship found between node") || strings.Contains(e.Message, "failed to sync configmap cache"))
}

// races returns the names of the Pods in a namespace that the node authorizer made wait.
func (b *Bench) races(ctx context.Context, namespace string) (map[string]bool, error) {
	var events corev1.EventList
	if err := b.api.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	raced := map[string]bool{}
	for i := range events.Items {
		if isRace(&events.Items[i]) {
			raced[events.Items[i].InvolvedObject.Name] = true
		}
	}
	return raced, nil
}

// nodeNumber returns the number of a node of the cluster.
func nodeNumber(name string) int {
	var number int
	_, _ = fmt.Sscanf(name, "node-%d", &number)
	return number
}

// refused reports whether the node authorizer refused a request for the Pod, the only one that started in its namespace
// at that time.
func (s started) refused(refusals []auditv1.Event) bool {
	return slices.ContainsFunc(refusals, func(e auditv1.Event) bool {
		during := period{from: s.began, to: s.running}.contains(e.RequestReceivedTimestamp.Time)
		return during && e.ObjectRef.Namespace == s.pod.Namespace && e.User.Username == nodeUser+s.pod.Spec.NodeName
	})
}
