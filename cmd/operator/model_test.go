package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

var (
	modelSeed  = flag.Uint64("model.seed", 1, "seed of the first random sequence of user actions")
	modelRuns  = flag.Uint64("model.runs", 3, "number of random sequences, each with the next seed")
	modelSteps = flag.Int("model.steps", 120, "actions in each sequence")
)

// TestInvariantsHoldAfterRandomActions performs random actions of users on a few objects, without waiting in between,
// and checks after some of them what must hold once the operator has caught up. It repeats a sequence with
// -model.seed, and takes longer with -model.runs and -model.steps.
func TestInvariantsHoldAfterRandomActions(t *testing.T) {
	for seed := *modelSeed; seed < *modelSeed+*modelRuns; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runModel(t, seed) })
	}
}

func runModel(t *testing.T, seed uint64) {
	m := newModel(t)
	m.random = rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible
	m.foreign, m.ports = map[string]string{}, map[types.UID]map[string]int32{}
	m.restart()
	m.createAll()
	m.await("addresses", func() string {
		if found := m.violation(); found != "" || m.checked > 0 {
			return found
		}
		return "no Pod has addresses"
	})
	for i := range *modelSteps {
		m.step()
		if i%20 == 19 {
			m.await("the invariants", m.violation)
		}
	}
	m.await("the invariants", m.violation)
	m.deleteAll()
	m.await("the deletion of everything", m.leftover)
}

// model is what users have done, and what must hold because of it.
type model struct {
	*testing.T
	client.Client
	namespace string
	random    *rand.Rand
	actions   []string
	stop      func()        // ends the operator
	period    time.Duration // after which other addresses of a node are followed, or 0 for that of the operator
	// foreign has the uid and version of each Service that a user has created.
	foreign map[string]string
	// ports has the node ports that each Listener had, until a documented change.
	ports map[types.UID]map[string]int32
	// checked is how often a Pod had the addresses that it should have.
	checked int
}

// newModel creates a namespace with what Kubernetes' own controllers do, and the StorageClass.
func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{T: t, Client: apiserver.Client(t), namespace: apiserver.Namespace(t)}
	m.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver})
	go (&cluster{Client: m.Client, namespace: m.namespace}).run(t.Context())
	return m
}

// restart ends the operator, if it runs, and starts another process.
func (m *model) restart() {
	m.Helper()
	if m.stop != nil {
		m.stop()
	}
	m.stop = startOperator(m.T, apiserver.Config(m.T), m.namespace, cmp.Or(m.period, settling.Period))
}

// startOperator starts an operator in the namespace, which follows other addresses of a node after a period, and
// returns a function that stops it.
func startOperator(t *testing.T, cfg *rest.Config, namespace string, period time.Duration) (stop func()) {
	t.Helper()
	nodes := settling.NewNodes(clock.RealClock{})
	nodes.Period = period
	ctx, cancel := context.WithCancel(t.Context())
	apis, err := platform.Watch(ctx, cfg, backends.All().OptionalKinds()...)
	check.Must(t, err)
	_, stopManager := apiserver.RunManager(t, cfg, namespace, func(mgr ctrl.Manager) error {
		for _, c := range controllers(mgr, apis, Options{Namespace: namespace}, nodes, clock.RealClock{}) {
			if c.name == "nodeagent" {
				continue // no user's action concerns it, and it would admit the ServiceAccount of the operator only
			}
			if err := c.setup(mgr); err != nil {
				return err
			}
		}
		return nil
	})
	return func() { stopManager(); cancel() }
}

// few are the names of each kind of object. There are few, so that objects are deleted and created again.
const few = 3

func (m *model) name(kind string) string { return fmt.Sprintf("%s-%d", kind, m.random.IntN(few)) }

// global returns the name of a cluster-scoped object.
func (m *model) global(kind string) string { return m.namespace + "-" + m.name(kind) }

