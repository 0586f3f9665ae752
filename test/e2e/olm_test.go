//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/cluster/olm"
)

// underOLM says that the cluster gets the Operator Lifecycle Manager in place of the operator, for
// TestTheOperatorUnderOLM alone.
var underOLM = os.Getenv("INSTALL") == "olm"

// prepareOLM installs the manager.
func prepareOLM(ctx context.Context) error {
	return olm.Install(ctx, testbed, os.Stderr)
}

// podSecurity is the label of a namespace that says what its Pods may do.
const podSecurity = "pod-security.kubernetes.io/enforce"

// catalogueName is the CatalogSource's name.
const catalogueName = "listener-operator-catalog"

// TestTheOperatorUnderOLM tells what an administrator does with the operator and a real Operator Lifecycle Manager,
// from the first installation to the last trace, on a cluster without the internet (docs/disconnected.md): images have
// their published names, and come from a mirror that speaks TLS and asks for a password. Its chapters build on one
// another.
func TestTheOperatorUnderOLM(t *testing.T) {
	if !underOLM {
		t.Skip("needs a cluster of its own with the Operator Lifecycle Manager: make test-olm")
	}
	m := &olmScenario{scenario: newScenario(t), t: t}
	m.publishReleases(mustRelease(t, "0.1.0"))

	m.step("it comes up in any namespace, and says what keeps its agents away", (*olmScenario).installAnywhere)
	m.step("the scorecard passes", (*olmScenario).runScorecard)
	m.step("an administrator installs it from a catalogue", (*olmScenario).install)
	m.step("it is upgraded while Pods mount and clients talk to them", func(m *olmScenario) { m.upgrade(mustRelease(t, "0.2.0")) })
	m.step("settings of its Subscription reach its agents", (*olmScenario).configure)
	m.step("without it, Pods go on", (*olmScenario).reinstall)
	m.step("it moves to another namespace", (*olmScenario).move)
	m.step("it is uninstalled without a trace", (*olmScenario).uninstall)
}

