package volume

import (
	"context"
	"os"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// cluster is an API server on which the provisioner runs. There is no scheduler: the tests set the selected node of a
// claim.
type cluster struct {
	*apiserver.World
	events *recordedEvents
}

// recordedEvents has the reasons of the events of claims, by name. Tests do not wait for events in the API: client-go
// drops an event for good when the API server answers with an error, for example because etcd does not respond.
type recordedEvents struct{ reasons sync.Map }

// Eventf implements events.EventRecorder.
func (r *recordedEvents) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	r.reasons.Store([2]string{regarding.(client.Object).GetName(), reason}, true)
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{World: apiserver.NewWorld(t), events: &recordedEvents{}}
	for _, o := range []client.Object{
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
		objects.Node("node-1"),
	} {
		c.Expect(client.IgnoreAlreadyExists(c.Create(t.Context(), o))).To(Succeed())
	}
	apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), Events: c.events, Applier: apply.New(mgr.GetClient(), names.FieldManagerVolume), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	return c
}

func (c *cluster) create(o client.Object) {
	c.Helper()
	if _, ok := o.(*listenersv1alpha1.ListenerClass); !ok {
		o.SetNamespace(c.Namespace)
	}
	c.Expect(c.Create(c.Context(), o)).To(Succeed())
}

// claim creates a claim with the selected node node-1.
func (c *cluster) claim(name, annotation, value string) *corev1.PersistentVolumeClaim {
	c.Helper()
	claim := newClaim(name, annotation, value)
	c.create(claim)
	return claim
}

func newClaim(name, annotation, value string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			annotation:                                 value,
			"volume.kubernetes.io/selected-node":       "node-1",
			"volume.kubernetes.io/storage-provisioner": names.Driver,
		}},
		Spec: objects.ClaimSpec(""),
	}
}

// class creates a class with the name of the namespace, which Listeners of the claims have.
func (c *cluster) class(spec listenersv1alpha1.ListenerClassSpec) {
	c.Helper()
	c.create(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}, Spec: spec})
}

// pod creates a Pod with a port that mounts a claim.
func (c *cluster) pod(claim string) {
	c.Helper()
	c.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}},
		Volumes:    []corev1.Volume{objects.ClaimVolume("listener", claim)},
	}})
}

// waitForEvent waits for an event of the claim.
func (c *cluster) waitForEvent(claim *corev1.PersistentVolumeClaim, reason string) {
	c.Helper()
	c.Eventually(func() bool {
		_, ok := c.events.reasons.Load([2]string{claim.Name, reason})
		return ok
	}).Should(BeTrue(), "no event %s", reason)
}

// waitForVolume waits for the volume of the claim.
func (c *cluster) waitForVolume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	c.Helper()
	pv := &corev1.PersistentVolume{}
	c.Eventually(func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Name: "pvc-" + string(claim.UID)}, pv)
	}).WithContext(c.Context()).Should(Succeed())
	return pv
}

// The provisioner does not retry by time: after each event the claim is handled again when it is requeued.
func TestClassBasedClaimIsProvisionedWhenClassAndPodAppear(t *testing.T) {
	c := newCluster(t)
	claim := c.claim("listener-web-0", "listeners.stackable.tech/listener-class", c.Namespace)
	c.waitForEvent(claim, "ClassNotFound")
	c.class(listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: true})
	c.waitForEvent(claim, "WaitForFirstConsumer")
	c.pod(claim.Name)
	pv := c.waitForVolume(claim)
	c.Expect(pv.Finalizers).NotTo(ContainElement("external-provisioner.volume.kubernetes.io/finalizer"))
	c.Expect(pv.Annotations).To(HaveKeyWithValue("pv.kubernetes.io/provisioned-by", "listeners.stackable.tech"))
	c.Expect(pv.Spec.StorageClassName).To(Equal("listeners.stackable.tech"))
	c.Expect(pv.Spec.ClaimRef.UID).To(Equal(claim.UID))
}