// step performs a random action.
func (m *model) step() {
	m.Helper()
	actions := []struct {
		name   string
		weight int
		do     func() string
	}{
		{"create class", 4, func() string { return m.create(m.class(m.global("class"))) }},
		{"change class", 4, m.changeClass},
		{"delete class", 1, func() string { return m.delete(m.class(m.global("class"))) }},
		{"create node", 4, func() string { return m.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.global("node")}}) }},
		{"delete node", 1, func() string { return m.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.global("node")}}) }},
		{"create claim", 6, func() string { return m.create(m.claim(m.name("claim"))) }},
		{"delete claim", 2, func() string { return m.delete(&corev1.PersistentVolumeClaim{ObjectMeta: m.meta(m.name("claim"))}) }},
		{"create Pod", 8, func() string { return m.create(m.pod(m.random.IntN(few))) }},
		{"delete Pod", 3, func() string { return m.delete(&corev1.Pod{ObjectMeta: m.meta(m.name("pod"))}) }},
		{"create Listener", 3, func() string { return m.create(m.listener(m.name("listener"))) }},
		{"delete Listener", 1, func() string { return m.delete(&listenersv1alpha1.Listener{ObjectMeta: m.meta(m.anyListener())}) }},
		{"delete Service", 2, m.deleteService},
		{"delete PersistentVolume", 1, m.deleteVolume},
		{"delete PodListeners", 1, m.deletePodListeners},
		{"create foreign Service", 1, m.createForeign},
		{"restart the operator", 1, func() string { m.restart(); return "" }},
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	for n := m.random.IntN(total); ; actions = actions[1:] {
		if n -= actions[0].weight; n < 0 {
			m.actions = append(m.actions, strings.TrimSpace(actions[0].name+" "+actions[0].do()))
			return
		}
	}
}

func (m *model) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.namespace, Name: name}
}

// create creates an object unless it exists, and returns its name.
func (m *model) create(o client.Object) string {
	m.Helper()
	if err := client.IgnoreAlreadyExists(m.Create(m.Context(), o)); err != nil {
		m.Fatalf("%v\nafter %s", err, m.history())
	}
	return o.GetName()
}

// delete deletes an object if it exists, and returns its name.
func (m *model) delete(o client.Object) string {
	m.Helper()
	if err := client.IgnoreNotFound(m.Delete(m.Context(), o, client.GracePeriodSeconds(0))); err != nil {
		m.Fatalf("%v\nafter %s", err, m.history())
	}
	return o.GetName()
}

func (m *model) history() string { return strings.Join(m.actions, "\n  ") }

func (m *model) class(name string) *listenersv1alpha1.ListenerClass {
	spec := listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: m.random.IntN(2) == 0}
	if m.random.IntN(4) == 0 {
		spec = listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP}
	}
	return &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// changeClass replaces the policy of a class. The node ports of its Listeners may then change.
func (m *model) changeClass() string {
	m.Helper()
	class := &listenersv1alpha1.ListenerClass{}
	name := m.global("class")
	desired := m.class(name)
	if err := m.Get(m.Context(), client.ObjectKey{Name: name}, class); err != nil {
		return "(none)"
	}
	class.Spec = desired.Spec
	if err := m.Update(m.Context(), class); err != nil {
		m.Fatal(err)
	}
	clear(m.ports)
	return name + " to " + string(class.Spec.ServiceType)
}

func (m *model) claim(name string) *corev1.PersistentVolumeClaim {
	annotations := map[string]string{names.AnnotationListenerClass: m.global("class")}
	if m.random.IntN(3) == 0 {
		annotations = map[string]string{names.AnnotationListenerName: m.name("listener")}
	}
	claim := claimOf(m.namespace, name)
	maps.Copy(claim.Annotations, annotations)
	return claim
}

// claimOf returns a claim of the driver, which Kubernetes has annotated with it.
func claimOf(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{names.AnnotationProvisioner: names.Driver}},
		Spec:       objects.ClaimSpec(""),
	}
}

// pod returns a Pod that mounts the claim with its number.
func (m *model) pod(number int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: m.meta(fmt.Sprintf("pod-%d", number)),
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}},
			Volumes:    []corev1.Volume{objects.ClaimVolume("listener", fmt.Sprintf("claim-%d", number))},
		},
	}
}

// mounting returns a Pod that mounts a claim of its own name.
func (m *model) mounting(claim string) *corev1.Pod {
	pod := m.pod(0)
	pod.Name, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim, claim
	return pod
}