func mustRelease(t *testing.T, version string) release {
	t.Helper()
	r, err := newRelease(t.Context(), t.TempDir(), version)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// managed is a story of an operator that OLM manages.
type olmScenario struct {
	*scenario
	// t is the story's test, or that of the chapter that is told.
	t *testing.T
	// releases are those in the catalogue.
	releases []release
	// namespace is the operator's namespace.
	operatorNamespace string
	// before is what the cluster had before the operator.
	objectsBefore map[string]bool
}

// within is a context that ends when patience with the manager does: its steps have many parts.
func (m *olmScenario) timeoutContext() context.Context {
	ctx, cancel := context.WithTimeout(m.ctx, 3*timeout)
	m.Cleanup(cancel)
	return ctx
}

// chapter tells a part of the story. What follows needs it.
func (m *olmScenario) step(name string, tell func(*olmScenario)) {
	m.Helper()
	outer, whole := *m.scenario, m.t
	ok := whole.Run(name, func(t *testing.T) {
		inner := outer
		inner.TB, inner.ctx = t, t.Context()
		m.scenario, m.t = &inner, t
		began := time.Now()
		tell(m)
		t.Logf("took %s", time.Since(began).Round(time.Second))
	})
	m.scenario, m.t = &outer, whole
	if !ok {
		m.FailNow()
	}
}

// offer adds releases to the catalogue that the cluster has.
func (m *olmScenario) publishReleases(releases ...release) {
	m.Helper()
	m.releases = append(m.releases, releases...)
	image, err := newCatalogue(m.ctx, filepath.Join(m.TempDir(), "catalogue"), m.releases...)
	if err != nil {
		m.Fatal(err)
	}
	source := &operatorsv1alpha1.CatalogSource{
		TypeMeta:   metav1.TypeMeta{APIVersion: operatorsv1alpha1.SchemeGroupVersion.String(), Kind: operatorsv1alpha1.CatalogSourceKind},
		ObjectMeta: metav1.ObjectMeta{Name: catalogueName, Namespace: olm.Namespace},
		Spec: operatorsv1alpha1.CatalogSourceSpec{
			SourceType:  operatorsv1alpha1.SourceTypeGrpc,
			Secrets:     []string{pullSecret},
			Image:       image,
			DisplayName: "Listener Operator",
			GrpcPodConfig: &operatorsv1alpha1.GrpcPodConfig{
				SecurityContextConfig: operatorsv1alpha1.Restricted,
				ExtractContent:        &operatorsv1alpha1.ExtractContentConfig{CatalogDir: "/configs"},
			},
		},
	}
	existing := &operatorsv1alpha1.CatalogSource{}
	err = api.Get(m.ctx, client.ObjectKeyFromObject(source), existing)
	if client.IgnoreNotFound(err) != nil {
		m.Fatal(err)
	}
	if err != nil {
		m.createPullSecret(olm.Namespace)
		m.create(source)
		return
	}
	m.patch(existing, func() { existing.Spec.Image = image })
}

// latest is the release at the head of the catalogue.
func (m *olmScenario) latest() release { return m.releases[len(m.releases)-1] }

// settle makes a namespace for the operator, with an OperatorGroup for all namespaces.
func (m *olmScenario) createOperatorNamespace(namespace *corev1.Namespace) {
	m.Helper()
	m.create(namespace)
	m.operatorNamespace = namespace.Name
	m.createPullSecret(m.operatorNamespace)
	m.create(m.operatorGroup())
}

func (m *olmScenario) operatorGroup() *operatorsv1.OperatorGroup {
	return &operatorsv1.OperatorGroup{ObjectMeta: metav1.ObjectMeta{Name: names.Operator, Namespace: m.operatorNamespace}}
}

// subscribe asks for the operator in that namespace: nothing else is needed.
func (m *olmScenario) subscribe() {
	m.Helper()
	m.create(&operatorsv1alpha1.Subscription{
		ObjectMeta: metav1.ObjectMeta{Name: names.Operator, Namespace: m.operatorNamespace},
		Spec: &operatorsv1alpha1.SubscriptionSpec{
			CatalogSource: catalogueName, CatalogSourceNamespace: olm.Namespace, Package: names.Operator, Channel: "stable",
		},
	})
}

// succeeded waits until OLM has installed the release at the head.
func (m *olmScenario) awaitInstalled() {
	m.Helper()
	if _, err := await(m.timeoutContext(), &operatorsv1alpha1.ClusterServiceVersion{},
		client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator + ".v" + m.latest().version},
		func(csv *operatorsv1alpha1.ClusterServiceVersion) bool {
			return csv.Status.Phase == operatorsv1alpha1.CSVPhaseSucceeded
		}); err != nil {
		m.dumpOLM()
		m.Fatal(err)
	}
}

// available waits until the operator of the latest release reports that its agents are ready everywhere.
func (m *olmScenario) awaitAvailable() *operatorv1alpha1.ListenerOperator {
	m.Helper()
	return m.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		return o.Status.Version == m.latest().version && meta.IsStatusConditionTrue(o.Status.Conditions, operatorv1alpha1.ConditionAvailable) &&
			meta.IsStatusConditionFalse(o.Status.Conditions, operatorv1alpha1.ConditionProgressing) &&
			o.Status.NodeAgent.Ready == int32(len(testbed.Nodes())) && o.Status.NodeAgent.Updated == o.Status.NodeAgent.Desired
	})
}

// configured waits until ListenerOperator/cluster fulfils the condition.
func (m *olmScenario) awaitConfig(condition func(*operatorv1alpha1.ListenerOperator) bool) *operatorv1alpha1.ListenerOperator {
	m.Helper()
	o, err := await(m.timeoutContext(), &operatorv1alpha1.ListenerOperator{}, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, condition)
	if err != nil {
		m.dumpOLM()
		m.Fatal(err)
	}
	return o
}

// degraded waits until the condition Degraded has the reason, and returns what the administrator is told.
func (m *olmScenario) awaitDegraded(reason string) string {
	m.Helper()
	var told string
	m.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionDegraded)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason {
			return false
		}
		told = c.Message
		return true
	})
	m.Logf("the administrator is told: %s", told)
	return told
}

