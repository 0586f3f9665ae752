package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/stackable"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

const namespace = "somewhere"

var (
	start       = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	noIntercept interceptor.Funcs
	errBoom     = errors.New("boom")
)

// newConfig returns ListenerOperator/cluster with the API server's defaults.
func newConfig() *operatorv1alpha1.ListenerOperator { return objects.ListenerOperator() }

// harness is a Reconciler without a manager, and what happens around it.
type harness struct {
	*Reconciler
	Gomega
	t *testing.T
	// admin is the client of an administrator.
	admin  client.Client
	clock  *clocktesting.FakePassiveClock
	events *events.FakeRecorder
}

// newHarness returns a harness with a fake client.
func newHarness(t *testing.T, intercept interceptor.Funcs, objects ...client.Object) *harness {
	t.Helper()
	c := fakeclient.New(t, intercept, append(objects, agentAccount("made-first"))...)
	h := &harness{Gomega: NewWithT(t), t: t, admin: fakeclient.Cached(c, namespace), clock: clocktesting.NewFakePassiveClock(start)}
	h.startWith(c, c, namespace)
	h.Client, h.Clock = h.admin, h.clock
	return h
}

// newInstalled returns a harness in which the operator has installed its components, beside other objects.
func newInstalled(t *testing.T, others ...client.Object) *harness {
	t.Helper()
	h := newHarness(t, noIntercept, append(others, newConfig())...)
	h.mustReconcile()
	return h
}

// onServer returns a harness with the API server, and all permissions.
func onServer(t *testing.T) (*harness, *operator.World) {
	t.Helper()
	w := operator.NewWorld(t, apiserver.Config(t))
	h := &harness{Gomega: w.Gomega, t: t, admin: w.Client}
	h.startWith(w.Client, w.Client, w.Namespace)
	return h, w
}

// confined is onServer with the permissions of the operator, and the policies that confine it.
func confined(t *testing.T) (*harness, *operator.World) {
	t.Helper()
	h, w := onServer(t)
	c := w.ConfinedOperator()
	h.startWith(operator.Cached(c, w.Client), c, w.Namespace)
	return h, w
}

// in returns the harness for a subtest.
func (h *harness) in(t *testing.T) *harness {
	sub := *h
	sub.t, sub.Gomega = t, NewWithT(t)
	return &sub
}

// startWith replaces the Reconciler by a new one, as a restart of the operator does.
func (h *harness) startWith(c client.Client, apiReader client.Reader, namespace string) {
	h.events = events.NewFakeRecorder(100)
	h.Reconciler = &Reconciler{
		Client: c, Namespace: namespace, Image: operator.Image, apiReader: apiReader, stackable: nothingElseRuns, serves: servesNothingOptional,
		applier: apply.New(c, names.FieldManagerOperator), events: h.events, Clock: clock.RealClock{},
	}
}

// run runs the Reconciler by a manager until the test ends, with the API server.
func (h *harness) run() {
	h.t.Helper()
	apiserver.StartManager(h.t, nil, h.Namespace, func(mgr ctrl.Manager) error { return setup(h.t, mgr, h.Namespace) })
}

// setup sets up a Reconciler in a manager.
func setup(t *testing.T, mgr ctrl.Manager, namespace string) error {
	t.Helper()
	apis, err := platform.Watch(t.Context(), apiserver.Config(t))
	if err != nil {
		return err
	}
	return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: operator.Image, APIs: apis, Clock: clock.RealClock{}}).SetupWithManager(mgr)
}

// alwaysInstalled returns the components that are installed on any cluster.
func alwaysInstalled() []installation.Component {
	return slices.DeleteFunc(installation.Components(), func(c installation.Component) bool { return !c.Optional.Empty() })
}

// requiredCount returns how many of them are required; each is removed by a reconciliation of its own.
func requiredCount() int {
	return len(slices.DeleteFunc(alwaysInstalled(), func(c installation.Component) bool { return c.Extra }))
}

func servesNothingOptional(schema.GroupVersionKind) bool { return false }

func servesEverything(schema.GroupVersionKind) bool { return true }

func nothingElseRuns(context.Context) (stackable.Installation, error) {
	return stackable.Installation{}, nil
}

// agentAccount returns the agents' ServiceAccount, which is part of the operator's manifests.
func agentAccount(uid types.UID) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent, UID: uid}}
}

// must fails the test at an error.
func (h *harness) must(err error) {
	h.t.Helper()
	check.Must(h.t, err)
}

// equal compares what is expected of something with what there is.
func (h *harness) equal(what string, want, got any) {
	h.t.Helper()
	check.Equal(h.t, what, want, got)
}

func (h *harness) create(objects ...client.Object) {
	h.t.Helper()
	for _, o := range objects {
		h.must(h.admin.Create(h.t.Context(), o))
	}
}