// statefulSet returns a StatefulSet, whose controller does not run.
func (m *model) statefulSet(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{ObjectMeta: m.meta(name), Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	set.Spec.Template.Labels, set.Spec.Template.Spec.Containers = labels, []corev1.Container{{Name: "web", Image: "web"}}
	return set
}

// controlledBy returns the owners of a Pod of a StatefulSet.
func controlledBy(set *appsv1.StatefulSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
}

// readListener returns a Listener, or an empty one if it does not exist.
func (m *model) readListener(name string) *listenersv1alpha1.Listener {
	listener := &listenersv1alpha1.Listener{}
	_ = m.Get(m.Context(), client.ObjectKey{Namespace: m.namespace, Name: name}, listener)
	return listener
}

// published returns what the PodListeners of a Pod say, or nothing if they do not exist.
func (m *model) published(pod types.UID) listenersv1alpha1.PodListenersSpec {
	published := &listenersv1alpha1.PodListeners{}
	_ = m.Get(m.Context(), client.ObjectKey{Namespace: m.namespace, Name: listenersv1alpha1.PodListenersName(pod)}, published)
	return published.Spec
}

func (m *model) listener(name string) *listenersv1alpha1.Listener {
	return &listenersv1alpha1.Listener{ObjectMeta: m.meta(name), Spec: listenersv1alpha1.ListenerSpec{
		ClassName: ptr.To(m.global("class")), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}},
	}}
}

// anyListener returns the name of a Listener of a user or of a claim.
func (m *model) anyListener() string {
	if m.random.IntN(2) == 0 {
		return m.name("claim")
	}
	return m.name("listener")
}

// deleteService deletes the Service of a Listener by hand, and nothing if a user created it.
func (m *model) deleteService() string {
	name := m.anyListener()
	if m.foreign[name] != "" {
		return "(none)"
	}
	return m.delete(&corev1.Service{ObjectMeta: m.meta(name)})
}

// deleteVolume deletes the PersistentVolume of a claim by hand.
func (m *model) deleteVolume() string {
	claim := &corev1.PersistentVolumeClaim{}
	if err := m.Get(m.Context(), client.ObjectKey{Namespace: m.namespace, Name: m.name("claim")}, claim); err != nil || claim.Spec.VolumeName == "" {
		return "(none)"
	}
	m.delete(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}})
	return "of " + claim.Name
}

func (m *model) deletePodListeners() string {
	pod := &corev1.Pod{}
	if err := m.Get(m.Context(), client.ObjectKey{Namespace: m.namespace, Name: m.name("pod")}, pod); err != nil {
		return "(none)"
	}
	m.delete(&listenersv1alpha1.PodListeners{ObjectMeta: m.meta(listenersv1alpha1.PodListenersName(pod.UID))})
	return "of " + pod.Name
}