// showOLM prints what OLM thinks.
func (m *olmScenario) dumpOLM() {
	for _, args := range [][]string{
		{"get", "catalogsources,subscriptions,installplans,clusterserviceversions,jobs,pods", "-A", "-o", "wide"},
		{"get", "subscriptions,installplans", "-n", m.operatorNamespace, "-o", "yaml"},
		{"get", "events", "-n", m.operatorNamespace},
	} {
		out, _ := kubectl(context.WithoutCancel(m.ctx), args...)
		m.Logf("kubectl %s:\n%s", strings.Join(args, " "), out)
	}
}

// suggestedNamespace returns the namespace that the bundle suggests, which is the one that OpenShift's console makes.
func (m *olmScenario) suggestedNamespace() *corev1.Namespace {
	m.Helper()
	data, err := os.ReadFile(filepath.Join(m.latest().dir, "bundle/manifests/listener-operator.clusterserviceversion.yaml"))
	if err != nil {
		m.Fatal(err)
	}
	var csv operatorsv1alpha1.ClusterServiceVersion
	if err := yaml.Unmarshal(data, &csv); err != nil {
		m.Fatal(err)
	}
	namespace := &corev1.Namespace{}
	if err := json.Unmarshal([]byte(csv.Annotations["operatorframework.io/suggested-namespace-template"]), namespace); err != nil {
		m.Fatal(err)
	}
	return namespace
}

// comesUpAnywhere: OpenShift's certification installs operators into a namespace of its own choice, and an
// administrator may forget a label. The operator itself needs no privilege; its agents do.
func (m *olmScenario) installAnywhere() {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "anywhere-", Labels: map[string]string{podSecurity: "restricted"},
	}}
	m.createOperatorNamespace(namespace)
	m.subscribe()
	m.awaitInstalled()
	message := m.awaitDegraded(operatorv1alpha1.ReasonAgentsNotCreated)
	if !strings.Contains(message, podSecurity) {
		m.Errorf("nobody tells the administrator of the label %s", podSecurity)
	}
	m.patch(namespace, func() { namespace.Labels[podSecurity] = "privileged" })
	m.awaitAvailable()
	m.uninstallFrom(namespace)
}

// leave takes an installation away without a trace, and its namespace.
func (m *olmScenario) uninstallFrom(namespace *corev1.Namespace) {
	m.Helper()
	m.remove(&operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}})
	mustAwaitGone(m.scenario, &operatorv1alpha1.ListenerOperator{}, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName})
	m.unsubscribe()
	m.removeTopologyLabels()
	m.remove(namespace)
	mustAwaitGone(m.scenario, &corev1.Namespace{}, client.ObjectKeyFromObject(namespace))
}

// isInstalled: with nothing more to do than to subscribe, the first Pod mounts a listener volume and is reached from
// outside.
func (m *olmScenario) install() {
	m.createOperatorNamespace(m.suggestedNamespace())
	m.objectsBefore = m.listObjects()
	// The kinds that are there may be the peer's, and name a webhook that is gone with it.
	m.setConversionWebhook(stackableFieldManager)
	m.subscribe()
	subscribed := time.Now()
	// It may be there before the operator is.
	m.create(pod("first", map[string]map[string]string{"listener": byClass("external-unstable")}))
	m.awaitInstalled()
	m.Logf("Subscription created to CSV Succeeded: %s", time.Since(subscribed).Round(time.Second))
	m.checkNoConversionWebhook()
	first := m.awaitReady("first")
	m.Logf("Subscription created to the first Pod with a listener volume ready: %s", time.Since(subscribed).Round(time.Second))
	own := m.awaitPodListener(first, "listener").IngressAddresses[0]
	m.awaitAnswer(own, "first")
	if diff := cmp.Diff(wantFiles("listener", own), m.readFiles(own)); diff != "" {
		m.Errorf("files (-want +got):\n%s", diff)
	}
	m.awaitAvailable()
	m.Logf("Subscription created to all agents ready: %s", time.Since(subscribed).Round(time.Second))
}

