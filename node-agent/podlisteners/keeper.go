package podlisteners

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/retry"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// workers is how many Pods are looked at at once, so that one whose volume is full of rubbish does not delay all others.
const workers = 4

// Keeper keeps the volumes of running Pods as their PodListeners are. Everything is looked up at the kubelet, so a Keeper knows nothing
// that a restart of the agent would lose.
//
// It also removes the content of volumes of Pods that are gone without the kubelet having unpublished them. The agent has no right to read
// Pods, so it lets others find out: when the PodListeners of a Pod with published volumes is deleted, it creates the hint anew.
// If the Pod is gone, the garbage collector or the operator deletes that one, too; if it lives, the operator fills it, and
// nothing was lost.
type Keeper struct {
	watch *Watch
	host  *volume.Host
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]

	mu sync.Mutex
	// lost is the object that was deleted last.
	lost map[cache.ObjectName]*listenersv1alpha1.PodListeners
	// asked is the uid of the hint that was created after a deletion.
	asked map[cache.ObjectName]types.UID
}

// NewKeeper returns the Keeper of a kubelet's volumes. It must be made before the Watch runs.
func NewKeeper(watch *Watch, host *volume.Host) *Keeper {
	k := &Keeper{
		watch: watch,
		host:  host,
		queue: workqueue.NewTypedRateLimitingQueue(retry.Limiter[cache.ObjectName]()),
		lost:  map[cache.ObjectName]*listenersv1alpha1.PodListeners{},
		asked: map[cache.ObjectName]types.UID{},
	}
	watch.onChange = func(o *listenersv1alpha1.PodListeners) { k.queue.Add(cache.MetaObjectToName(o)) }
	watch.onDelete = func(o *listenersv1alpha1.PodListeners) {
		k.mu.Lock()
		k.lost[cache.MetaObjectToName(o)] = o
		k.mu.Unlock()
		k.queue.Add(cache.MetaObjectToName(o))
	}
	return k
}

// Run works until ctx is done. All objects that exist when the Watch starts are looked at, so volumes that changed while the agent was away
// are brought up to date.
func (k *Keeper) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, k.queue.ShutDown)()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { k.work(ctx) })
	}
	group.Wait()
}

func (k *Keeper) work(ctx context.Context) {
	for {
		key, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.keep(ctx, key); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Volumes of a Pod could not be kept up to date, trying again", "podListeners", key.String())
			k.queue.AddRateLimited(key)
		} else {
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

// Addresses is that of the Watch.
func (k *Keeper) Addresses(ctx context.Context, pod Pod, volume string) ([]listenersv1alpha1.IngressAddress, error) {
	return k.watch.Addresses(ctx, pod, volume)
}

// Recheck brings the published volumes of a Pod up to date, later.
func (k *Keeper) Recheck(pod Pod) { k.queue.Add(pod.key()) }

func (k *Keeper) keep(ctx context.Context, key cache.ObjectName) error {
	published, err := k.host.Published(uidOf(key.Name))
	// Whoever may write PodListeners in one namespace must not reach Pods of others by a name that has their uid.
	published = slices.DeleteFunc(published, func(v volume.Published) bool { return v.Namespace != "" && v.Namespace != key.Namespace })
	if len(published) == 0 {
		k.forget(key)
		return err
	}
	switch object := k.watch.get(key); {
	case object == nil:
		return errors.Join(err, k.inquire(ctx, key, published))
	case object.Trusted():
		k.forget(key)
		return errors.Join(err, k.rewrite(ctx, object, published))
	default:
		return err
	}
}

// rewrite writes addresses that have changed. Volumes without an address keep what they have.
func (k *Keeper) rewrite(ctx context.Context, object *listenersv1alpha1.PodListeners, published []volume.Published) error {
	var errs []error
	for _, v := range published {
		addresses := addressesOf(object, v.ID)
		if len(addresses) == 0 {
			continue
		}
		v.Namespace = object.Namespace
		written, err := k.host.Update(v.Target, addresses)
		if written.Changed {
			logr.FromContextOrDiscard(ctx).Info("Rewrote the addresses in a volume", "volume", v.ID, "podListeners", cache.MetaObjectToName(object).String(),
				"skipped", written.Skipped)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// inquire finds out whether a Pod whose PodListeners was deleted lives, and removes the content of its volumes if not.
func (k *Keeper) inquire(ctx context.Context, key cache.ObjectName, published []volume.Published) error {
	k.mu.Lock()
	lost, asked := k.lost[key], k.asked[key]
	k.mu.Unlock()
	pod, ok := Pod{}, false
	if lost != nil {
		pod, ok = podOf(lost)
	}
	switch {
	case !ok:
		return nil // it was deleted while the agent was away: the operator makes that of a living Pod again
	case asked == "", asked == lost.UID && lost.Trusted(): // it was filled in the meantime: the Pod lived
		return k.ask(ctx, pod)
	case asked == lost.UID:
		return k.remove(ctx, pod, published)
	default:
		return nil // the answer comes with the watch
	}
}

// ask creates the hint of a Pod that may be gone.
func (k *Keeper) ask(ctx context.Context, pod Pod) error {
	uid, err := k.watch.create(ctx, pod)
	if err != nil || uid == "" {
		return err
	}
	k.mu.Lock()
	k.asked[pod.key()] = uid
	k.mu.Unlock()
	k.queue.Add(pod.key()) // the answer may have come before the uid
	return nil
}

func (k *Keeper) remove(ctx context.Context, pod Pod, published []volume.Published) error {
	var errs []error
	for _, v := range published {
		if v.Namespace == "" {
			continue // the peer wrote it, and it is not certain whose it is: the kubelet will see to it
		}
		if err := k.host.Remove(v.Target); err != nil {
			errs = append(errs, fmt.Errorf("removing a volume of Pod %s, which is gone: %w", pod, err))
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("Removed a volume whose Pod is gone", "volume", v.ID, "pod", pod.String())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	k.forget(pod.key())
	return nil
}

func (k *Keeper) forget(key cache.ObjectName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, key)
	delete(k.asked, key)
}