// createForeign creates a Service with a name that a Listener may need, unless a Service has it.
func (m *model) createForeign() string {
	service := &corev1.Service{ObjectMeta: m.meta(m.name("listener")), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	if err := m.Create(m.Context(), service); err != nil {
		return "(none)"
	}
	m.foreign[service.Name] = string(service.UID) + " " + service.ResourceVersion
	return service.Name
}

// createAll creates one object of each name.
func (m *model) createAll() {
	m.actions = append(m.actions, "create everything")
	for i := range few {
		m.create(m.class(fmt.Sprintf("%s-class-%d", m.namespace, i)))
		m.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-node-%d", m.namespace, i)}})
		m.create(m.listener(fmt.Sprintf("listener-%d", i)))
		m.create(m.claim(fmt.Sprintf("claim-%d", i)))
		m.create(m.pod(i))
	}
}

// deleteAll deletes everything that users have created, except foreign Services.
func (m *model) deleteAll() {
	m.actions = append(m.actions, "delete everything")
	for i := range few {
		for _, o := range []client.Object{
			&corev1.Pod{ObjectMeta: m.meta(fmt.Sprintf("pod-%d", i))},
			&corev1.PersistentVolumeClaim{ObjectMeta: m.meta(fmt.Sprintf("claim-%d", i))},
			&listenersv1alpha1.Listener{ObjectMeta: m.meta(fmt.Sprintf("listener-%d", i))},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-node-%d", m.namespace, i)}},
			&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-class-%d", m.namespace, i)}},
		} {
			m.delete(o)
		}
	}
}

// await waits until there is no violation.
func (m *model) await(what string, violation func() string) {
	m.Helper()
	NewWithT(m.T).Eventually(violation).WithTimeout(apiserver.Timeout).WithPolling(50*time.Millisecond).
		Should(BeEmpty(), func() string { return "waiting for " + what + " after\n  " + m.history() })
}

// leftover returns an object that should not exist after everything was deleted, or "".
func (m *model) leftover() string {
	w, err := observe(m.Context(), m.Client, m.namespace)
	if err != nil {
		return err.Error()
	}
	for _, l := range w.listeners {
		return "Listener " + l.Name + " exists"
	}
	for _, p := range w.podListeners {
		return "PodListeners " + p.Name + " exists"
	}
	for _, v := range w.volumes {
		return "PersistentVolume " + v.Name + " exists"
	}
	return m.serviceViolation(w)
}

// violation returns an invariant that does not hold, or "".
func (m *model) violation() string {
	w, err := observe(m.Context(), m.Client, m.namespace)
	if err != nil {
		return err.Error()
	}
	for _, invariant := range []func(*snapshot) string{m.serviceViolation, m.listenerViolation, m.podViolation} {
		if found := invariant(w); found != "" {
			return found
		}
	}
	return ""
}

// serviceViolation: each Service belongs to a Listener of its name, or is a user's and unchanged.
func (m *model) serviceViolation(w *snapshot) string {
	for name, want := range m.foreign {
		s := w.services[name]
		if s == nil || string(s.UID)+" "+s.ResourceVersion != want {
			return "foreign Service " + name + " was changed"
		}
	}
	for name, s := range w.services {
		if l := w.listeners[name]; m.foreign[name] == "" && (l == nil || !metav1.IsControlledBy(s, l)) {
			return "Service " + name + " belongs to no Listener"
		}
	}
	return ""
}

// listenerViolation: each Listener whose class exists has its Service, and its own node ports for ever; its status is
// that of the Service, with addresses of nodes that exist.
func (m *model) listenerViolation(w *snapshot) string {
	for name, l := range w.listeners {
		class, s := w.classes[l.Class()], w.services[name]
		if class == nil || m.foreign[name] != "" {
			continue
		}
		if s == nil || string(s.Spec.Type) != string(class.Spec.ServiceType) {
			return "Listener " + name + " has no Service of type " + string(class.Spec.ServiceType)
		}
		ports := map[string]int32{}
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				ports[p.Name] = p.NodePort
			}
		}
		if before := m.ports[l.UID]; len(before) > 0 && len(ports) > 0 && !maps.Equal(before, ports) {
			return fmt.Sprintf("node ports of Listener %s changed from %v to %v", name, before, ports)
		}
		if len(ports) > 0 {
			m.ports[l.UID] = ports
		}
		if l.Status == nil || len(ports) != len(l.Status.NodePorts) || len(ports) > 0 && !maps.Equal(ports, l.Status.NodePorts) {
			return fmt.Sprintf("the status of Listener %s is %+v, the Service has node ports %v", name, l.Status, ports)
		}
		for _, a := range l.Status.IngressAddresses {
			if len(ports) > 0 && !slices.Contains(slices.Collect(maps.Values(w.nodes)), a.Address) {
				return "Listener " + name + " has address " + a.Address + " of no node"
			}
		}
	}
	return ""
}

// podViolation: each Pod that is bound to a node with a bound volume has the addresses that lead to it, and no
// PodListeners exists without its Pod.
func (m *model) podViolation(w *snapshot) string {
	for name, p := range w.podListeners {
		if !slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), func(pod *corev1.Pod) bool { return listenersv1alpha1.PodListenersName(pod.UID) == name }) {
			return "PodListeners " + p.Name + " has no Pod"
		}
	}
	for name, pod := range w.pods {
		claim := w.claims[pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName]
		if pod.Spec.NodeName == "" || claim == nil || w.volumes[claim.Spec.VolumeName] == nil || claim.Status.Phase != corev1.ClaimBound {
			continue
		}
		l := w.listeners[claim.Name]
		if by := claim.Annotations[names.AnnotationListenerName]; by != "" {
			l = w.listeners[by]
		}
		got := w.podListeners[listenersv1alpha1.PodListenersName(pod.UID)]
		if l == nil && got != nil && len(got.Spec.Listeners["listener"].IngressAddresses) > 0 {
			return "Pod " + name + " has addresses of a Listener that does not exist"
		}
		if l == nil || w.classes[l.Class()] == nil || m.foreign[l.Name] != "" || w.nodes[pod.Spec.NodeName] == "" {
			continue // the last addresses stay, if there were any
		}
		want := l.Status.IngressAddresses
		if l.Status.NodePorts != nil {
			want = []listenersv1alpha1.IngressAddress{{
				Address: w.nodes[pod.Spec.NodeName], AddressType: listenersv1alpha1.AddressTypeIP, Ports: l.Status.NodePorts,
			}}
		}
		if got == nil {
			return "Pod " + name + " has no PodListeners"
		}
		if diff := gocmp.Diff(want, got.Spec.Listeners["listener"].IngressAddresses); diff != "" {
			return "Pod " + name + " has other addresses than its Listener (-want +got):\n" + diff
		}
		if pod.Labels[names.PodMountLabel(l.UID)] != l.Name {
			return "Pod " + name + " has no label of Listener " + l.Name
		}
		m.checked++
	}
	return ""
}

