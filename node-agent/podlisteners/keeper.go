package podlisteners

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/retry"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// workers is how many Pods are looked at at once, so that one whose volume is full of rubbish does not delay all
// others.
const workers = 4

// Keeper keeps the volumes of running Pods as their PodListeners are. Everything is looked up at the kubelet, so a
// Keeper knows nothing that a restart of the agent would lose.
//
// It takes nothing away: addresses stay in a volume until there are others, whatever becomes of its PodListeners, and
// only the kubelet knows when a Pod has no more use for them. A kubelet that was away unpublishes the volumes of Pods
// that are gone when it is back.
type Keeper struct {
	watch *Watch
	host  *volume.Host
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// NewKeeper returns the Keeper of a kubelet's volumes. It must be made before the Watch runs.
func NewKeeper(watch *Watch, host *volume.Host) *Keeper {
	k := &Keeper{watch: watch, host: host, queue: workqueue.NewTypedRateLimitingQueue(retry.Limiter[cache.ObjectName]())}
	watch.onChange = func(o *listenersv1alpha1.PodListeners) { k.queue.Add(cache.MetaObjectToName(o)) }
	return k
}

// Run works until ctx is done. All objects that exist when the Watch starts are looked at, so volumes that changed
// while the agent was away are brought up to date.
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
	object := k.watch.get(key)
	if object == nil || !object.Trusted() {
		return nil
	}
	published, err := k.host.Published(listenersv1alpha1.PodUID(key.Name))
	// Whoever may write PodListeners in one namespace must not reach Pods of others by a name that has their uid.
	published = slices.DeleteFunc(published, func(v volume.Published) bool { return v.Namespace != "" && v.Namespace != key.Namespace })
	return errors.Join(err, k.rewrite(ctx, object, published))
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
