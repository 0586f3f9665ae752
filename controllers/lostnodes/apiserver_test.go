package lostnodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crash"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// cluster is an API server with a cache of its objects. The tests call Reconcile by themselves.
type cluster struct {
	*apiserver.World
	cached   client.Client
	replaced replacement
}

// replacement is a claim whose volume is to be replaced, as Stackable's listener operator left it.
type replacement struct {
	claim    *corev1.PersistentVolumeClaim
	pv       *corev1.PersistentVolume
	listener *listenersv1alpha1.Listener
}

func newCluster(t *testing.T) *cluster {
	return &cluster{World: apiserver.NewWorld(t), cached: startCache(t)}
}

// startCache returns a client that reads from a cache like the operator's.
func startCache(t *testing.T) client.Client {
	mgr := apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		for _, o := range []client.Object{
			&corev1.Pod{}, &corev1.Node{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{},
			&listenersv1alpha1.Listener{}, &listenersv1alpha1.ListenerClass{},
		} {
			if _, err := mgr.GetCache().GetInformer(t.Context(), o); err != nil {
				return err
			}
		}
		return nil
	})
	return mgr.GetClient()
}

// create creates a claim that is bound to a volume, which is pinned to a node that is lost for an hour.
func (c *cluster) create() {
	c.Helper()
	w := newWorld()
	w.Class.Name, w.Class.ResourceVersion = c.Namespace, ""
	w.Claim.Namespace, w.Claim.UID = c.Namespace, ""
	w.Claim.Annotations[names.AnnotationListenerClass] = c.Namespace
	w.Claim.Spec.VolumeName = ""
	c.Expect(c.Create(c.Context(), w.Class)).To(Succeed())
	c.Expect(c.Create(c.Context(), w.Claim)).To(Succeed())
	w.Claim.Spec.VolumeName = claim.VolumeName(w.Claim)
	c.Expect(c.Update(c.Context(), w.Claim)).To(Succeed())

	w.Volume.Name, w.Volume.UID, w.Volume.Finalizers = w.Claim.Spec.VolumeName, "", nil // the API server adds its own
	w.Volume.Labels[names.LabelListenerNamespace] = c.Namespace
	w.Volume.Annotations[names.AnnotationLostSince] = "2026-01-01T00:00:00Z"
	w.Volume.Spec.ClaimRef.Namespace, w.Volume.Spec.ClaimRef.UID = c.Namespace, w.Claim.UID
	w.Volume.Spec.CSI.VolumeHandle, w.Volume.Spec.CSI.VolumeAttributes = w.Volume.Name, map[string]string{names.AnnotationListenerClass: c.Namespace}
	w.Volume.Spec.NodeAffinity = claim.NodeAffinity("lost-" + c.Namespace)
	c.Expect(c.Create(c.Context(), w.Volume)).To(Succeed())
	c.Expect(w.Volume.Finalizers).To(ConsistOf(finalizerProtection))

	w.Listener.Namespace, w.Listener.UID, w.Listener.Spec.ClassName = c.Namespace, "", &c.Namespace
	w.ownedBy("PersistentVolume", w.Volume.Name, w.Volume.UID)
	status := w.Listener.Status
	c.Expect(c.Create(c.Context(), w.Listener)).To(Succeed())
	w.Listener.Status = status
	c.Expect(c.Status().Update(c.Context(), w.Listener)).To(Succeed())
	c.replaced = replacement{w.Claim, w.Volume, w.Listener}
	c.Eventually(func(ctx context.Context) error {
		return errors.Join(
			c.cached.Get(ctx, client.ObjectKeyFromObject(w.Claim), &corev1.PersistentVolumeClaim{}),
			c.cached.Get(ctx, client.ObjectKeyFromObject(w.Volume), &corev1.PersistentVolume{}),
			c.cached.Get(ctx, client.ObjectKeyFromObject(w.Class), &listenersv1alpha1.ListenerClass{}),
			c.cached.Get(ctx, client.ObjectKeyFromObject(w.Listener), &listenersv1alpha1.Listener{}),
		)
	}).WithContext(c.Context()).Should(Succeed())
}

// process returns a Reconciler of a process that has just started.
func (c *cluster) process(intercept interceptor.Funcs) *Reconciler {
	writer := fakeclient.Intercept(c.cached, intercept)
	return &Reconciler{
		Client: writer, APIReader: fakeclient.Intercept(c.Client, interceptor.Funcs{Get: intercept.Get, List: intercept.List}),
		Events: events.NewFakeRecorder(1000), Clock: clock.RealClock{},
		Applier: apply.New(writer, names.FieldManagerVolume), conditions: apply.New(writer, names.FieldManagerLostNodes),
	}
}

