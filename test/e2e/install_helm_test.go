//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/chart"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// underHelm is set if no operator is installed before the tests, for TestTheOperatorInstalledByHelm only.
var underHelm = os.Getenv("INSTALL") == "helm"

// nextImage is another name of the operator's image, of a next release.
const nextImage = "listener-operator:e2e-next"

// prepareHelm loads the image of the operator by both names.
func prepareHelm(ctx context.Context) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	for _, ref := range []string{operatorImage, nextImage} {
		if err := loadOperator(ctx, root, ref); err != nil {
			return err
		}
	}
	return nil
}

// TestTheOperatorInstalledByHelm covers the life of an installation by the Helm chart, from the first installation to
// its removal.
func TestTheOperatorInstalledByHelm(t *testing.T) {
	if !underHelm {
		t.Skip("needs a cluster of its own without the operator: make test-helm")
	}
	h := newHelmScenario(t)
	h.takeOverCRDs()
	config := h.installChart()
	h.create(pod("web", byClass(h.class)))
	_, own := h.awaitReachable("web")
	before := h.service("web")

	h.upgradeChart(config)
	h.checkUnchanged(before, own)
	h.reinstallChart()
	h.checkUnchanged(before, own)
	h.create(pod("late", byClass(h.class)))
	h.awaitReachable("late")
	h.uninstallChart()
}

// helmScenario is the scenario of an operator that Helm installs.
type helmScenario struct {
	*scenario
	// program is the path of Helm.
	program string
	// chart and next are the charts of two releases.
	chart, next string
	// release is the name of the release, and operators its namespace.
	release, operators string
	// class is the class that Pods use.
	class string
}

func newHelmScenario(t *testing.T) *helmScenario {
	t.Helper()
	h := &helmScenario{scenario: newScenario(t), release: "addresses", operators: "operators"}
	dir, err := tools.Ensure(h.ctx, "helm")
	check.Must(t, err)
	h.program = filepath.Join(dir, "helm")
	// The next release adds a short name to a CRD.
	if h.chart, err = chart.Generate(h.ctx, t.TempDir(), "0.1.0", operatorImage, func(manifests []byte) []byte {
		changed := bytes.Replace(manifests, []byte("    - lsnop\n"), []byte("    - earlier\n"), 1)
		if bytes.Equal(changed, manifests) {
			t.Error("no CRD has the short name lsnop")
		}
		return changed
	}); err != nil {
		t.Fatal(err)
	}
	if h.next, err = chart.Generate(h.ctx, t.TempDir(), "0.2.0", nextImage, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

// run runs Helm, and returns what it prints.
func (h *helmScenario) run(args ...string) (string, error) {
	home := h.TempDir()
	cmd := exec.CommandContext(h.timeoutContext(), h.program, append(args, "--namespace", h.operators)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+testbed.Kubeconfig(), "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("running helm %v: %w: %s", args, err, out)
	}
	return string(out), err
}

func (h *helmScenario) mustRun(args ...string) string {
	h.Helper()
	out, err := h.run(args...)
	h.must(err)
	return out
}

// takeOverCRDs leaves the cluster with a CRD of Stackable's listener operator, and removes its conversion webhook as
// docs/moving-over.md says.
func (h *helmScenario) takeOverCRDs() {
	root, err := checkout.Root()
	h.must(err)
	crd, err := os.ReadFile(filepath.Join(root, "config/crd/bases/listeners.stackable.tech_listeners.yaml"))
	h.must(err)
	// The other CRD has other names and descriptions.
	other := filepath.Join(h.TempDir(), "crd.yaml")
	h.must(os.WriteFile(other, bytes.Replace(crd, []byte("    shortNames:\n"), []byte("    shortNames:\n    - other\n"), 1), 0o600))
	if _, err := kubectl(h.ctx, "apply", "--server-side", "--field-manager="+stackableFieldManager, "-f", other); err != nil {
		h.Fatal(err)
	}
	h.setConversionWebhook(stackableFieldManager)
	if out, err := kubectl(h.ctx, "patch", "customresourcedefinition", takenOverCRD.Name, "--type=merge",
		"--patch", `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`); err != nil {
		h.Fatal(err, out)
	}
}

// installChart installs the chart with settings, and returns the configuration that the operator has created.
func (h *helmScenario) installChart() *operatorv1alpha1.ListenerOperator {
	h.Helper()
	// Without --take-ownership, Helm leaves objects alone that it did not create, and without --force-conflicts the
	// fields of other field managers.
	if out, err := h.run("install", h.release, h.chart, "--create-namespace"); err == nil || !strings.Contains(out, "take-ownership") && !strings.Contains(out, "invalid ownership metadata") {
		h.Errorf("installing a chart whose CRD exists: %v: %s", err, out)
	}
	notes := h.mustRun("install", h.release, h.chart, "--create-namespace", "--take-ownership", "--force-conflicts",
		"--set", "listenerOperator.preset=none,listenerOperator.nodeAgent.logLevel=debug,replicas=2,logLevel=debug")
	if !strings.Contains(notes, "kubectl delete listeneroperator cluster\n  helm uninstall addresses --namespace operators") {
		h.Errorf("the notes do not say how to uninstall:\n%s", notes)
	}
	config := h.awaitAvailableWith(operatorImage)
	if config.Spec.Preset != operatorv1alpha1.PresetNone || config.Spec.NodeAgent.LogLevel != "debug" {
		h.Errorf("the configuration is %+v", config.Spec)
	}
	h.checkNotFound(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "external-unstable"}}) // of the preset
	h.checkNoConversionWebhook()
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}, Spec: pinned()}
	h.create(class)
	h.class = class.Name
	return config
}

