//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/cluster/olm"
)

// TestTheOperatorUnderOLMv1 covers the life of an installation by the second generation of the Operator Lifecycle
// Manager, a ClusterExtension. Its steps build on each other. It runs after TestTheOperatorUnderOLM, which leaves
// nothing on the cluster.
func TestTheOperatorUnderOLMv1(t *testing.T) {
	if !underOLM {
		t.Skip("needs a cluster of its own: make test-olm")
	}
	m := &olmv1Scenario{&olmScenario{scenario: newScenario(t), t: t}}
	m.timeout *= 3
	m.must(olm.InstallV1(m.ctx, testbed, os.Stderr))
	m.publish(mustRelease(t, "0.1.0"))

	m.step("an administrator installs it by a ClusterExtension", func(*olmScenario) { m.install() })
	m.step("what OLM says about it is gathered", func(m *olmScenario) { m.gathers("clusterextensions") })
	m.step("the scorecard passes", (*olmScenario).checkScorecard)
	m.step("it is upgraded only to versions in its range, without affecting Pods and clients", func(*olmScenario) { m.upgrade(mustRelease(t, "0.2.0")) })
	m.step("it goes back only if told to", func(*olmScenario) { m.rollBack() })
	m.step("the deletion of its ClusterExtension deletes no Listener", func(*olmScenario) { m.deleteInUse() })
	m.step("it is uninstalled completely", func(*olmScenario) { m.uninstall() })
}

// installer is the ServiceAccount that older releases install with.
const installer = "listener-operator-installer"

// olmv1Scenario is the scenario of an operator that the second generation of OLM manages.
type olmv1Scenario struct{ *olmScenario }

// olmv1Object returns an empty object of the second generation, which is named after the operator.
func olmv1Object(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("olm.operatorframework.io/v1")
	o.SetKind(kind)
	o.SetName(names.Operator)
	return o
}

// publish adds a release to the catalog of the cluster, and waits until it is served.
func (m *olmv1Scenario) publish(next release) {
	m.Helper()
	image := m.addToCatalog(next)
	catalog := olmv1Object("ClusterCatalog")
	key := client.ObjectKeyFromObject(catalog)
	setImage := func() {
		catalog.Object["spec"] = map[string]any{"source": map[string]any{"type": "Image", "image": map[string]any{"ref": image}}}
	}
	if err := api.Get(m.ctx, key, catalog); client.IgnoreNotFound(err) != nil {
		m.Fatal(err)
	} else if err == nil {
		m.patch(catalog, setImage)
	} else {
		setImage()
		m.create(catalog)
	}
	mustAwait(m.scenario, olmv1Object("ClusterCatalog"), key, func(o *unstructured.Unstructured) bool {
		served, _, _ := unstructured.NestedString(o.Object, "status", "resolvedSource", "image", "ref")
		return served == image && conditionOf(o, "Serving") == "True"
	})
}

// conditionOf returns the status of a condition of the object's current generation, or "".
func conditionOf(o *unstructured.Unstructured, kind string) string {
	c := conditionFields(o, kind)
	if generation, _ := c["observedGeneration"].(int64); generation != o.GetGeneration() {
		return ""
	}
	status, _ := c["status"].(string)
	return status
}

// conditionFields returns the fields of a condition.
func conditionFields(o *unstructured.Unstructured, kind string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok && fields["type"] == kind {
			return fields
		}
	}
	return nil
}

// extension returns the ClusterExtension that docs/install.md shows, for a range of versions.
func (m *olmv1Scenario) extension(versions string) *unstructured.Unstructured {
	o := olmv1Object("ClusterExtension")
	o.Object["spec"] = map[string]any{
		"namespace":      m.operatorNamespace,
		"serviceAccount": map[string]any{"name": installer},
		"source": map[string]any{"sourceType": "Catalog", "catalog": map[string]any{
			"packageName": names.Operator, "channels": []any{"stable"}, "version": versions,
		}},
	}
	return o
}

// change changes fields of the ClusterExtension's catalog source.
func (m *olmv1Scenario) change(fields map[string]any) {
	m.Helper()
	o := mustGet(m.scenario, olmv1Object("ClusterExtension"), client.ObjectKey{Name: names.Operator})
	m.patch(o, func() {
		for name, value := range fields {
			m.must(unstructured.SetNestedField(o.Object, value, "spec", "source", "catalog", name))
		}
	})
}

// awaitExtension waits until the ClusterExtension of the current generation meets the condition.
func (m *olmv1Scenario) awaitExtension(condition func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	m.Helper()
	o := olmv1Object("ClusterExtension")
	return mustAwait(m.scenario, o, client.ObjectKeyFromObject(o), condition)
}

// awaitSettled waits until nothing is left to do for the ClusterExtension, with this version installed.
func (m *olmv1Scenario) awaitSettled(version string) {
	m.Helper()
	m.awaitExtension(func(o *unstructured.Unstructured) bool {
		return conditionOf(o, "Progressing") == "True" && conditionFields(o, "Progressing")["reason"] == "Succeeded" &&
			conditionOf(o, "Installed") == "True" && installed(o) == version
	})
}

// installed returns the version that a ClusterExtension has installed, or "".
func installed(o *unstructured.Unstructured) string {
	version, _, _ := unstructured.NestedString(o.Object, "status", "install", "bundle", "version")
	return version
}

// awaitVersion waits until the operator of the version is available on all nodes.
func (m *olmv1Scenario) awaitVersion(version string) {
	m.Helper()
	m.awaitSettled(version)
	m.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		return o.Status.Version == version && o.Status.NodeAgent.Version == version && isAvailableOnAllNodes(o)
	})
}