// snapshot is what the API server has, by name.
type snapshot struct {
	classes      map[string]*listenersv1alpha1.ListenerClass
	listeners    map[string]*listenersv1alpha1.Listener
	services     map[string]*corev1.Service
	claims       map[string]*corev1.PersistentVolumeClaim
	volumes      map[string]*corev1.PersistentVolume // of claims in the namespace
	pods         map[string]*corev1.Pod
	podListeners map[string]*listenersv1alpha1.PodListeners
	nodes        map[string]string // their addresses
}

func observe(ctx context.Context, c client.Client, namespace string) (*snapshot, error) {
	var (
		classes      listenersv1alpha1.ListenerClassList
		listeners    listenersv1alpha1.ListenerList
		services     corev1.ServiceList
		claims       corev1.PersistentVolumeClaimList
		volumes      corev1.PersistentVolumeList
		pods         corev1.PodList
		podListeners listenersv1alpha1.PodListenersList
		nodes        corev1.NodeList
	)
	// Volumes before claims: a volume is created after its claim, and would else seem to have lost it.
	for _, list := range []client.ObjectList{&classes, &listeners, &services, &volumes, &claims, &pods, &podListeners, &nodes} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	w := &snapshot{
		classes: byName(classes.Items), listeners: byName(listeners.Items), services: byName(services.Items), claims: byName(claims.Items),
		volumes: byName(volumes.Items), pods: byName(pods.Items), podListeners: byName(podListeners.Items), nodes: map[string]string{},
	}
	maps.DeleteFunc(w.volumes, func(_ string, v *corev1.PersistentVolume) bool {
		return v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace != namespace
	})
	for i := range nodes.Items {
		for _, a := range nodes.Items[i].Status.Addresses {
			w.nodes[nodes.Items[i].Name] = a.Address
		}
	}
	return w, nil
}

func byName[T any, P interface {
	*T
	client.Object
}](items []T) map[string]*T {
	all := map[string]*T{}
	for i := range items {
		all[P(&items[i]).GetName()] = &items[i]
	}
	return all
}

// rejected is the annotation of a Pod that the kubelet does not accept.
const rejected = "test.example/rejected"

// cluster does the work of Kubernetes' own controllers in a namespace: it binds volumes and Pods, and collects garbage.
type cluster struct {
	client.Client
	namespace string
}

func (c *cluster) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if w, err := observe(ctx, c.Client, c.namespace); err == nil {
			c.bindVolumes(ctx, w)
			c.schedule(ctx, w)
			c.collect(ctx, w)
		}
	}, 20*time.Millisecond)
}

// Errors are ignored everywhere: the next pass repeats what has failed.

func (c *cluster) bindVolumes(ctx context.Context, w *snapshot) {
	for _, v := range w.volumes {
		claim := w.claims[v.Spec.ClaimRef.Name]
		switch {
		case v.DeletionTimestamp != nil:
			v.Finalizers = nil
			_ = c.Update(ctx, v)
		case claim == nil || claim.UID != v.Spec.ClaimRef.UID:
			if v.Status.Phase != corev1.VolumeReleased {
				v.Status.Phase = corev1.VolumeReleased
				_ = c.Status().Update(ctx, v)
			}
		case claim.Spec.VolumeName == "":
			claim.Spec.VolumeName = v.Name
			_ = c.Update(ctx, claim)
		case v.Status.Phase != corev1.VolumeBound || claim.Status.Phase != corev1.ClaimBound:
			v.Status.Phase, claim.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
			_ = c.Status().Update(ctx, v)
			_ = c.Status().Update(ctx, claim)
		}
	}
	for _, claim := range w.claims {
		if claim.DeletionTimestamp != nil {
			claim.Finalizers = nil
			_ = c.Update(ctx, claim)
		} else if claim.Spec.VolumeName != "" && w.volumes[claim.Spec.VolumeName] == nil && claim.Status.Phase != corev1.ClaimLost {
			claim.Status.Phase = corev1.ClaimLost
			_ = c.Status().Update(ctx, claim)
		}
	}
}

