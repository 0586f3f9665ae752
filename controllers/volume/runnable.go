package volume

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// workers is how many claims, and how many volumes, are worked on at once. One costs two requests to the API server.
const workers = 16

// Add makes the manager run the provisioner on its own cache, while it is the leader. applier writes the Listeners of
// class-based claims.
func Add(mgr manager.Manager, applier *apply.Applier) error {
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making the provisioner's client: %w", err)
	}
	return mgr.Add(&runnable{mgr: mgr, clientset: clientset, provisioner: &Provisioner{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Events:    mgr.GetEventRecorder(names.EventReporter),
		Applier:   applier,
	}})
}

// runnable runs the provisioner library as a part of the manager.
type runnable struct {
	mgr         manager.Manager
	clientset   kubernetes.Interface
	provisioner *Provisioner
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: two provisioners would only fight over claims.
func (r *runnable) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns when all work has ended after ctx is done.
func (r *runnable) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, log.FromContext(ctx).WithName("provisioner"))
	claims := &nudgedInformer{}
	var err error
	if claims.SharedIndexInformer, err = r.informer(ctx, &corev1.PersistentVolumeClaim{}); err != nil {
		return err
	}
	volumes, err := r.informer(ctx, &corev1.PersistentVolume{})
	if err != nil {
		return err
	}
	classes, err := r.informer(ctx, &storagev1.StorageClass{})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	provision := controller.NewProvisionController(ctx, r.clientset, names.Driver, r.provisioner,
		controller.ClaimsInformer(claims), controller.VolumesInformer(volumes), controller.ClassesInformer(classes),
		controller.ResyncPeriod(0), controller.LeaderElection(false), controller.MetricsPort(0), controller.Threadiness(workers),
		controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second)),
		controller.CreateProvisionedPVBackoff(wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 6}),
		// There is no storage whose deletion a finalizer would have to wait for; without the option, the library takes
		// the peer's finalizer off the volumes that it left behind.
		controller.AddFinalizer(false),
	)
	provision.ControllerWaitGroup(&running)
	if err := r.watch(ctx, claims); err != nil {
		return err
	}
	provision.Run(ctx)
	running.Wait()
	return nil
}

// watch nudges the claims that wait for an object when that object changes.
func (r *runnable) watch(ctx context.Context, claims *nudgedInformer) error {
	nudger := nudger{reader: r.mgr.GetClient(), nudge: claims.nudge}
	for _, w := range []struct {
		object  client.Object
		waiting waitingFunc
	}{
		{&listenersv1alpha1.ListenerClass{}, nudger.ofClass},
		{&listenersv1alpha1.Listener{}, nudger.ofListener},
		{&corev1.Pod{}, nudger.ofPod},
	} {
		informer, err := r.informer(ctx, w.object)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(nudger.handler(ctx, w.waiting)); err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
	}
	return nil
}

// informer returns the manager's own informer, so that nothing is cached twice.
func (r *runnable) informer(ctx context.Context, o client.Object) (cache.SharedIndexInformer, error) {
	informer, err := r.mgr.GetCache().GetInformer(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("getting the informer of %T: %w", o, err)
	}
	shared, ok := informer.(cache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the informer of %T is a %T, which the provisioner library cannot use", o, informer)
	}
	return shared, nil
}

// nudgedInformer is a claim informer that can also be told to handle a claim again. The library has no other way to be
// told that what a claim waited for has appeared.
type nudgedInformer struct {
	cache.SharedIndexInformer
	handler cache.ResourceEventHandler
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer; the library calls it once, before it runs.
func (i *nudgedInformer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, resync time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync)
}

func (i *nudgedInformer) nudge(claim *corev1.PersistentVolumeClaim) { i.handler.OnUpdate(claim, claim) }

// waitingFunc returns the claims that may wait for an object.
type waitingFunc func(context.Context, client.Object) []types.NamespacedName

// nudger finds the claims that wait for an object.
type nudger struct {
	reader client.Reader
	nudge  func(*corev1.PersistentVolumeClaim)
}

// handler nudges the claims that waiting returns, if they have no volume yet, on every change of an object. What is
// there at the start is no change: the library looks at all claims then.
func (n nudger) handler(ctx context.Context, waiting waitingFunc) cache.ResourceEventHandler {
	changed := func(o any) {
		if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		object, ok := o.(client.Object)
		if !ok {
			return
		}
		for _, key := range waiting(ctx, object) {
			n.nudgeUnbound(ctx, key)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initially bool) {
			if !initially {
				changed(o)
			}
		},
		UpdateFunc: func(_, o any) { changed(o) },
		DeleteFunc: changed,
	}
}

func (n nudger) nudgeUnbound(ctx context.Context, key types.NamespacedName) {
	var pvc corev1.PersistentVolumeClaim
	if err := n.reader.Get(ctx, key, &pvc); err != nil || pvc.Spec.VolumeName != "" {
		return // a claim that is gone, or has its volume, waits for nothing
	}
	n.nudge(&pvc)
}

// ofClass returns the claims that ask for the class, and those that name a Listener of the class.
func (n nudger) ofClass(ctx context.Context, o client.Object) []types.NamespacedName {
	keys := n.claims(ctx, index.ClaimsByClass, o.GetName())
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, n.reader, &listeners, client.MatchingFields{index.ListenersByClass: o.GetName()})
	for i := range listeners.Items {
		keys = append(keys, n.claims(ctx, index.ClaimsByListener, listeners.Items[i].Name, client.InNamespace(listeners.Items[i].Namespace))...)
	}
	return keys
}

// ofListener returns the claims that name the Listener, and the class-based claim of the same name.
func (n nudger) ofListener(ctx context.Context, o client.Object) []types.NamespacedName {
	keys := n.claims(ctx, index.ClaimsByListener, o.GetName(), client.InNamespace(o.GetNamespace()))
	return append(keys, client.ObjectKeyFromObject(o))
}

// ofPod returns the claims that the Pod mounts.
func (n nudger) ofPod(_ context.Context, o client.Object) []types.NamespacedName {
	var keys []types.NamespacedName
	for _, name := range index.PodClaims(o) {
		keys = append(keys, types.NamespacedName{Namespace: o.GetNamespace(), Name: name})
	}
	return keys
}

func (n nudger) claims(ctx context.Context, field, value string, options ...client.ListOption) []types.NamespacedName {
	var claims corev1.PersistentVolumeClaimList
	index.List(ctx, n.reader, &claims, append(options, client.MatchingFields{field: value})...)
	keys := make([]types.NamespacedName, 0, len(claims.Items))
	for i := range claims.Items {
		keys = append(keys, client.ObjectKeyFromObject(&claims.Items[i]))
	}
	return keys
}