func (c *cluster) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c.replaced.claim)}
}

// awaitReplaced reconciles until the volume is replaced and the condition of the Listener describes that, and checks
// the result.
func (c *cluster) awaitReplaced(r *Reconciler) {
	c.Helper()
	c.Eventually(func(g Gomega, ctx context.Context) {
		_, err := r.Reconcile(ctx, c.request())
		g.Expect(err).NotTo(HaveOccurred())
		var pv corev1.PersistentVolume
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(c.replaced.pv), &pv)).To(Succeed())
		g.Expect(pv.UID).NotTo(Equal(c.replaced.pv.UID))
		g.Expect(pv.DeletionTimestamp).To(BeNil())
		g.Expect(pv.Spec.NodeAffinity).To(BeNil())
		g.Expect(pv.Spec.ClaimRef.UID).To(Equal(c.replaced.claim.UID))
		g.Expect(claim.VolumeSelector(&pv)).To(Equal(claim.Selector{Class: c.Namespace}))
		var l listenersv1alpha1.Listener
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(c.replaced.listener), &l)).To(Succeed())
		g.Expect(l.UID).To(Equal(c.replaced.listener.UID))
		g.Expect(claim.HasOwner(&l, c.replaced.claim.UID)).To(BeTrue())
		g.Expect(l.Status.IngressAddresses).To(BeEmpty())
		g.Expect(l.Status.IngressAddresses).NotTo(BeNil(), "the status of other writers stays")
		if pv.Annotations[names.AnnotationReleasedFrom] != "" { // it is unknown after a crash while there was no volume
			condition := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerNodesAvailable)
			g.Expect(condition).To(HaveField("Reason", listenersv1alpha1.ReasonVolumeReleased))
		}
	}).WithContext(c.Context()).Should(Succeed())
}

// disturbed returns a cluster whose clients have a fault at the n-th write.
func (c *cluster) disturbed(n int, fault crash.Fault) (*cluster, *crash.Writes) {
	cfg := apiserver.Config(c.T)
	writes := crash.Intercept(cfg, n, fault, "")
	newClient := func(cache *client.CacheOptions) client.Client {
		faulty, err := client.New(cfg, client.Options{Scheme: apiserver.Scheme(), Cache: cache})
		c.Expect(err).NotTo(HaveOccurred())
		return faulty
	}
	world := *c.World
	world.Client = newClient(nil)
	return &cluster{World: &world, cached: newClient(&client.CacheOptions{Reader: c.cached}), replaced: c.replaced}, writes
}

// Whichever write was the last one of a process, or was the first one that failed, the next process completes the
// release. Before the volume is deleted, the claim owns the Listener, which the garbage collector would otherwise
// delete.
func TestReleaseIsCompletedAfterACrashAtEachWrite(t *testing.T) {
	shared := newCluster(t)
	shared.create()
	undisturbed, writes := shared.disturbed(0, crash.None)
	shared.awaitReplaced(undisturbed.process(interceptor.Funcs{Delete: shared.deleteOwned}))
	shared.Expect(writes.Seen()).To(Equal(6), "the owner of the Listener, the mark, the deletion, the finalizer, the new volume, the condition")
	for _, fault := range []crash.Fault{crash.Failed, crash.TimedOut, crash.NotAnswered} {
		for n := 1; n <= writes.Seen(); n++ {
			t.Run(fmt.Sprintf("write %d %s", n, fault), func(t *testing.T) {
				c := &cluster{World: apiserver.NewWorld(t), cached: shared.cached}
				c.create()
				faulty, writes := c.disturbed(n, fault)
				first := faulty.process(interceptor.Funcs{Delete: c.deleteOwned})
				c.Eventually(func(ctx context.Context) string {
					_, _ = first.Reconcile(ctx, c.request())
					return writes.Happened()
				}).WithContext(t.Context()).ShouldNot(BeEmpty())
				_, _ = first.Reconcile(t.Context(), c.request()) // it may try again, before it ends
				c.awaitReplaced(c.process(interceptor.Funcs{Delete: c.deleteOwned}))
			})
		}
	}
}