// isUpgraded: through the channel, while Pods of a StatefulSet and a single one are used from outside, and new ones
// start.
func (m *olmScenario) upgrade(next release) {
	class := m.createLastingClass(pinned())
	m.create(statefulSet("broker", 3, byClass(class)))
	for i := range 3 {
		m.awaitReady(fmt.Sprintf("broker-%d", i))
	}
	before := m.collectUserData()
	agents := m.daemonSet()
	load := m.startLoad(before)

	m.publishReleases(next)
	offered := time.Now()
	m.awaitInstalled()
	m.Logf("new catalogue to CSV Succeeded: %s", time.Since(offered).Round(time.Second))
	m.awaitAvailable()
	m.Logf("new catalogue to all agents replaced: %s", time.Since(offered).Round(time.Second))
	mustAwaitGone(m.scenario, &operatorsv1alpha1.ClusterServiceVersion{},
		client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator + ".v" + m.releases[0].version})
	load.stopAndCheck(m)

	m.checkNotRecreated(agents)
	if diff := cmp.Diff(before, m.collectUserData()); diff != "" {
		m.Errorf("the upgrade changed what users have (-before +after):\n%s", diff)
	}
}

// isConfigured: who needs a proxy, or keeps the operator on some nodes, says so in the Subscription, as for any
// operator.
func (m *olmScenario) configure() {
	subscription := &operatorsv1alpha1.Subscription{}
	m.get(subscription, client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator})
	direct := corev1.EnvVar{Name: "NO_PROXY", Value: ".cluster.local"}
	infra := corev1.Toleration{Key: "node-role.kubernetes.io/infra", Operator: corev1.TolerationOpExists}
	m.patch(subscription, func() {
		subscription.Spec.Config = &operatorsv1alpha1.SubscriptionConfig{Env: []corev1.EnvVar{direct}, Tolerations: []corev1.Toleration{infra}}
	})
	config := &operatorv1alpha1.ListenerOperator{}
	m.get(config, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName})
	m.patch(config, func() { config.Spec.NodeAgent.Placement = operatorv1alpha1.PlacementLikeOperator })
	m.awaitAgentsWith(direct, infra)

	// Who keeps the operator on one node strands no Pod on another.
	one := &corev1.Node{}
	m.get(one, client.ObjectKey{Name: testbed.NodeName(testbed.Nodes()[0])})
	m.patch(one, func() { one.Labels["example.com/operators"] = "" })
	m.patch(subscription, func() { subscription.Spec.Config.NodeSelector = map[string]string{"example.com/operators": ""} })
	message := m.awaitDegraded(operatorv1alpha1.ReasonAgentsInUse)
	for name, d := range m.collectUserData() {
		if strings.Contains(message, m.namespace+"/"+name) == (d.Node == one.Name) {
			m.Errorf("%s on %s: named if and only if it is where the operator may run", name, d.Node)
		}
	}
	m.patch(subscription, func() { subscription.Spec.Config.NodeSelector = nil })
	m.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		return meta.IsStatusConditionFalse(o.Status.Conditions, operatorv1alpha1.ConditionDegraded) && isAvailableOnAllNodes(o)
	})
	m.awaitAgentsWith(direct, infra)
}

// agentsHave waits until all agents run with the variable and the toleration.
func (m *olmScenario) awaitAgentsWith(variable corev1.EnvVar, toleration corev1.Toleration) {
	m.Helper()
	if _, err := await(m.timeoutContext(), &appsv1.DaemonSet{}, client.ObjectKey{Namespace: m.operatorNamespace, Name: names.NodeAgent},
		func(d *appsv1.DaemonSet) bool {
			agent := d.Spec.Template.Spec
			return slices.Contains(agent.Containers[0].Env, variable) && slices.Contains(agent.Tolerations, toleration) &&
				d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedNumberScheduled == d.Status.DesiredNumberScheduled &&
				d.Status.NumberReady == d.Status.DesiredNumberScheduled
		}); err != nil {
		m.Fatal(err)
	}
}

