package podlisteners

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// workers is the number of Pods that are processed concurrently, so that one whose volume takes long, because it has
// very many files, does not delay all others.
const workers = 4

// checkInterval is how often all published volumes are checked, because containers may have deleted what is in them. A
// check reads a few files of each volume. Unlike a notification of each change, it does not cost more if a container
// changes its volume all the time.
const checkInterval = 30 * time.Second

// linkInterval is how often the links of all published volumes are checked, which costs far less: a container that
// waits for a restore of files must not start with the addresses of the backup.
const linkInterval = time.Second

// firstRetry and lastRetry bound how long a failed write waits until it is repeated.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Syncer updates the published volumes of Pods when their PodListeners objects change, and repairs them. It finds the
// volumes in the kubelet's directory, and has no state that a restart of the node agent would lose.
//
// It never removes anything: addresses stay in a volume until there are new ones, even if the PodListeners object is
// deleted, because only the kubelet knows when a Pod has ended. A kubelet that was stopped unpublishes the volumes of
// deleted Pods when it runs again.
type Syncer struct {
	watch *Watch
	host  *volume.Host
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// checkInterval is the constant of this name, but in tests.
	checkInterval time.Duration
}

// NewSyncer returns a Syncer for the volumes of a kubelet. It must be called before Run of the Watch.
func NewSyncer(watch *Watch, host *volume.Host) *Syncer {
	s := &Syncer{
		watch: watch, host: host,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry)),
		checkInterval: checkInterval,
	}
	watch.onChange = func(o *listenersv1alpha1.PodListeners) { s.queue.Add(cache.MetaObjectToName(o)) }
	return s
}

// Run updates volumes until ctx is done. It processes all objects that exist when the Watch starts, so that it updates
// volumes whose addresses changed while the agent did not run.
func (s *Syncer) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { s.work(ctx) })
	}
	group.Go(func() { wait.UntilWithContext(ctx, s.check, s.checkInterval) })
	group.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { s.host.Relink() }, linkInterval) })
	group.Wait()
}

// check updates the published volumes of all Pods asynchronously.
func (s *Syncer) check(context.Context) {
	for _, o := range s.watch.objects.List() {
		s.queue.Add(cache.MetaObjectToName(o.(*listenersv1alpha1.PodListeners)))
	}
}

func (s *Syncer) work(ctx context.Context) {
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		if err := s.sync(ctx, key); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Updating the volumes of a Pod failed, retrying", "podListeners",
				key.String())
			s.queue.AddRateLimited(key)
		} else {
			s.queue.Forget(key)
		}
		s.queue.Done(key)
	}
}

// Addresses calls Addresses of the Watch.
func (s *Syncer) Addresses(ctx context.Context, pod Pod, volume string) ([]listenersv1alpha1.IngressAddress, error) {
	return s.watch.Addresses(ctx, pod, volume)
}

// Recheck updates the published volumes of a Pod asynchronously.
func (s *Syncer) Recheck(pod Pod) { s.queue.Add(pod.key()) }

func (s *Syncer) sync(ctx context.Context, key cache.ObjectName) error {
	object := s.watch.get(key)
	if object == nil {
		return nil
	}
	published, err := s.host.Published(listenersv1alpha1.PodUID(key.Name))
	// Users who may write PodListeners in one namespace could otherwise change the volumes of Pods in other namespaces,
	// by an object whose name has the uid of such a Pod.
	published = slices.DeleteFunc(published, func(v volume.Published) bool {
		return v.Namespace != key.Namespace && (v.Namespace != "" || s.watch.ambiguous(key))
	})
	return errors.Join(err, s.rewrite(ctx, object, published))
}

// rewrite updates volumes whose addresses have changed. Volumes for which the object has no address are not changed.
func (s *Syncer) rewrite(ctx context.Context, object *listenersv1alpha1.PodListeners,
	published []volume.Published) error {
	var errs []error
	for _, v := range published {
		if v.Inline {
			v.ID = Inline(v.Name)
		}
		addresses := addressesOf(object, v.ID)
		if len(addresses) == 0 {
			continue
		}
		v.Namespace = object.Namespace
		written, err := s.host.Update(v.Target, addresses)
		if written.Changed {
			logr.FromContextOrDiscard(ctx).Info("Rewrote the addresses in a volume", "volume", v.ID, "podListeners",
				cache.MetaObjectToName(object).String(),
				"skipped", written.Skipped)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