// upgradeChart upgrades the release after the administrator has changed the configuration, which the upgrade keeps.
func (h *helmScenario) upgradeChart(config *operatorv1alpha1.ListenerOperator) {
	h.Helper()
	h.patch(config, func() { config.Spec.NodeAgent.LogLevel = "info" })
	h.mustRun("upgrade", h.release, h.next, "--reset-then-reuse-values")
	after := h.awaitAvailableWith(nextImage)
	if after.UID != config.UID || after.Spec.NodeAgent.LogLevel != "info" || after.Spec.Preset != operatorv1alpha1.PresetNone {
		h.Errorf("the upgrade changed the configuration to %+v", after.Spec)
	}
	deployment := mustGet(h.scenario, &appsv1.Deployment{}, client.ObjectKey{Namespace: h.operators, Name: names.Operator})
	if *deployment.Spec.Replicas != 2 {
		h.Errorf("the operator has %d replicas, want those that were set at the installation", *deployment.Spec.Replicas)
	}
	crd := mustGet(h.scenario, &apiextensionsv1.CustomResourceDefinition{}, client.ObjectKey{Name: "listeneroperators.listener-operator.dev"})
	if got := strings.Join(crd.Spec.Names.ShortNames, " "); got != "lsnop" {
		h.Errorf("the CRD has the short names %s of the earlier release", got)
	}
}

// reinstallChart uninstalls the release while Pods have volumes, and installs it again. Meanwhile, Pods run.
func (h *helmScenario) reinstallChart() {
	h.Helper()
	agents := mustGet(h.scenario, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: h.operators, Name: names.NodeAgent})
	out := h.mustRun("uninstall", h.release, "--wait")
	if !strings.Contains(out, "kept due to the resource policy") {
		h.Errorf("helm uninstall prints:\n%s", out)
	}
	// Nor does it help to delete them by hand.
	if denied := h.failedKubectl("delete", "--wait=false", "customresourcedefinition", takenOverCRD.Name); !strings.Contains(denied, "its deletion deletes all Listeners") {
		h.Errorf("deleting a CRD while there are Listeners: %s", denied)
	}
	h.awaitReachable("web")
	h.mustRun("install", h.release, h.next)
	h.awaitAvailableWith(nextImage)
	if again := mustGet(h.scenario, &appsv1.DaemonSet{}, client.ObjectKeyFromObject(agents)); again.UID != agents.UID {
		h.Error("the node agents were created again")
	}
}

// uninstallChart uninstalls the operator in the order of docs/uninstall.md, and checks what is left.
func (h *helmScenario) uninstallChart() {
	h.Helper()
	for _, name := range []string{"web", "late"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
		h.removeAndAwait(p)
	}
	h.must(api.DeleteAllOf(h.ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(h.namespace)))
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	h.removeAndAwait(config)
	h.mustRun("uninstall", h.release, "--wait")
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: h.operators, Name: names.Operator}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: h.operators, Name: names.NodeAgent}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: h.operators, Name: names.NodeAgent}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: names.Operator}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: names.NodeAgent}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: names.PodListenersPolicy}},
	} {
		h.checkNotFound(o)
	}
	// The addresses of users belong to the CRDs, which stay.
	h.get(&listenersv1alpha1.ListenerClass{}, client.ObjectKey{Name: h.class})
}

// awaitAvailableWith waits until the operator and all node agents run with an image, and returns the configuration.
func (h *helmScenario) awaitAvailableWith(image string) *operatorv1alpha1.ListenerOperator {
	h.Helper()
	if _, err := await(h.timeoutContext(), &appsv1.DaemonSet{}, client.ObjectKey{Namespace: h.operators, Name: names.NodeAgent}, func(d *appsv1.DaemonSet) bool {
		return d.Spec.Template.Spec.Containers[0].Image == image && isRolledOut(d) && int(d.Status.NumberReady) == len(testbed.Nodes())
	}); err != nil {
		out, _ := kubectl(context.WithoutCancel(h.ctx), "--namespace", h.operators, "get", "deployments,daemonsets,pods,events", "-o", "wide")
		h.Fatal(err, out)
	}
	key := client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}
	return mustAwait(h.scenario, &operatorv1alpha1.ListenerOperator{}, key, func(o *operatorv1alpha1.ListenerOperator) bool {
		return isAvailableOnAllNodes(o) && meta.IsStatusConditionFalse(o.Status.Conditions, operatorv1alpha1.ConditionProgressing)
	})
}

// service returns the Service of a Pod's volume.
func (h *helmScenario) service(pod string) *corev1.Service {
	h.Helper()
	return mustGet(h.scenario, &corev1.Service{}, h.key(pod+"-listener"))
}

// checkUnchanged checks that the Pod web has its Service and address, and is reachable.
func (h *helmScenario) checkUnchanged(before *corev1.Service, own listenersv1alpha1.IngressAddress) {
	h.Helper()
	after := h.service("web")
	if after.UID != before.UID || after.Spec.Ports[0].NodePort != before.Spec.Ports[0].NodePort {
		h.Errorf("the Service was %+v and is %+v", before.Spec, after.Spec)
	}
	h.awaitAnswer(own, "web")
}
