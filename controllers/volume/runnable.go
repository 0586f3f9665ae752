package volume

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// workers is the number of claims, and of volumes, that are processed concurrently.
const workers = 16

// Add lets the manager run the provisioner on the cache of the manager, while it is the leader. applier writes
// Listeners of earlier claims.
func Add(mgr manager.Manager, applier *apply.Applier) error {
	return add(mgr, applier, mgr.GetEventRecorder(names.EventReporter))
}

func add(mgr manager.Manager, applier *apply.Applier, recorder events.EventRecorder) error {
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating the client of the provisioner: %w", err)
	}
	return mgr.Add(&runnable{mgr: mgr, clientset: clientset, provisioner: &Provisioner{
		Client:  mgr.GetClient(),
		Events:  recorder,
		Applier: applier,
	}})
}

// runnable runs the provisioner library in the manager.
type runnable struct {
	mgr         manager.Manager
	clientset   kubernetes.Interface
	provisioner *Provisioner
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: two provisioners would provision the same claims.
func (r *runnable) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns when ctx is done and all workers have stopped.
func (r *runnable) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, log.FromContext(ctx).WithName("provisioner"))
	claims := &claimInformer{}
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
	claims.classes = classes.GetStore()
	waiting := waitingClaims{reader: r.mgr.GetClient(), requeue: claims.requeue}
	r.provisioner.requeue = func(claim types.NamespacedName) { waiting.requeueUnbound(ctx, claim) }
	var running sync.WaitGroup
	provision := controller.NewProvisionController(ctx, libraryClientset{r.clientset, r.provisioner.Events}, names.Driver, r.provisioner,
		controller.ClaimsInformer(claims), controller.VolumesInformer(volumes), controller.ClassesInformer(classes),
		controller.ResyncPeriod(0), controller.LeaderElection(false), controller.MetricsPort(0), controller.Threadiness(workers),
		controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second)),
		controller.CreateProvisionedPVBackoff(wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 6}),
		// A volume has no storage whose deletion a finalizer would have to wait for. The library then also removes the
		// finalizer from volumes that Stackable's listener operator provisioned.
		controller.AddFinalizer(false),
	)
	provision.ControllerWaitGroup(&running)
	if err := r.watch(ctx, waiting); err != nil {
		return err
	}
	list := func() []pendingClaim { return r.provisioner.pending.list(r.provisioner.unbound(ctx)) }
	waitingClaimsMetric.list.Store(&list)
	defer waitingClaimsMetric.list.Store(nil)
	running.Go(func() { r.provisioner.repeat(ctx, claims.requeue) })
	provision.Run(ctx)
	running.Wait()
	return nil
}

// watch requeues the claims that wait for an object when that object changes.
func (r *runnable) watch(ctx context.Context, waiting waitingClaims) error {
	for _, w := range []struct {
		object   client.Object
		toClaims mapFunc
	}{
		{&listenersv1alpha1.ListenerClass{}, waiting.classToClaims},
		{&listenersv1alpha1.Listener{}, waiting.listenerToClaims},
		{&corev1.Pod{}, waiting.podToClaims},
		{tenancy.Namespace(), waiting.namespaceToClaims},
		{&storagev1.StorageClass{}, waiting.storageClassToClaims},
		{&corev1.PersistentVolume{}, waiting.volumeToClaims},
	} {
		informer, err := r.informer(ctx, w.object)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(waiting.handler(ctx, w.toClaims)); err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
	}
	return nil
}

// informer returns the informer of the manager, so that nothing is cached twice.
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

// claimInformer is the informer of claims of the library. It can requeue a claim: the library has no other means to
// handle a claim again when an object that it waits for has changed.
type claimInformer struct {
	cache.SharedIndexInformer
	// classes has the StorageClasses.
	classes cache.Store
	handler cache.ResourceEventHandler
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer; the library calls it once, before it runs.
func (i *claimInformer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, resync time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync)
}

func (i *claimInformer) requeue(claim *corev1.PersistentVolumeClaim) {
	i.handler.OnUpdate(claim, claim)
}

// GetIndexer implements cache.SharedIndexInformer; the library reads claims from it.
func (i *claimInformer) GetIndexer() cache.Indexer {
	return claimIndexer{i.SharedIndexInformer.GetIndexer(), i.classes}
}

// claimIndexer returns claims as they will be when Kubernetes' PersistentVolume controller has annotated them with the
// provisioner of their StorageClass, for which the library would wait. That controller handles one claim after the
// other; it binds one whose volume exists already without annotating it first.
type claimIndexer struct {
	cache.Indexer
	classes cache.Store
}

// ByIndex implements cache.Indexer.
func (i claimIndexer) ByIndex(name, value string) ([]any, error) {
	objects, err := i.Indexer.ByIndex(name, value)
	for n, o := range objects {
		if claim, ok := o.(*corev1.PersistentVolumeClaim); ok && i.willBeAnnotated(claim) {
			claim = claim.DeepCopy()
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, names.AnnotationProvisioner, names.Driver)
			objects[n] = claim
		}
	}
	return objects, err
}