// createNamespace creates the operator's namespace as docs/install.md shows it, with the ServiceAccount that releases
// of OLM before 1.11 install with.
func (m *olmv1Scenario) createNamespace() {
	m.Helper()
	namespace := m.suggestedNamespace()
	m.create(namespace)
	m.operatorNamespace = namespace.Name
	m.createPullSecret(m.operatorNamespace)
	m.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: installer, Namespace: m.operatorNamespace}})
	m.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: installer},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: installer, Namespace: m.operatorNamespace}},
	})
}

func (m *olmv1Scenario) install() {
	m.createNamespace()
	m.objectsBefore = m.listObjects()
	m.create(m.extension("0.1.x"))
	created := time.Now()
	m.create(pod("first", byClass("external-unstable")))
	first := m.awaitReady("first")
	m.Logf("ClusterExtension created to the first Pod with a listener volume ready: %s", time.Since(created).Round(time.Second))
	m.awaitAnswer(m.awaitPodListener(first, "listener").IngressAddresses[0], "first")
	m.awaitVersion("0.1.0")
	m.Logf("ClusterExtension created to all agents ready: %s", time.Since(created).Round(time.Second))
	m.removeAndAwait(first)
}

// upgrade publishes a release outside of the range, which changes nothing, and then extends the range, while clients
// outside the cluster use Pods, and Pods start.
func (m *olmv1Scenario) upgrade(next release) {
	class := m.createLastingClass(pinned())
	m.create(statefulSet("broker", 3, byClass(class)))
	for i := range 3 {
		m.awaitReachable(fmt.Sprintf("broker-%d", i))
	}
	before := m.collectUserData()
	agents := m.daemonSet()
	load := m.startLoad(before)

	m.publish(next)
	m.change(map[string]any{"version": "~0.1.0"}) // the same range, so that OLM resolves it again
	m.awaitSettled("0.1.0")
	m.change(map[string]any{"version": ">=0.1.0 <1.0.0"})
	extended := time.Now()
	m.awaitVersion("0.2.0")
	m.Logf("range extended to all agents replaced: %s", time.Since(extended).Round(time.Second))
	load.stopAndCheck(m.olmScenario)

	m.checkNotRecreated(agents)
	m.checkUserData(before)
}

// rollBack requests the earlier version. OLM refuses, until the administrator takes the responsibility.
func (m *olmv1Scenario) rollBack() {
	before, agents := m.collectUserData(), m.daemonSet()
	m.change(map[string]any{"version": "0.1.0"})
	refused := m.awaitExtension(func(o *unstructured.Unstructured) bool {
		return conditionOf(o, "Progressing") == "True" && conditionFields(o, "Progressing")["reason"] == "Retrying"
	})
	m.Logf("condition Progressing: %s", conditionFields(refused, "Progressing")["message"])
	if version := installed(refused); version != "0.2.0" {
		m.Errorf("version %s is installed, want 0.2.0", version)
	}
	m.change(map[string]any{"upgradeConstraintPolicy": "SelfCertified"})
	m.awaitVersion("0.1.0")
	m.checkNotRecreated(agents)
	m.checkUserData(before)
	m.change(map[string]any{"upgradeConstraintPolicy": "CatalogProvided", "version": ">=0.1.0 <1.0.0"})
	m.awaitVersion("0.2.0")
	m.checkUserData(before)
}

// deleteInUse deletes the ClusterExtension, whose objects the garbage collector then deletes, except the CRDs. Pods and
// Listeners stay. A new ClusterExtension manages them again, as docs/uninstall.md describes.
func (m *olmv1Scenario) deleteInUse() {
	before, agents := m.collectUserData(), m.daemonSet()
	o := olmv1Object("ClusterExtension")
	m.remove(o)
	mustAwaitDeleted(m.scenario, &appsv1.Deployment{}, client.ObjectKey{Namespace: m.operatorNamespace, Name: names.Operator})
	mustAwaitDeleted(m.scenario, o, client.ObjectKeyFromObject(o))
	m.checkUserData(before)
	for _, name := range ownCRDs {
		crd := mustGet(m.scenario, &apiextensionsv1.CustomResourceDefinition{}, client.ObjectKey{Name: name})
		m.patch(crd, func() { crd.OwnerReferences = nil })
	}
	m.create(m.extension(">=0.1.0 <1.0.0"))
	m.awaitVersion("0.2.0")
	m.checkNotRecreated(agents)
	m.checkUserData(before)
}

// uninstall follows docs/uninstall.md. The CRDs go with the ClusterExtension.
func (m *olmv1Scenario) uninstall() {
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	m.remove(config)
	m.remove(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "broker", Namespace: m.namespace}})
	m.must(api.DeleteAllOf(m.ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(m.namespace)))
	mustAwaitDeleted(m.scenario, config, client.ObjectKeyFromObject(config))
	m.must(api.DeleteAllOf(m.ctx, &listenersv1alpha1.Listener{}, client.InNamespace(m.namespace)))
	o := olmv1Object("ClusterExtension")
	m.removeAndAwait(o)
	for _, name := range ownCRDs {
		mustAwaitDeleted(m.scenario, &apiextensionsv1.CustomResourceDefinition{}, client.ObjectKey{Name: name})
	}
	m.removeTopologyLabels()
	m.removeAuthorities()
	m.awaitNoTraces()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.operatorNamespace}}
	m.remove(namespace)
	m.remove(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: installer}})
	mustAwaitDeleted(m.scenario, namespace, client.ObjectKeyFromObject(namespace))
}
