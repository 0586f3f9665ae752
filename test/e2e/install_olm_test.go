//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/cluster/olm"
)

// underOLM is set if the Operator Lifecycle Manager is installed instead of the operator, for TestTheOperatorUnderOLM
// only.
var underOLM = os.Getenv("INSTALL") == "olm"

// prepareOLM installs the Operator Lifecycle Manager.
func prepareOLM(ctx context.Context) error {
	return olm.Install(ctx, testbed, os.Stderr)
}

// podSecurity is the label of a namespace with the Pod security standard that it enforces.
const podSecurity = "pod-security.kubernetes.io/enforce"

// ownCRDs are the CustomResourceDefinitions of the operator.
var ownCRDs = []string{
	"listeners.listeners.stackable.tech", "listenerclasses.listeners.stackable.tech", "podlisteners.listeners.stackable.tech",
	"listeneroperators.listener-operator.dev",
}

// catalogName is the CatalogSource's name.
const catalogName = "listener-operator-catalog"

// TestTheOperatorUnderOLM covers the life of an installation by a real Operator Lifecycle Manager, from the first
// installation to its complete removal, on a disconnected cluster (docs/disconnected.md): images have their published
// names, and are pulled from a mirror that requires TLS and a password. Its steps build on each other.
func TestTheOperatorUnderOLM(t *testing.T) {
	if !underOLM {
		t.Skip("needs a cluster of its own with the Operator Lifecycle Manager: make test-olm")
	}
	m := &olmScenario{scenario: newScenario(t), t: t}
	m.timeout *= 3 // because OLM takes longer
	m.publish(mustRelease(t, "0.1.0"))

	m.step("it installs into any namespace, and reports a missing label", (*olmScenario).installAnywhere)
	m.step("the scorecard passes", (*olmScenario).runScorecard)
	m.step("an administrator installs it from a catalog", (*olmScenario).install)
	m.step("it is upgraded without affecting Pods and clients", func(m *olmScenario) { m.upgrade(mustRelease(t, "0.2.0")) })
	m.step("what OLM says about it is gathered", func(m *olmScenario) {
		m.gathers("clusterserviceversions", "subscriptions", "installplans", "operatorgroups")
	})
	m.step("settings of its Subscription reach its agents", (*olmScenario).configure)
	m.step("Pods keep running while it is uninstalled", (*olmScenario).reinstall)
	m.step("it moves to another namespace", (*olmScenario).move)
	m.step("it is uninstalled completely", (*olmScenario).uninstall)
}

func mustRelease(t *testing.T, version string) release {
	t.Helper()
	r, err := newRelease(t.Context(), t.TempDir(), version)
	check.Must(t, err)
	return r
}

// olmScenario is the scenario of an operator that OLM manages.
type olmScenario struct {
	*scenario
	// t is the test of the scenario, or of the current step.
	t *testing.T
	// releases are the releases in the catalog.
	releases []release
	// operatorNamespace is the operator's namespace.
	operatorNamespace string
	// objectsBefore has the objects of the cluster before the installation of the operator, as listObjects returns
	// them.
	objectsBefore map[string]bool
}

// step runs a subtest, and ends the test if it fails, because the following steps depend on it.
func (m *olmScenario) step(name string, run func(*olmScenario)) {
	m.Helper()
	outer, whole := m.scenario, m.t
	ok := whole.Run(name, func(t *testing.T) {
		m.scenario, m.t = outer.within(t), t
		began := time.Now()
		run(m)
		t.Logf("took %s", time.Since(began).Round(time.Second))
	})
	m.scenario, m.t = outer, whole
	if !ok {
		m.dumpOLM()
		m.FailNow()
	}
}

// gathers checks that the plugin gathers objects of these resources of OLM, and no manifests, of which Secrets may be a
// part.
func (m *olmScenario) gathers(resources ...string) {
	m.Helper()
	dir := filepath.Join(m.TempDir(), "gathered")
	if out, status := m.plugin()("listener", "gather", "--output", dir); status != 0 {
		m.Fatalf("kubectl listener gather: status %d\n%s", status, out)
	}
	for _, resource := range resources {
		var found []string
		for _, scope := range []string{"namespaces/" + m.operatorNamespace, "cluster-scoped-resources"} {
			files, err := filepath.Glob(filepath.Join(dir, scope, "*", resource, "*.yaml"))
			m.must(err)
			found = append(found, files...)
		}
		if len(found) == 0 {
			m.Errorf("no %s were gathered", resource)
		}
		for _, file := range found {
			content, err := os.ReadFile(file)
			m.must(err)
			if resource == "installplans" && !strings.Contains(string(content), "manifest: (removed)") {
				m.Errorf("%s:\n%s", file, content)
			}
		}
	}
}

