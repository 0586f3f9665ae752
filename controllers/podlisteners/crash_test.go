package podlisteners_test

import (
	"context"
	"errors"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/podlisteners"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crash"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// The Pod has a pinned volume of its own and one of a shared Listener.
func TestAPodGetsItsAddressesWhateverHappensToAWrite(t *testing.T) {
	crash.Run(t, crash.Scenario{
		Setup: func(_ *testing.T, mgr ctrl.Manager, _ string) error { return setup(mgr) },
		Begin: func(t *testing.T, c client.Client, namespace string) {
			b := &boundPod{&apiserver.World{T: t, Client: c, Namespace: namespace}}
			class := b.class("pinned", true)
			b.node(objects.InternalIP("192.0.2.1"))
			shared := &listenersv1alpha1.Listener{
				ObjectMeta: metav1.ObjectMeta{Name: "shared"},
				Spec:       listenersv1alpha1.ListenerSpec{ClassName: &class.Name, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
			}
			b.create(shared)
			b.expose(shared, 30080)

			own := b.claim("own", names.AnnotationListenerClass, class.Name)
			b.claim("shared", names.AnnotationListenerName, "shared")
			pod := b.pod("own", "shared")
			b.expose(b.ownListener(own, pod), 30081)
		},
		Kinds: []client.ObjectList{
			&listenersv1alpha1.PodListenersList{}, &listenersv1alpha1.ListenerList{}, &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{},
			&corev1.PodList{},
		},
		Done: func(ctx context.Context, c client.Client, namespace string) bool {
			var list listenersv1alpha1.PodListenersList
			err := c.List(ctx, &list, client.InNamespace(namespace))
			return err == nil && len(list.Items) == 1 && len(list.Items[0].Spec.Listeners) == 2
		},
	})
}

// setup adds the controller to a manager.
func setup(mgr ctrl.Manager) error { return setupWith(mgr.GetEventRecorder(names.EventReporter))(mgr) }

// setupWith returns a function that adds the controller to a manager, with a recorder of its events.
func setupWith(recorder events.EventRecorder) func(mgr ctrl.Manager) error {
	return func(mgr ctrl.Manager) error {
		r := &podlisteners.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: recorder, Backends: backends.All(),
			Applier: apply.New(mgr.GetClient(), names.FieldManagerVolume), Clock: clock.RealClock{}, Nodes: settling.NewNodes(clock.RealClock{}),
		}
		return r.SetupWithManager(mgr)
	}
}

// boundPod creates a Pod that was bound to a node, with what it needs.
type boundPod struct{ *apiserver.World }

func (b *boundPod) create(o client.Object) {
	b.Helper()
	switch o.(type) {
	case *corev1.Pod, *corev1.PersistentVolumeClaim, *listenersv1alpha1.Listener:
		o.SetNamespace(b.Namespace)
	}
	check.Must(b, b.Create(b.Context(), o))
}

// class creates a class with node ports. Its name begins with the name of the namespace.
func (b *boundPod) class(name string, pinned bool) *listenersv1alpha1.ListenerClass {
	b.Helper()
	class := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: b.Namespace + "-" + name},
		Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: pinned},
	}
	b.create(class)
	return class
}

// node creates the node of the Pods, which has the name of the namespace.
func (b *boundPod) node(addresses ...corev1.NodeAddress) {
	b.Helper()
	node := objects.Node(b.Namespace)
	b.create(node)
	node.Status.Addresses = addresses
	b.updateStatus(node)
}

// change changes an object.
func (b *boundPod) change(o client.Object, change func()) {
	b.Helper()
	before := o.DeepCopyObject().(client.Object)
	change()
	check.Must(b, b.Patch(b.Context(), o, client.MergeFrom(before)))
}

// events returns the reasons and the notes of the events of the namespace.
func (b *boundPod) events(g Gomega) (found []string) {
	var list eventsv1.EventList
	g.Expect(b.List(b.Context(), &list, client.InNamespace(b.Namespace))).To(Succeed())
	for i := range list.Items {
		found = append(found, list.Items[i].Reason+": "+list.Items[i].Note)
	}
	return found
}

// entry returns a function that returns the entry of a Pod's volume, which is empty while there is none.
func (b *boundPod) entry(pod *corev1.Pod, volume string) func(g Gomega) listenersv1alpha1.PodListener {
	return func(g Gomega) listenersv1alpha1.PodListener {
		var object listenersv1alpha1.PodListeners
		key := client.ObjectKey{Namespace: b.Namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}
		g.Expect(client.IgnoreNotFound(b.Get(b.Context(), key, &object))).To(Succeed())
		return object.Spec.Listeners[volume]
	}
}

func (b *boundPod) updateStatus(o client.Object) {
	b.Helper()
	check.Must(b, b.Status().Update(b.Context(), o))
}

// expose writes the status of a Listener, as its controller does: the controller of PodListeners may apply the Listener
// meanwhile.
func (b *boundPod) expose(l *listenersv1alpha1.Listener, port int32) {
	b.Helper()
	before := l.DeepCopy()
	l.Status = &listenersv1alpha1.ListenerStatus{
		ObservedGeneration: l.Generation, ServiceName: &l.Name, NodePorts: map[string]int32{"http": port},
		IngressAddresses: []listenersv1alpha1.IngressAddress{},
	}
	check.Must(b, b.Status().Patch(b.Context(), l, client.MergeFrom(before)))
}

// claim creates a claim that is bound to a volume, as the provisioner creates it.
func (b *boundPod) claim(name, annotation, value string) *corev1.PersistentVolumeClaim {
	b.Helper()
	annotations := map[string]string{annotation: value}
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       objects.ClaimSpec(b.Namespace + "-" + name),
	}
	b.create(pvc)
	b.create(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: names.Driver, AccessModes: pvc.Spec.AccessModes, Capacity: pvc.Spec.Resources.Requests,
			ClaimRef: &corev1.ObjectReference{Namespace: b.Namespace, Name: name, UID: pvc.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: pvc.Spec.VolumeName, VolumeAttributes: annotations,
			}},
		},
	})
	return pvc
}

// ownListener returns the Listener of a class-based claim, which either the provisioner or the controller creates.
func (b *boundPod) ownListener(pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) *listenersv1alpha1.Listener {
	b.Helper()
	desired := claim.OfClaim(pvc, nil).Listener(pvc.Annotations[names.AnnotationListenerClass], claim.PodPorts(pod), pod.Labels)
	err := b.Apply(b.Context(), client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(names.FieldManagerVolume))
	listener := &listenersv1alpha1.Listener{}
	check.Must(b, errors.Join(err, b.Get(b.Context(), client.ObjectKeyFromObject(pvc), listener)))
	return listener
}

// pod creates a Pod that mounts claims.
func (b *boundPod) pod(claims ...string) *corev1.Pod {
	b.Helper()
	var volumes []corev1.Volume
	for _, name := range claims {
		volumes = append(volumes, objects.ClaimVolume(name, name))
	}
	return b.podWith("web-0", volumes...)
}

func (b *boundPod) podWith(name string, volumes ...corev1.Volume) *corev1.Pod {
	b.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: b.Namespace, Volumes: volumes,
		Containers: []corev1.Container{{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}},
	}}
	b.create(pod)
	return pod
}