// createConfig creates ListenerOperator/cluster with the API server's defaults.
func (h *harness) createConfig() *operatorv1alpha1.ListenerOperator {
	h.t.Helper()
	h.create(&operatorv1alpha1.ListenerOperator{ObjectMeta: objectMeta(operatorv1alpha1.ListenerOperatorName)})
	return h.config()
}

func (h *harness) update(o client.Object) {
	h.t.Helper()
	h.must(h.admin.Update(h.t.Context(), o))
}

func (h *harness) updateStatus(o client.Object) {
	h.t.Helper()
	h.must(h.admin.Status().Update(h.t.Context(), o))
}

// merge sends a merge patch.
func (h *harness) merge(o client.Object, patch string) {
	h.t.Helper()
	h.must(h.admin.Patch(h.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (h *harness) deleteAll(objects ...client.Object) {
	h.t.Helper()
	for _, o := range objects {
		h.must(h.admin.Delete(h.t.Context(), o))
	}
}

// read reads an object by its name.
func (h *harness) read(o client.Object) {
	h.t.Helper()
	h.must(h.admin.Get(h.t.Context(), client.ObjectKeyFromObject(o), o))
}

func (h *harness) exists(o client.Object) bool {
	h.t.Helper()
	err := h.admin.Get(h.t.Context(), client.ObjectKeyFromObject(o), o)
	h.must(client.IgnoreNotFound(err))
	return err == nil
}

func (h *harness) expectExist(objects []client.Object, exist bool) {
	h.t.Helper()
	for _, o := range objects {
		if h.exists(o) != exist {
			h.t.Errorf("%T %s exists: %t", o, o.GetName(), !exist)
		}
	}
}

// object reads the object of a component, or returns nil.
func (h *harness) object(c installation.Component) client.Object {
	h.t.Helper()
	object, err := lookup.Get(h.t.Context(), client.Reader(h.admin), c.Key(h.Namespace), client.Object(c.Empty()))
	h.must(err)
	return object
}

func (h *harness) config() *operatorv1alpha1.ListenerOperator {
	h.t.Helper()
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: objectMeta(operatorv1alpha1.ListenerOperatorName)}
	h.read(config)
	return config
}

// hasConfig reports whether there is a configuration.
func (h *harness) hasConfig() bool {
	h.t.Helper()
	return h.exists(&operatorv1alpha1.ListenerOperator{ObjectMeta: objectMeta(operatorv1alpha1.ListenerOperatorName)})
}

func (h *harness) agents() *appsv1.DaemonSet {
	h.t.Helper()
	agents := daemonSet(h.Namespace)
	h.read(agents)
	return agents
}

// daemonSet is the DaemonSet of a namespace, without content.
func daemonSet(namespace string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
}

// class and driver are the StorageClass and the CSIDriver, without content.
func class() *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: objectMeta(names.Driver)}
}

func driver() *storagev1.CSIDriver { return &storagev1.CSIDriver{ObjectMeta: objectMeta(names.Driver)} }

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// collectGarbage finishes the foreground deletion of a DaemonSet, as the garbage collector does once its Pods are
// deleted.
func (h *harness) collectGarbage(agents *appsv1.DaemonSet) {
	h.t.Helper()
	if agents.DeletionTimestamp.IsZero() {
		h.t.Errorf("DaemonSet %s/%s is not deleted", agents.Namespace, agents.Name)
	}
	h.merge(agents, `{"metadata":{"finalizers":null}}`)
}

// reconcileOnce reconciles the current configuration.
func (h *harness) reconcileOnce() (reconcile.Result, error) {
	h.t.Helper()
	return h.Reconcile(h.t.Context(), h.config())
}

func (h *harness) mustReconcile() reconcile.Result {
	h.t.Helper()
	result, err := h.reconcileOnce()
	h.must(err)
	return result
}

// mustReconcileTwice also writes what depends on the first answers of the API server, such as a field of the CSIDriver.
func (h *harness) mustReconcileTwice() {
	h.t.Helper()
	h.mustReconcile()
	h.mustReconcile()
}

// removeAll reconciles until everything is removed, while the garbage collector works.
func (h *harness) removeAll() {
	h.t.Helper()
	for range requiredCount() + 1 {
		if h.hasConfig() {
			h.mustReconcile()
		}
		agents := daemonSet(h.Namespace)
		if h.exists(agents) && agents.DeletionTimestamp != nil {
			h.collectGarbage(agents)
		}
	}
}

// reconcileUntilSettled reconciles until no more components are deleted, as watches of deletions do.
func (h *harness) reconcileUntilSettled() {
	h.t.Helper()
	for before := -1; before != len(h.installed()); {
		before = len(h.installed())
		h.mustReconcile()
	}
	h.mustReconcile()
}

func (h *harness) setState(state operatorv1alpha1.ManagementState) {
	h.t.Helper()
	h.configure(func(spec *operatorv1alpha1.ListenerOperatorSpec) { spec.ManagementState = state })
}