// addToCatalog adds a release to those of the catalog, and returns the name of the catalog's image.
func (m *olmScenario) addToCatalog(next release) (image string) {
	m.Helper()
	m.releases = append(m.releases, next)
	image, err := newCatalog(m.ctx, filepath.Join(m.TempDir(), "catalog"), m.releases...)
	m.must(err)
	return image
}

// publish adds a release to the catalog of the cluster.
func (m *olmScenario) publish(next release) {
	m.Helper()
	image := m.addToCatalog(next)
	source := &operatorsv1alpha1.CatalogSource{
		TypeMeta:   metav1.TypeMeta{APIVersion: operatorsv1alpha1.SchemeGroupVersion.String(), Kind: operatorsv1alpha1.CatalogSourceKind},
		ObjectMeta: metav1.ObjectMeta{Name: catalogName, Namespace: olm.Namespace},
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
	err := api.Get(m.ctx, client.ObjectKeyFromObject(source), existing)
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

// latest returns the release at the head of the channel.
func (m *olmScenario) latest() release { return m.releases[len(m.releases)-1] }

// createOperatorNamespace creates the namespace of the operator, with an OperatorGroup for all namespaces.
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

// subscribe creates the Subscription that installs the operator in its namespace.
func (m *olmScenario) subscribe() {
	m.Helper()
	m.create(&operatorsv1alpha1.Subscription{
		ObjectMeta: metav1.ObjectMeta{Name: names.Operator, Namespace: m.operatorNamespace},
		Spec: &operatorsv1alpha1.SubscriptionSpec{
			CatalogSource: catalogName, CatalogSourceNamespace: olm.Namespace, Package: names.Operator, Channel: "stable",
		},
	})
}

// awaitInstalled waits until OLM has installed the latest release.
func (m *olmScenario) awaitInstalled() {
	m.Helper()
	key := client.ObjectKey{Namespace: m.operatorNamespace, Name: m.csvName()}
	mustAwait(m.scenario, &operatorsv1alpha1.ClusterServiceVersion{}, key, func(csv *operatorsv1alpha1.ClusterServiceVersion) bool {
		return csv.Status.Phase == operatorsv1alpha1.CSVPhaseSucceeded
	})
}

// awaitAvailable waits until the operator of the latest release reports that its agents are updated and ready on all
// nodes.
func (m *olmScenario) awaitAvailable() *operatorv1alpha1.ListenerOperator {
	m.Helper()
	return m.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		return o.Status.Version == m.latest().version && meta.IsStatusConditionTrue(o.Status.Conditions, operatorv1alpha1.ConditionAvailable) &&
			meta.IsStatusConditionFalse(o.Status.Conditions, operatorv1alpha1.ConditionProgressing) &&
			int(o.Status.NodeAgent.Ready) == len(testbed.Nodes()) && o.Status.NodeAgent.Updated == o.Status.NodeAgent.Desired
	})
}

// awaitConfig waits until ListenerOperator/cluster meets the condition.
func (m *olmScenario) awaitConfig(condition func(*operatorv1alpha1.ListenerOperator) bool) *operatorv1alpha1.ListenerOperator {
	m.Helper()
	return mustAwait(m.scenario, &operatorv1alpha1.ListenerOperator{}, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, condition)
}

// dumpOLM logs the objects and events of the installation.
func (m *olmScenario) dumpOLM() {
	for _, args := range [][]string{
		{"get", "catalogsources,subscriptions,installplans,clusterserviceversions,jobs,pods", "-A", "-o", "wide"},
		{"get", "subscriptions,installplans", "-n", m.operatorNamespace, "-o", "yaml"},
		{"get", "events", "-n", m.operatorNamespace},
	} {
		m.logKubectl(context.WithoutCancel(m.ctx), args...)
	}
}