// isAway: whoever deletes the Subscription and the CSV takes the operator away, and only that.
func (m *olmScenario) reinstall() {
	before, agents := m.collectUserData(), m.daemonSet()
	m.unsubscribe()
	m.checkUserData(before)
	leaving := &corev1.Pod{}
	m.get(leaving, m.key("first"))
	m.remove(leaving)
	mustAwaitGone(m.scenario, leaving, client.ObjectKeyFromObject(leaving))
	m.awaitPodDirRemoved(leaving)

	m.subscribe()
	m.awaitInstalled()
	m.awaitAvailable()
	delete(before, "first")
	m.checkUserData(before)
	m.checkNotRecreated(agents)
	m.create(pod("late", map[string]map[string]string{"listener": byClass("external-unstable")}))
	m.awaitAnswer(m.awaitPodListener(m.awaitReady("late"), "listener").IngressAddresses[0], "late")
}

// isMoved: whoever deletes the Subscription and the CSV may install the operator somewhere else. Its agents follow, and
// Pods go on.
func (m *olmScenario) move() {
	before, left := m.collectUserData(), m.daemonSet()
	m.unsubscribe()
	next := m.suggestedNamespace()
	next.Name += "-next"
	m.createOperatorNamespace(next)
	m.subscribe()
	m.awaitInstalled()
	m.awaitAvailable()
	mustAwaitGone(m.scenario, left, client.ObjectKeyFromObject(left))
	m.checkUserData(before)
	m.create(pod("moved", map[string]map[string]string{"listener": byClass("external-unstable")}))
	moved := m.awaitReady("moved")
	m.awaitAnswer(m.awaitPodListener(moved, "listener").IngressAddresses[0], "moved")
	m.remove(moved)
	mustAwaitGone(m.scenario, moved, client.ObjectKeyFromObject(moved))
	abandoned := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left.Namespace}}
	m.remove(abandoned)
	mustAwaitGone(m.scenario, abandoned, client.ObjectKeyFromObject(abandoned))

	// The new namespace is as the first was, before the operator was there: with a pull secret, and an OperatorGroup
	// that OLM makes roles for.
	for _, o := range []string{
		"namespaces /" + m.operatorNamespace, "serviceaccounts " + m.operatorNamespace + "/default", "configmaps " + m.operatorNamespace + "/kube-root-ca.crt",
		"secrets " + m.operatorNamespace + "/" + pullSecret, "operatorgroups.operators.coreos.com " + client.ObjectKeyFromObject(m.operatorGroup()).String(),
	} {
		m.objectsBefore[o] = true
	}
	for o := range m.listObjects() {
		if strings.HasPrefix(o, "clusterroles.rbac.authorization.k8s.io /olm.og."+m.operatorGroup().Name+".") {
			m.objectsBefore[o] = true
		}
	}
}

// isUninstalled: first the configuration, which waits until no volume is in use, then Subscription and CSV, then the
// kinds, which OLM leaves.
func (m *olmScenario) uninstall() {
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	m.remove(config)
	message := m.awaitDegraded(operatorv1alpha1.ReasonVolumesInUse)
	for _, name := range []string{"broker-0", "late"} {
		if !strings.Contains(message, m.namespace+"/"+name) {
			m.Errorf("the Pod %s is not named", name)
		}
	}
	m.checkUserData(m.collectUserData())

	m.remove(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "broker", Namespace: m.namespace}})
	m.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: m.namespace}})
	if err := api.DeleteAllOf(m.ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(m.namespace)); err != nil {
		m.Fatal(err)
	}
	mustAwaitGone(m.scenario, config, client.ObjectKeyFromObject(config))
	m.unsubscribe()
	m.removeTopologyLabels()
	m.awaitNoTraces("customresourcedefinitions.apiextensions.k8s.io ", "listenerclasses.listeners.stackable.tech ",
		"operators.operators.coreos.com /"+names.Operator+".")
	for _, kind := range []string{
		"listeners.listeners.stackable.tech", "listenerclasses.listeners.stackable.tech", "podlisteners.listeners.stackable.tech",
		"listeneroperators.listener-operator.dev",
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind}}
		m.remove(definition)
		mustAwaitGone(m.scenario, definition, client.ObjectKeyFromObject(definition))
	}
	// They come back if OLM has not seen yet that the kinds are gone.
	if err := eventually(m.timeoutContext(), func(ctx context.Context) error { return errors.Join(m.deleteOperators(ctx), m.findTraces()) }); err != nil {
		m.Error(err)
	}
}