func TestClassBasedClaimIsProvisionedWhenItsNamespaceIsLabelled(t *testing.T) {
	c := newCluster(t)
	c.class(listenersv1alpha1.ListenerClassSpec{
		ServiceType:       listenersv1alpha1.ServiceTypeNodePort,
		AllowedNamespaces: &listenersv1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"exposure": "public"}}},
	})
	claim := c.claim("listener-web-0", "listeners.stackable.tech/listener-class", c.Namespace)
	c.pod(claim.Name)
	c.waitForEvent(claim, "NamespaceNotAllowed")
	c.Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(claim), &listenersv1alpha1.Listener{}))).To(BeTrue())
	namespace := &corev1.Namespace{}
	c.Expect(c.Get(t.Context(), client.ObjectKey{Name: c.Namespace}, namespace)).To(Succeed())
	namespace.Labels["exposure"] = "public"
	c.Expect(c.Update(t.Context(), namespace)).To(Succeed())
	c.waitForVolume(claim)
}

// Kubernetes' PersistentVolume controller annotates one claim after the other; there is none here.
func TestAClaimIsProvisionedBeforeItIsAnnotated(t *testing.T) {
	c := newCluster(t)
	c.createStorageClass()
	c.waitForVolume(c.claimWithoutProvisioner())
}

// The operator creates a StorageClass again that was deleted by hand.
func TestAClaimIsProvisionedWhenItsStorageClassAppears(t *testing.T) {
	c := newCluster(t)
	claim := c.claimWithoutProvisioner()
	c.createStorageClass()
	c.waitForVolume(claim)
}

// A bound claim whose volume is deleted is Lost, which is another controller's work.
func TestAVolumeThatWasDeletedBeforeItWasBoundIsProvisionedAgain(t *testing.T) {
	c := newCluster(t)
	c.createStorageClass()
	claim := c.claimWithoutProvisioner()
	first := c.waitForVolume(claim)
	c.Expect(c.Delete(t.Context(), first.DeepCopy())).To(Succeed())
	c.Expect(client.IgnoreNotFound(c.Patch(t.Context(), first.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))).To(Succeed())
	c.Eventually(func() types.UID { return c.waitForVolume(claim).UID }).ShouldNot(Equal(first.UID))
}

// createStorageClass creates a StorageClass of the test with the binding mode Immediate.
func (c *cluster) createStorageClass() {
	c.Helper()
	immediate := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}, Provisioner: names.Driver}
	c.Expect(c.Create(c.Context(), immediate)).To(Succeed())
}

// claimWithoutProvisioner creates a claim of the StorageClass of the test, as Kubernetes' PersistentVolume controller
// finds it, and its Listener.
func (c *cluster) claimWithoutProvisioner() *corev1.PersistentVolumeClaim {
	c.Helper()
	c.class(listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP})
	c.create(&listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &c.Namespace},
	})
	claim := newClaim("listener", names.AnnotationListenerName, "web")
	delete(claim.Annotations, names.AnnotationProvisioner)
	claim.Spec.StorageClassName = &c.Namespace
	c.create(claim)
	return claim
}

func TestNamedClaimIsProvisionedWhenListenerAndClassAppear(t *testing.T) {
	c := newCluster(t)
	claim := c.claim("listener-web-0", "listeners.stackable.tech/listener-name", "late")
	c.waitForEvent(claim, "ListenerNotFound")
	late := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	c.create(late)
	c.waitForEvent(claim, "ClassNotSet")
	before := late.DeepCopy()
	late.Spec.ClassName = &c.Namespace
	c.Expect(c.Patch(t.Context(), late, client.MergeFrom(before))).To(Succeed())
	c.waitForEvent(claim, "ClassNotFound")
	c.class(listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP})
	pv := c.waitForVolume(claim)
	c.Expect(pv.Labels).To(HaveKeyWithValue("listeners.stackable.tech/listener-name", "late"))
}