// suggestedNamespace returns the namespace that the bundle suggests, and that OpenShift's console creates.
func (m *olmScenario) suggestedNamespace() *corev1.Namespace {
	m.Helper()
	data, err := os.ReadFile(filepath.Join(m.latest().dir, "bundle/manifests/listener-operator.clusterserviceversion.yaml"))
	m.must(err)
	var csv operatorsv1alpha1.ClusterServiceVersion
	m.must(yaml.Unmarshal(data, &csv))
	namespace := &corev1.Namespace{}
	m.must(json.Unmarshal([]byte(csv.Annotations["operatorframework.io/suggested-namespace-template"]), namespace))
	return namespace
}

// installAnywhere installs the operator into a namespace without the label that permits privileged Pods, as OpenShift's
// certification does, and an administrator may. The operator itself runs there; its agents need the label.
func (m *olmScenario) installAnywhere() {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "anywhere-", Labels: map[string]string{podSecurity: "restricted"},
	}}
	m.createOperatorNamespace(namespace)
	m.subscribe()
	m.awaitInstalled()
	message := m.awaitDegraded(operatorv1alpha1.ReasonAgentsNotCreated)
	if !strings.Contains(message, podSecurity) {
		m.Errorf("the message lacks the label %s", podSecurity)
	}
	m.patch(namespace, func() { namespace.Labels[podSecurity] = "privileged" })
	m.awaitAvailable()
	m.uninstallFrom(namespace)
}

// uninstallFrom uninstalls the operator completely, and deletes its namespace.
func (m *olmScenario) uninstallFrom(namespace *corev1.Namespace) {
	m.Helper()
	m.removeAndAwait(&operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}})
	m.unsubscribe()
	m.removeTopologyLabels()
	m.removeAndAwait(namespace)
}

// install installs the operator by a Subscription, and checks that the first Pod with a listener volume is reachable
// from outside the cluster.
func (m *olmScenario) install() {
	m.createOperatorNamespace(m.suggestedNamespace())
	m.objectsBefore = m.listObjects()
	// The CRDs may have been left by Stackable's listener operator, with a conversion webhook that no longer works.
	m.setConversionWebhook(stackableFieldManager)
	m.subscribe()
	subscribed := time.Now()
	// A Pod may be created before the operator runs.
	m.create(pod("first", byClass("external-unstable")))
	m.awaitInstalled()
	m.Logf("Subscription created to CSV Succeeded: %s", time.Since(subscribed).Round(time.Second))
	m.checkNoConversionWebhook()
	first := m.awaitReady("first")
	m.Logf("Subscription created to the first Pod with a listener volume ready: %s", time.Since(subscribed).Round(time.Second))
	own := m.awaitPodListener(first, "listener").IngressAddresses[0]
	m.awaitAnswer(own, "first")
	m.checkFilesAt(own)
	m.awaitAvailable()
	m.Logf("Subscription created to all agents ready: %s", time.Since(subscribed).Round(time.Second))
	m.checkPermissionsOfUsers()
}

// upgrade upgrades the operator through the channel, while clients outside the cluster use Pods, and Pods start.
func (m *olmScenario) upgrade(next release) {
	class := m.createLastingClass(pinned())
	m.create(statefulSet("broker", 3, byClass(class)))
	for i := range 3 {
		m.awaitReachable(fmt.Sprintf("broker-%d", i))
	}
	before := m.collectUserData()
	agents := m.daemonSet()
	load := m.startLoad(before)

	m.publish(next)
	offered := time.Now()
	m.awaitInstalled()
	m.Logf("new catalog to CSV Succeeded: %s", time.Since(offered).Round(time.Second))
	m.awaitAvailable()
	m.Logf("new catalog to all agents replaced: %s", time.Since(offered).Round(time.Second))
	mustAwaitDeleted(m.scenario, &operatorsv1alpha1.ClusterServiceVersion{},
		client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator + ".v" + m.releases[0].version})
	load.stopAndCheck(m)

	m.checkNotRecreated(agents)
	m.checkUserData(before)
}