// forget deletes the objects in which OLM collects what belongs to the operator, one for each namespace that it was in:
// it never does so itself.
func (m *olmScenario) deleteOperators(ctx context.Context) error {
	var collections operatorsv1.OperatorList
	if err := api.List(ctx, &collections); err != nil {
		return err
	}
	var errs []error
	for i := range collections.Items {
		if c := &collections.Items[i]; !m.objectsBefore["operators.operators.coreos.com /"+c.Name] {
			errs = append(errs, client.IgnoreNotFound(api.Delete(ctx, c)))
		}
	}
	return errors.Join(errs...)
}

// lasting makes a class that lives longer than the chapter, and returns its name.
func (m *olmScenario) createLastingClass(spec listenersv1alpha1.ListenerClassSpec) string {
	m.Helper()
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: m.namespace}, Spec: spec}
	m.create(class)
	return class.Name
}

// agents returns the DaemonSet.
func (m *olmScenario) daemonSet() *appsv1.DaemonSet {
	m.Helper()
	agents := &appsv1.DaemonSet{}
	m.get(agents, client.ObjectKey{Namespace: m.operatorNamespace, Name: names.NodeAgent})
	return agents
}

// sameAs checks that the DaemonSet was changed, if at all, and not made anew.
func (m *olmScenario) checkNotRecreated(agents *appsv1.DaemonSet) {
	m.Helper()
	if after := m.daemonSet(); after.UID != agents.UID {
		m.Errorf("the DaemonSet was made anew: its uid was %s and is %s", agents.UID, after.UID)
	}
}

// unsubscribe deletes the Subscription and what it installed, and waits until the operator is gone.
func (m *olmScenario) unsubscribe() {
	m.Helper()
	m.remove(&operatorsv1alpha1.Subscription{ObjectMeta: metav1.ObjectMeta{Name: names.Operator, Namespace: m.operatorNamespace}})
	csv := &operatorsv1alpha1.ClusterServiceVersion{
		ObjectMeta: metav1.ObjectMeta{Name: names.Operator + ".v" + m.latest().version, Namespace: m.operatorNamespace},
	}
	m.remove(csv)
	mustAwaitGone(m.scenario, csv, client.ObjectKeyFromObject(csv))
	operator := client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator}
	mustAwaitGone(m.scenario, &appsv1.Deployment{}, operator)
	mustAwaitGone(m.scenario, &corev1.ServiceAccount{}, operator)
}

// unlabel takes off the Nodes what kubelets leave there of a driver that is gone.
func (m *olmScenario) removeTopologyLabels() {
	m.Helper()
	if _, err := kubectl(m.ctx, "label", "nodes", "--all", names.TopologyKey+"-"); err != nil {
		m.Fatal(err)
	}
}

// userData is what an upgrade must leave alone of a Pod.
type userData struct {
	UID       types.UID
	Restarts  int32
	Node      string
	Addresses []listenersv1alpha1.IngressAddress
	// Service is that of the Pod, and Ports are its node ports.
	Service types.UID
	Ports   []int32
	Files   map[string]string
}