// schedule gives nodes an address, binds the Pods whose claims are bound, or whose volumes are inline, to a node that
// their volumes permit, and accepts them there, as kubelets do, unless they are to be rejected.
func (c *cluster) schedule(ctx context.Context, w *snapshot) {
	var nodes corev1.NodeList
	_ = c.List(ctx, &nodes)
	for i := range nodes.Items {
		if n := &nodes.Items[i]; strings.HasPrefix(n.Name, c.namespace) && len(n.Status.Addresses) == 0 {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2." + n.Name[len(n.Name)-1:]}}
			_ = c.Status().Update(ctx, n)
		}
	}
	for _, pod := range w.pods {
		volume := &corev1.PersistentVolume{}
		if pvc := w.claims[claim.NamesOf(pod)[0]]; pvc != nil && pvc.Status.Phase == corev1.ClaimBound {
			volume = w.volumes[pvc.Spec.VolumeName]
		} else if !claim.IsInline(&pod.Spec.Volumes[0]) {
			continue
		}
		if pod.Spec.NodeName != "" && pod.Status.StartTime == nil {
			if pod.Status.StartTime = ptr.To(metav1.Now()); pod.Annotations[rejected] != "" {
				pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "NodeAffinity"
			}
			_ = c.Status().Update(ctx, pod)
		}
		if pod.Spec.NodeName != "" || volume == nil {
			continue
		}
		pinned := claim.PinnedNodes(volume)
		for _, node := range slices.Sorted(maps.Keys(w.nodes)) {
			if strings.HasPrefix(node, c.namespace) && (len(pinned) == 0 || slices.Contains(pinned, node)) {
				_ = c.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}})
				break
			}
		}
	}
}

// collect deletes the Pods of deleted nodes, and the objects whose owners are all deleted. Objects that have other
// owners lose those that are deleted.
func (c *cluster) collect(ctx context.Context, w *snapshot) {
	now := client.GracePeriodSeconds(0)
	for _, pod := range w.pods {
		err := c.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &corev1.Node{})
		if pod.Spec.NodeName != "" && apierrors.IsNotFound(err) {
			_ = c.Delete(ctx, pod, now)
		}
	}
	alive := map[types.UID]bool{}
	var dependents []client.Object
	for _, all := range [][]client.Object{sliceOf(w.listeners), sliceOf(w.claims), sliceOf(w.volumes), sliceOf(w.pods), sliceOf(w.services), sliceOf(w.podListeners)} {
		for _, o := range all {
			alive[o.GetUID()] = true
			if len(o.GetOwnerReferences()) > 0 {
				dependents = append(dependents, o)
			}
		}
	}
	for _, o := range dependents {
		owners := slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), func(owner metav1.OwnerReference) bool { return !alive[owner.UID] && c.gone(ctx, owner) })
		switch len(owners) {
		case 0:
			_ = c.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID())})
		case len(o.GetOwnerReferences()):
		default:
			o.SetOwnerReferences(owners)
			_ = c.Update(ctx, o)
		}
	}
}

// gone reports whether an owner that was not in the lists does not exist: it may have been created after them.
func (c *cluster) gone(ctx context.Context, owner metav1.OwnerReference) bool {
	o := &metav1.PartialObjectMetadata{}
	o.APIVersion, o.Kind = owner.APIVersion, owner.Kind
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: owner.Name}, o)
	if owner.Kind == "PersistentVolume" {
		err = c.Get(ctx, client.ObjectKey{Name: owner.Name}, o)
	}
	return apierrors.IsNotFound(err) || err == nil && o.UID != owner.UID
}

func sliceOf[T any, P interface {
	*T
	client.Object
}](all map[string]P) []client.Object {
	var list []client.Object
	for _, o := range all {
		list = append(list, o)
	}
	return list
}