// configure sets environment variables, tolerations and a node selector in the Subscription, and checks that the agents
// follow.
func (m *olmScenario) configure() {
	subscription := mustGet(m.scenario, &operatorsv1alpha1.Subscription{}, client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator})
	direct := corev1.EnvVar{Name: "NO_PROXY", Value: ".cluster.local"}
	infra := corev1.Toleration{Key: "node-role.kubernetes.io/infra", Operator: corev1.TolerationOpExists}
	m.patch(subscription, func() {
		subscription.Spec.Config = &operatorsv1alpha1.SubscriptionConfig{Env: []corev1.EnvVar{direct}, Tolerations: []corev1.Toleration{infra}}
	})
	config := m.configuration()
	m.patch(config, func() { config.Spec.NodeAgent.Placement = operatorv1alpha1.PlacementLikeOperator })
	m.awaitAgentsWith(direct, infra)

	// Restricting the operator to one node does not remove agents from nodes whose Pods have listener volumes.
	one := mustGet(m.scenario, &corev1.Node{}, client.ObjectKey{Name: testbed.NodeName(testbed.Nodes()[0])})
	m.patch(one, func() { one.Labels["example.com/operators"] = "" })
	m.patch(subscription, func() { subscription.Spec.Config.NodeSelector = map[string]string{"example.com/operators": ""} })
	message := m.awaitDegraded(operatorv1alpha1.ReasonAgentsInUse)
	for name, d := range m.collectUserData() {
		if strings.Contains(message, m.namespace+"/"+name) == (d.Node == one.Name) {
			m.Errorf("Pod %s on %s: the message must name exactly the Pods on nodes that the node selector excludes", name, d.Node)
		}
	}
	m.patch(subscription, func() { subscription.Spec.Config.NodeSelector = nil })
	m.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		return meta.IsStatusConditionFalse(o.Status.Conditions, operatorv1alpha1.ConditionDegraded) && isAvailableOnAllNodes(o)
	})
	m.awaitAgentsWith(direct, infra)
}

// awaitAgentsWith waits until all agents are ready with the environment variable and the toleration.
func (m *olmScenario) awaitAgentsWith(variable corev1.EnvVar, toleration corev1.Toleration) {
	m.Helper()
	mustAwait(m.scenario, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: m.operatorNamespace, Name: names.NodeAgent}, func(d *appsv1.DaemonSet) bool {
		agent := d.Spec.Template.Spec
		return slices.Contains(agent.Containers[0].Env, variable) && slices.Contains(agent.Tolerations, toleration) && isRolledOut(d)
	})
}

// reinstall deletes the Subscription and the CSV, which removes the operator but not its agents, checks that Pods can
// run and end meanwhile, and installs the operator again.
func (m *olmScenario) reinstall() {
	before, agents := m.collectUserData(), m.daemonSet()
	m.unsubscribe()
	m.checkUserData(before)
	leaving := mustGet(m.scenario, &corev1.Pod{}, m.key("first"))
	m.removeAndAwait(leaving)
	m.awaitPodDirRemoved(leaving)

	m.subscribe()
	m.awaitInstalled()
	m.awaitAvailable()
	delete(before, "first")
	m.checkUserData(before)
	m.checkNotRecreated(agents)
	m.create(pod("late", byClass("external-unstable")))
	m.awaitReachable("late")
}