// data returns what the Pods of the story have, by their names.
func (m *olmScenario) collectUserData() map[string]userData {
	m.Helper()
	var pods corev1.PodList
	if err := api.List(m.ctx, &pods, client.InNamespace(m.namespace)); err != nil {
		m.Fatal(err)
	}
	all := map[string]userData{}
	for i := range pods.Items {
		p := &pods.Items[i]
		service := &corev1.Service{}
		listener := p.Name + "-listener"
		if strings.HasPrefix(p.Name, "broker-") {
			listener = "listener-" + p.Name
		}
		m.get(service, m.key(listener))
		d := userData{UID: p.UID, Node: p.Spec.NodeName, Addresses: m.awaitPodListener(p, "listener").IngressAddresses, Service: service.UID}
		for _, c := range p.Status.ContainerStatuses {
			d.Restarts += c.RestartCount
		}
		d.Files = m.readFiles(d.Addresses[0])
		for _, port := range service.Spec.Ports {
			d.Ports = append(d.Ports, port.NodePort)
		}
		all[p.Name] = d
	}
	return all
}

// stillUsable checks that Pods have what they had, and are reached.
func (m *olmScenario) checkUserData(before map[string]userData) {
	m.Helper()
	if diff := cmp.Diff(before, m.collectUserData()); diff != "" {
		m.Errorf("what users have changed (-before +after):\n%s", diff)
	}
	for name, d := range before {
		if got, err := request(m.timeoutContext(), d.Addresses[0], "/whoami"); err != nil || got != name {
			m.Errorf("%s: %q answered, %v", name, got, err)
		}
	}
}

// load is what users do meanwhile.
type load struct {
	cancel   context.CancelFunc
	work     sync.WaitGroup
	mu       sync.Mutex
	requests int
	slowest  time.Duration
	mounts   []time.Duration
	// unavailable is the greatest number of agents that were away at once.
	unavailable int32
	// failures are what went wrong, by what was done.
	failures map[string]*failure
}

// failure is how often something went wrong, and how the first time.
type failure struct {
	times int
	first error
}

// use lets clients from outside talk to the Pods, Pods with new volumes start, and somebody count the agents, until the
// load ends.
func (m *olmScenario) startLoad(pods map[string]userData) *load {
	ctx, cancel := context.WithCancel(m.ctx)
	l := &load{cancel: cancel, failures: map[string]*failure{}}
	for name, d := range pods {
		l.work.Go(func() { l.sendRequests(ctx, name, d.Addresses[0]) })
	}
	l.work.Go(func() { l.startPods(ctx, m) })
	l.work.Go(func() { l.watchAgents(ctx, m.operatorNamespace) })
	return l
}

// patient is a client outside of the cluster that a busy machine does not fail: an address that leads nowhere refuses
// at once.
var patientClient = &http.Client{Timeout: 30 * time.Second, Transport: externalClient.Transport}