// deleteOwned deletes a volume, and checks before that the Listener is safe from the garbage collector.
func (c *cluster) deleteOwned(ctx context.Context, writer client.WithWatch, o client.Object, options ...client.DeleteOption) error {
	var l listenersv1alpha1.Listener
	c.Expect(c.Get(ctx, client.ObjectKeyFromObject(c.replaced.listener), &l)).To(Succeed())
	if !claim.HasOwner(&l, c.replaced.claim.UID) {
		c.Error("the volume is deleted while it is the only owner of its Listener")
	}
	return writer.Delete(ctx, o, options...)
}

// While leadership changes, two replicas may work on the same claim. Volumes are deleted and created once, and a Pod
// that is scheduled in between keeps its volume.
func TestTwoReplicasReleaseAVolumeOnce(t *testing.T) {
	c := newCluster(t)
	other := startCache(t)
	for range 5 {
		c := &cluster{World: apiserver.NewWorld(t), cached: c.cached}
		c.create()
		var created, deleted atomic.Int32
		count := func(counter *atomic.Int32, err error) error {
			if err == nil {
				counter.Add(1)
			}
			return err
		}
		intercept := interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				return count(&created, c.Create(ctx, o, options...))
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				return count(&deleted, c.Delete(ctx, o, options...))
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				if data, err := patch.Data(o); err != nil || strings.Contains(string(data), "finalizers") {
					t.Error("a patch that removes the last finalizer may delete the new volume, which has the same name:", string(data), err)
				}
				return c.Patch(ctx, o, patch, options...)
			},
		}
		var running sync.WaitGroup
		for _, cached := range []client.Client{c.cached, other} {
			replica := (&cluster{World: c.World, cached: cached}).process(intercept)
			running.Go(func() {
				for range 50 {
					_, _ = replica.Reconcile(t.Context(), c.request()) // conflicts with the other one
				}
			})
		}
		running.Wait()
		c.awaitReplaced(c.process(interceptor.Funcs{}))
		if created.Load() != 1 || deleted.Load() != 1 {
			t.Errorf("%d volumes were created and %d deleted", created.Load(), deleted.Load())
		}
	}
}

// A claim becomes Lost because its volume was deleted by hand, and a node is lost and returns, without any other event.
func TestControllerFollowsItsWatches(t *testing.T) {
	c := &cluster{World: apiserver.NewWorld(t)}
	mgr := apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		return (&Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(names.EventReporter), Clock: clock.RealClock{},
			Applier: apply.New(mgr.GetClient(), names.FieldManagerVolume),
		}).SetupWithManager(mgr)
	})
	c.cached = mgr.GetClient()
	c.create()
	volume := &corev1.PersistentVolume{}
	awaitVolume := func(condition func(g Gomega)) {
		t.Helper()
		c.Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(c.replaced.pv), volume)).To(Succeed())
			condition(g)
		}).WithContext(t.Context()).Should(Succeed())
	}
	awaitNew := func(old types.UID) {
		t.Helper()
		awaitVolume(func(g Gomega) { g.Expect(volume.UID).NotTo(Equal(old)) })
	}
	awaitNew(c.replaced.pv.UID) // released, because it was lost for long

	old := volume.UID
	c.Expect(c.Delete(t.Context(), volume)).To(Succeed())
	c.Expect(c.Patch(t.Context(), volume, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	awaitNew(old)

	lost := node("later-" + c.Namespace)
	c.Expect(c.Create(t.Context(), lost)).To(Succeed())
	before := volume.DeepCopy()
	volume.Spec.NodeAffinity = claim.NodeAffinity(lost.Name)
	c.Expect(c.Patch(t.Context(), volume, client.MergeFrom(before))).To(Succeed())
	old = volume.UID
	c.Eventually(func(ctx context.Context) (string, error) { // the watch of Nodes finds volumes in the cache
		var pv corev1.PersistentVolume
		err := c.cached.Get(ctx, client.ObjectKeyFromObject(volume), &pv)
		return fmt.Sprint(claim.PinnedNodes(&pv)), err
	}).WithContext(t.Context()).Should(ContainSubstring(lost.Name))
	c.Expect(c.Delete(t.Context(), lost)).To(Succeed())
	awaitVolume(func(g Gomega) { g.Expect(volume.Annotations).To(HaveKey(names.AnnotationLostSince)) })
	c.Expect(c.Create(t.Context(), node(lost.Name))).To(Succeed())
	awaitVolume(func(g Gomega) { g.Expect(volume.Annotations).NotTo(HaveKey(names.AnnotationLostSince)) })
	c.Expect(volume.UID).To(Equal(old))
}