// move installs the operator in another namespace, after deleting the Subscription and the CSV. Its agents follow, and
// Pods keep running.
func (m *olmScenario) move() {
	before, left := m.collectUserData(), m.daemonSet()
	m.unsubscribe()
	next := m.suggestedNamespace()
	next.Name += "-next"
	m.createOperatorNamespace(next)
	m.subscribe()
	m.awaitInstalled()
	m.awaitAvailable()
	mustAwaitDeleted(m.scenario, left, client.ObjectKeyFromObject(left))
	m.checkUserData(before)
	m.create(pod("moved", byClass("external-unstable")))
	moved, _ := m.awaitReachable("moved")
	m.removeAndAwait(moved)
	m.removeAndAwait(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left.Namespace}})

	// The objects of the new namespace are not the operator's, as those of the first one: its pull secret, and the
	// OperatorGroup, for which OLM creates roles.
	for _, o := range []string{
		"namespaces /" + m.operatorNamespace, "serviceaccounts " + m.operatorNamespace + "/default", "configmaps " + m.operatorNamespace + "/kube-root-ca.crt",
		"configmaps " + m.operatorNamespace + "/openshift-service-ca.crt",
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

// uninstall deletes the configuration, which waits until no volume is in use, then the Subscription and the CSV, and
// then the CRDs, which OLM does not delete.
func (m *olmScenario) uninstall() {
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	m.remove(config)
	message := m.awaitDegraded(operatorv1alpha1.ReasonVolumesInUse)
	for _, name := range []string{"broker-0", "late"} {
		if !strings.Contains(message, m.namespace+"/"+name) {
			m.Errorf("the message lacks Pod %s", name)
		}
	}
	m.checkUserData(m.collectUserData())

	m.remove(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "broker", Namespace: m.namespace}})
	m.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: m.namespace}})
	m.must(api.DeleteAllOf(m.ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(m.namespace)))
	mustAwaitDeleted(m.scenario, config, client.ObjectKeyFromObject(config))
	protection := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	mustAwaitDeleted(m.scenario, protection, client.ObjectKey{Name: "listener-operator-crds"}) // all Listeners are gone
	m.unsubscribe()
	m.removeTopologyLabels()
	m.removeAuthorities()
	m.awaitNoTraces("validatingadmissionpolicies.admissionregistration.k8s.io /listener-operator-crds", "customresourcedefinitions.apiextensions.k8s.io ",
		"listenerclasses.listeners.stackable.tech ",
		"operators.operators.coreos.com /"+names.Operator+".")
	for _, name := range ownCRDs {
		m.removeAndAwait(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// OLM recreates them until it has observed the deletion of the CRDs.
	m.eventually(func(ctx context.Context) error { return errors.Join(m.deleteOperators(ctx), m.findTraces()) })
}

// removeAuthorities deletes the Secret from which certificate authorities are derived, which outlives the operator.
// There is none if the cluster does not serve requests for certificates.
func (m *olmScenario) removeAuthorities() {
	m.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.operatorNamespace, Name: names.CertificateAuthoritySecret}}
	m.must(client.IgnoreNotFound(api.Delete(m.ctx, secret)))
}

// deleteOperators deletes the Operator objects, in which OLM lists the components of an operator, one for each
// namespace in which it was installed. OLM does not delete them.
func (m *olmScenario) deleteOperators(ctx context.Context) error {
	var operators operatorsv1.OperatorList
	if err := api.List(ctx, &operators); err != nil {
		return err
	}
	var errs []error
	for i := range operators.Items {
		if o := &operators.Items[i]; !m.objectsBefore["operators.operators.coreos.com /"+o.Name] {
			errs = append(errs, client.IgnoreNotFound(api.Delete(ctx, o)))
		}
	}
	return errors.Join(errs...)
}

// csvName returns the name of the latest ClusterServiceVersion.
func (m *olmScenario) csvName() string { return names.Operator + ".v" + m.latest().version }

// createLastingClass creates a class that is not deleted at the end of the step, and returns its name.
func (m *olmScenario) createLastingClass(spec listenersv1alpha1.ListenerClassSpec) string {
	m.Helper()
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: m.namespace}, Spec: spec}
	m.create(class)
	return class.Name
}

// daemonSet returns the DaemonSet of the agents.
func (m *olmScenario) daemonSet() *appsv1.DaemonSet {
	m.Helper()
	return mustGet(m.scenario, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: m.operatorNamespace, Name: names.NodeAgent})
}

// checkNotRecreated checks that the DaemonSet was not deleted and recreated.
func (m *olmScenario) checkNotRecreated(agents *appsv1.DaemonSet) {
	m.Helper()
	if after := m.daemonSet(); after.UID != agents.UID {
		m.Errorf("the DaemonSet was recreated: its uid was %s and is %s", agents.UID, after.UID)
	}
}

// unsubscribe deletes the Subscription and the CSV, and waits until the operator is deleted.
func (m *olmScenario) unsubscribe() {
	m.Helper()
	m.remove(&operatorsv1alpha1.Subscription{ObjectMeta: metav1.ObjectMeta{Name: names.Operator, Namespace: m.operatorNamespace}})
	m.removeAndAwait(&operatorsv1alpha1.ClusterServiceVersion{ObjectMeta: metav1.ObjectMeta{Name: m.csvName(), Namespace: m.operatorNamespace}})
	operator := client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator}
	mustAwaitDeleted(m.scenario, &appsv1.Deployment{}, operator)
	mustAwaitDeleted(m.scenario, &corev1.ServiceAccount{}, operator)
}

// removeTopologyLabels removes the labels that kubelets set on Nodes for the driver, and do not remove.
func (m *olmScenario) removeTopologyLabels() {
	m.Helper()
	_, err := kubectl(m.ctx, "label", "nodes", "--all", names.TopologyKey+"-")
	m.must(err)
}