// talk asks a Pod for its name, over and over.
func (l *load) sendRequests(ctx context.Context, want string, a listenersv1alpha1.IngressAddress) {
	for ctx.Err() == nil {
		began := time.Now()
		got, err := requestWith(context.WithoutCancel(ctx), patientClient, a, "/whoami")
		if err == nil && got != want {
			err = fmt.Errorf("%q answered", got)
		}
		l.record(func() {
			l.requests++
			l.slowest = max(l.slowest, time.Since(began))
			l.recordError("asking "+want, err)
		})
		select {
		case <-ctx.Done():
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// mount starts and ends Pods one after another.
func (l *load) startPods(ctx context.Context, m *olmScenario) {
	for i := 0; ctx.Err() == nil; i++ {
		p := pod(fmt.Sprintf("mount-%d", i), map[string]map[string]string{"listener": byClass("external-unstable")})
		p.Namespace = m.namespace
		began := time.Now()
		err := createAndDelete(context.WithoutCancel(ctx), p)
		l.record(func() {
			l.mounts = append(l.mounts, time.Since(began))
			l.recordError("starting and ending Pods", err)
		})
	}
}

// comeAndGo has a Pod become ready, and end.
func createAndDelete(ctx context.Context, p *corev1.Pod) error {
	come, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := api.Create(come, p); err != nil {
		return err
	}
	_, err := await(come, &corev1.Pod{}, client.ObjectKeyFromObject(p), isReady)
	gone, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return errors.Join(err, api.Delete(gone, p), awaitGone(gone, &corev1.Pod{}, client.ObjectKeyFromObject(p)))
}

// count watches the DaemonSet.
func (l *load) watchAgents(ctx context.Context, namespace string) {
	_, err := watchUntil(ctx, &appsv1.DaemonSet{}, selectObject(client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}),
		func(_ watch.EventType, d *appsv1.DaemonSet) bool {
			l.record(func() { l.unavailable = max(l.unavailable, d.Status.NumberUnavailable) })
			return false
		})
	if ctx.Err() == nil {
		l.record(func() { l.recordError("counting the agents", err) })
	}
}

func (l *load) record(write func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	write()
}

// fail notes an error, if there is one.
func (l *load) recordError(doing string, err error) {
	if err == nil {
		return
	}
	if l.failures[doing] == nil {
		l.failures[doing] = &failure{first: err}
	}
	l.failures[doing].times++
}

// end stops the load and checks that nobody noticed anything.
func (l *load) stopAndCheck(m *olmScenario) {
	m.Helper()
	l.cancel()
	l.work.Wait()
	for doing, f := range l.failures {
		m.Errorf("%s failed %d times, first with: %v", doing, f.times, f.first)
	}
	slices.Sort(l.mounts)
	m.Logf("%d requests, the slowest took %s; %d Pods started and ended, each in %s (median; slowest %s); at most %d agents were away at once",
		l.requests, l.slowest.Round(time.Millisecond), len(l.mounts), l.mounts[len(l.mounts)/2].Round(time.Millisecond),
		l.mounts[len(l.mounts)-1].Round(time.Millisecond), l.unavailable)
	if l.unavailable > 1 {
		m.Errorf("%d agents were away at once, want at most a tenth, which is 1", l.unavailable)
	}
}

// passing are kinds whose objects come and go by themselves.
var volatileResources = []string{"events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io", "endpoints", "replicasets.apps"}

// everything returns each object of the cluster, except for those of the passing kinds and of the story, as "kind
// namespace/name", and what of its metadata bears our names.
func (m *olmScenario) listObjects() map[string]bool {
	m.Helper()
	config, err := testbed.RESTConfig()
	if err != nil {
		m.Fatal(err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		m.Fatal(err)
	}
	objects := map[string]bool{}
	for _, group := range kinds {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			m.Fatal(err)
		}
		for _, r := range group.APIResources {
			resource := gv.WithResource(r.Name)
			if !slices.Contains(r.Verbs, "list") || slices.Contains(volatileResources, resource.GroupResource().String()) {
				continue
			}
			list, err := metadata.NewForConfigOrDie(config).Resource(resource).List(m.ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // the kind has just been deleted
			}
			if err != nil {
				m.Fatalf("listing %s: %v", resource, err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				if o.Namespace == m.namespace || o.Namespace == olm.Namespace {
					continue
				}
				name := resource.GroupResource().String() + " " + client.ObjectKeyFromObject(o).String()
				objects[name] = true
				for _, mark := range slices.Concat(slices.Collect(maps.Keys(o.Labels)), slices.Collect(maps.Keys(o.Annotations)), o.Finalizers) {
					if strings.Contains(mark, "listener") {
						objects[name+" with "+mark] = true
					}
				}
			}
		}
	}
	return objects
}

// untraced waits until the cluster is as before, except for objects whose description begins with one of the prefixes.
func (m *olmScenario) awaitNoTraces(except ...string) {
	m.Helper()
	if err := eventually(m.timeoutContext(), func(context.Context) error { return m.findTraces(except...) }); err != nil {
		m.Error(err)
	}
}

// traces returns an error about what the cluster has beyond what it had before, but for the exceptions.
func (m *olmScenario) findTraces(except ...string) error {
	m.Helper()
	var left []string
	for o := range m.listObjects() {
		if !m.objectsBefore[o] && !slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(o, prefix) }) {
			left = append(left, o)
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	return fmt.Errorf("this is left:\n%s", strings.Join(left, "\n"))
}

// kubectl runs kubectl on the cluster and returns what it prints.
func kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := output(ctx, "", nil, testbed.Kubectl(), append([]string{"--kubeconfig=" + testbed.Kubeconfig()}, args...)...)
	return string(out), err
}