// configure changes the configuration.
func (h *harness) configure(change func(*operatorv1alpha1.ListenerOperatorSpec)) {
	h.t.Helper()
	config := h.config()
	change(&config.Spec)
	h.update(config)
}

func (h *harness) deleteConfig() {
	h.t.Helper()
	h.deleteAll(h.config())
}

// removals start a removal.
var removals = map[string]func(*harness){
	"by management state": func(h *harness) { h.setState(operatorv1alpha1.Removed) },
	"by deletion":         func(h *harness) { h.deleteConfig() },
}

// condition returns a condition, or an empty one if there is none yet.
func (h *harness) condition(name string) metav1.Condition {
	h.t.Helper()
	return ptr.Deref(meta.FindStatusCondition(h.config().Status.Conditions, name), metav1.Condition{})
}

func (h *harness) message(condition string) string {
	h.t.Helper()
	return h.condition(condition).Message
}

// conditions returns "status reason" of each condition but Upgradeable, which follows from the others.
func (h *harness) conditions() map[string]string {
	h.t.Helper()
	found := map[string]string{}
	for _, c := range h.config().Status.Conditions {
		if c.Type != operatorv1alpha1.ConditionUpgradeable {
			found[c.Type] = fmt.Sprintf("%s %s", c.Status, c.Reason)
		}
	}
	return found
}

// expect checks the conditions, and which components exist.
func (h *harness) expect(available, progressing, degraded string, installed []string) {
	h.t.Helper()
	h.equal("conditions", map[string]string{"Available": available, "Progressing": progressing, "Degraded": degraded}, h.conditions())
	h.expectInstalled(installed)
}

// expectUpgradeable checks the condition Upgradeable.
func (h *harness) expectUpgradeable(want metav1.ConditionStatus, reason string) {
	h.t.Helper()
	if c := h.condition(operatorv1alpha1.ConditionUpgradeable); c.Status != want || c.Reason != reason {
		h.t.Errorf("condition is %+v, want %s %s", c, want, reason)
	}
}

// installed returns the kinds of the components that exist, and whether they are foreign.
func (h *harness) installed() []string {
	h.t.Helper()
	var found []string
	for _, c := range alwaysInstalled() {
		object := h.object(c)
		if object == nil {
			continue
		}
		name := c.Kind
		if !metav1.IsControlledBy(object, h.config()) {
			name += " (foreign)"
		}
		found = append(found, name)
	}
	return found
}

// expectInstalled checks which components exist.
func (h *harness) expectInstalled(want []string) {
	h.t.Helper()
	h.equal("installed", want, h.installed())
}

// expectNothingInstalled is expectInstalled without a configuration.
func (h *harness) expectNothingInstalled() {
	h.t.Helper()
	for _, c := range alwaysInstalled() {
		if h.object(c) != nil {
			h.t.Errorf("%s %s exists", c.Kind, c.Name)
		}
	}
}

func allKinds() []string {
	var kinds []string
	for _, c := range alwaysInstalled() {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

// upTo returns the first n kinds.
func upTo(n int) []string {
	if n <= 0 {
		return nil
	}
	return allKinds()[:n]
}

// rollOut sets the status of the DaemonSet.
func (h *harness) rollOut(desired, updated, ready int32) {
	h.t.Helper()
	h.setAgents(desired, desired, updated, ready)
}

// setAgents is rollOut while Pods are missing.
func (h *harness) setAgents(desired, current, updated, ready int32) {
	h.t.Helper()
	agents := h.agents()
	agents.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: agents.Generation, DesiredNumberScheduled: desired, CurrentNumberScheduled: current,
		UpdatedNumberScheduled: updated, NumberReady: ready,
	}
	h.updateStatus(agents)
}

// setTemplate makes the template of the DaemonSet another one, which its controller has not seen.
func (h *harness) setTemplate(generation string) {
	h.t.Helper()
	agents := h.agents()
	agents.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: generation}
	agents.Generation++ // as the API server does when the DaemonSet is changed
	h.update(agents)
}

func volume(name, claim string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: objectMeta(name), Status: corev1.PersistentVolumeStatus{Phase: phase}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: name}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim}
	pv.Spec.Capacity, pv.Spec.AccessModes = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	return pv
}

// podWithClaims returns a Pod that mounts the claims.
func podWithClaims(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume(claim, claim))
	}
	return pod
}

func podWithInlineVolume(name string, phase corev1.PodPhase) *corev1.Pod {
	pod := podWithClaims(name)
	pod.Spec.Volumes, pod.Status.Phase = []corev1.Volume{objects.InlineVolume("listener", nil)}, phase
	return pod
}

// expectBoom reconciles, with an error of the client.
func (h *harness) expectBoom() {
	h.t.Helper()
	if _, err := h.reconcileOnce(); !errors.Is(err, errBoom) {
		h.t.Fatalf("error is %v, want boom", err)
	}
}