// willBeAnnotated reports whether a claim needs a volume of this driver, and for no selected node.
func (i claimIndexer) willBeAnnotated(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.VolumeName != "" || claim.Spec.StorageClassName == nil || claim.DeletionTimestamp != nil {
		return false
	}
	o, exists, err := i.classes.GetByKey(*claim.Spec.StorageClassName)
	if err != nil || !exists {
		return false
	}
	class, ok := o.(*storagev1.StorageClass)
	return ok && class.Provisioner == names.Driver && ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate
}

// change is what has happened to an object.
type change int

const (
	added change = iota
	updated
	deleted
)

// mapFunc returns the claims that may wait for such a change of an object.
type mapFunc func(context.Context, change, client.Object) []types.NamespacedName

// waitingClaims requeues claims that wait for an object.
type waitingClaims struct {
	reader  client.Reader
	requeue func(*corev1.PersistentVolumeClaim)
}

// handler returns an event handler that requeues the claims without a volume that toClaims returns. It ignores the
// initial list, because the library handles all claims at the start.
func (w waitingClaims) handler(ctx context.Context, toClaims mapFunc) cache.ResourceEventHandler {
	changed := func(what change, o any) {
		if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		object, ok := o.(client.Object)
		if !ok {
			return
		}
		for _, key := range toClaims(ctx, what, object) {
			w.requeueUnbound(ctx, key)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initially bool) {
			if !initially {
				changed(added, o)
			}
		},
		UpdateFunc: func(_, o any) { changed(updated, o) },
		DeleteFunc: func(o any) { changed(deleted, o) },
	}
}

func (w waitingClaims) requeueUnbound(ctx context.Context, key types.NamespacedName) {
	var pvc corev1.PersistentVolumeClaim
	if err := w.reader.Get(ctx, key, &pvc); err != nil || pvc.Spec.VolumeName != "" {
		return // a claim that does not exist or has a volume does not wait
	}
	w.requeue(&pvc)
}

// classToClaims returns the claims of the class, and those that name a Listener of the class.
func (w waitingClaims) classToClaims(ctx context.Context, _ change, o client.Object) []types.NamespacedName {
	keys := w.claims(ctx, client.MatchingFields{index.ClaimsByClass: o.GetName()})
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, w.reader, &listeners, client.MatchingFields{index.ListenersByClass: o.GetName()})
	for i := range listeners.Items {
		keys = append(keys, w.listenerToClaims(ctx, updated, &listeners.Items[i])...)
	}
	return keys
}

// listenerToClaims returns the claims that name the Listener, and if it is deleted the class-based claim of the same
// name. That one does not wait for any other change: the Listener is usually its own.
func (w waitingClaims) listenerToClaims(ctx context.Context, what change, o client.Object) []types.NamespacedName {
	keys := w.claims(ctx, client.MatchingFields{index.ClaimsByListener: o.GetName()}, client.InNamespace(o.GetNamespace()))
	if what == deleted {
		keys = append(keys, client.ObjectKeyFromObject(o))
	}
	return keys
}

// podToClaims returns the claims that a new Pod mounts. Later changes of the Pod, such as those of its status, do not
// matter to its claims.
func (w waitingClaims) podToClaims(_ context.Context, what change, o client.Object) []types.NamespacedName {
	if what != added {
		return nil
	}
	var keys []types.NamespacedName
	for _, name := range index.PodClaims(o) {
		keys = append(keys, types.NamespacedName{Namespace: o.GetNamespace(), Name: name})
	}
	return keys
}

// namespaceToClaims returns the claims of the namespace, because classes may select namespaces by labels.
func (w waitingClaims) namespaceToClaims(ctx context.Context, _ change, o client.Object) []types.NamespacedName {
	return w.claims(ctx, client.InNamespace(o.GetName()))
}

// storageClassToClaims returns the claims of a StorageClass that was created, for example again after it was deleted by
// hand.
func (w waitingClaims) storageClassToClaims(ctx context.Context, what change, o client.Object) []types.NamespacedName {
	if what != added || o.(*storagev1.StorageClass).Provisioner != names.Driver {
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	index.List(ctx, w.reader, &claims)
	var keys []types.NamespacedName
	for i := range claims.Items {
		if c := &claims.Items[i]; c.Spec.VolumeName == "" && volumehelpers.GetPersistentVolumeClaimClass(c) == o.GetName() {
			keys = append(keys, client.ObjectKeyFromObject(c))
		}
	}
	return keys
}

// volumeToClaims returns the claim of a volume that was deleted, for example by hand before the claim was bound to it.
func (w waitingClaims) volumeToClaims(_ context.Context, what change, o client.Object) []types.NamespacedName {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if what != deleted || ref == nil || !claim.IsListenerVolume(o.(*corev1.PersistentVolume)) {
		return nil
	}
	return []types.NamespacedName{{Namespace: ref.Namespace, Name: ref.Name}}
}

func (w waitingClaims) claims(ctx context.Context, options ...client.ListOption) []types.NamespacedName {
	var claims corev1.PersistentVolumeClaimList
	index.List(ctx, w.reader, &claims, options...)
	keys := make([]types.NamespacedName, 0, len(claims.Items))
	for i := range claims.Items {
		keys = append(keys, client.ObjectKeyFromObject(&claims.Items[i]))
	}
	return keys
}
