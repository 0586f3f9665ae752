//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// podDir returns the kubelet's directory of a Pod, on the host.
func podDir(p *corev1.Pod) string {
	return filepath.Join(testbed.KubeletDir(nodeOf(p)), "pods", string(p.UID))
}

// stagingDir returns the directory, on the host, that the kubelet creates on the node of a Pod when it stages a volume.
func stagingDir(p *corev1.Pod, volume string) string {
	return filepath.Join(stagingRoot(nodeOf(p)), stagingName(volume))
}

// stagingRoot returns the directory, on the host, that has those directories of a node.
func stagingRoot(node int) string {
	return filepath.Join(testbed.KubeletDir(node), "plugins", "kubernetes.io", "csi", names.Driver)
}

// stagingName returns the name of the directory for a volume.
func stagingName(volume string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(volume))) }

// awaitPodDirRemoved waits until the kubelet has removed the directory of a Pod.
func (s *scenario) awaitPodDirRemoved(p *corev1.Pod) {
	s.Helper()
	s.awaitDirRemoved(podDir(p))
}

func (s *scenario) awaitDirRemoved(dir string) {
	s.Helper()
	err := eventually(s.timeoutContext(), func(context.Context) error {
		_, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(fmt.Errorf("%s still exists", dir), err)
	})
	if err != nil {
		var left []string
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			left = append(left, strings.TrimPrefix(path, dir))
			return nil
		})
		s.Errorf("%v: %v", err, left)
	}
}

// agentOn returns the Pod of the node agent on a node.
func (s *scenario) agentOn(node string) *corev1.Pod {
	s.Helper()
	var agents corev1.PodList
	if err := api.List(s.ctx, &agents, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "node-agent"}); err != nil {
		s.Fatalf("listing the agents: %v", err)
	}
	for i := range agents.Items {
		if agents.Items[i].Spec.NodeName == node && agents.Items[i].DeletionTimestamp == nil {
			return &agents.Items[i]
		}
	}
	s.Fatalf("no agent on %s", node)
	return nil
}

// awaitNewAgent waits until another agent than the given one is ready on its node.
func (s *scenario) awaitNewAgent(old *corev1.Pod) {
	s.Helper()
	err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		var agents corev1.PodList
		if err := api.List(ctx, &agents, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "node-agent"}); err != nil {
			return err
		}
		for i := range agents.Items {
			if a := &agents.Items[i]; a.Spec.NodeName == old.Spec.NodeName && a.UID != old.UID && isReady(a) {
				return nil
			}
		}
		return fmt.Errorf("no new agent on %s", old.Spec.NodeName)
	})
	if err != nil {
		s.Fatal(err)
	}
}

// TestANodeRestartsWithItsPods: after a power cut the volume directories are still filled, and the same Pods run again
// at their addresses.
func TestANodeRestartsWithItsPods(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	p := s.awaitReady("broker-0")
	own := s.awaitPodListener(p, "listener").IngressAddresses[0]
	s.awaitAnswer(own, "broker-0")
	node := nodeOf(p)
	if err := testbed.StopNode(s.ctx, node); err != nil {
		t.Fatal(err)
	}
	if _, err := request(s.timeoutContext(), own, "/whoami"); err == nil {
		t.Error("the Pod answers although its node is stopped")
	}
	if err := testbed.StartNode(s.ctx, node); err != nil {
		t.Fatal(err)
	}
	s.awaitAnswer(own, "broker-0")
	if after := s.awaitReady("broker-0"); after.UID != p.UID {
		t.Errorf("the Pod was replaced: its uid was %s and is %s", p.UID, after.UID)
	}
	if diff := cmp.Diff(wantFiles("listener", own), s.readFiles(own)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := testbed.Ready(s.timeoutContext()); err != nil {
		t.Error(err)
	}
}

// TestTheKubeletRestarts: a running Pod is not affected, and the volume of another Pod can be mounted.
func TestTheKubeletRestarts(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	p := s.awaitReady("broker-0")
	own := s.awaitPodListener(p, "listener").IngressAddresses[0]
	if err := errors.Join(testbed.StopKubelet(s.ctx, nodeOf(p)), testbed.StartKubelet(s.ctx, nodeOf(p))); err != nil {
		t.Fatal(err)
	}
	s.awaitAnswer(own, "broker-0")
	next := pod("next", map[string]map[string]string{"listener": byClass(class.Name)})
	next.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.Spec.NodeName}
	s.create(next)
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("next"), "listener").IngressAddresses[0], "next")
	if after := s.awaitReady("broker-0"); after.UID != p.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the first Pod was restarted")
	}
}

// TestAnAgentUpdatesVolumesAfterItsRestart: addresses that changed while no agent ran on the node are written when it
// runs again.
func TestAnAgentUpdatesVolumesAfterItsRestart(t *testing.T) {
	s := newScenario(t)
	spec := loadBalanced()
	spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeIP
	class := s.createClass(spec)
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	service := mustAwait(s, &corev1.Service{}, "web-listener", func(service *corev1.Service) bool { return nodePort(service, "http") > 0 })
	s.assignAddress(service, "192.0.2.30")
	p := s.awaitReady("web")
	through := listenersv1alpha1.IngressAddress{Address: testbed.NodeIP(nodeOf(p)), Ports: map[string]int32{"http": nodePort(service, "http")}}
	s.awaitAnswer(through, "web")

	agent := s.agentOn(p.Spec.NodeName)
	s.remove(agent, client.GracePeriodSeconds(0)) // killed without a graceful shutdown
	s.assignAddress(service, "192.0.2.40")
	s.awaitNewAgent(agent)
	want := listenersv1alpha1.IngressAddress{Address: "192.0.2.40", Ports: map[string]int32{"http": 8080, "echo": 9090}}
	s.awaitFilesAt(through, want)
}

// TestADeletedPodIsCleanedUpWhenTheKubeletRestarts: a Pod is force-deleted while the kubelet is stopped, and its
// directory is removed when the kubelet runs again.
func TestADeletedPodIsCleanedUpWhenTheKubeletRestarts(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	p := s.awaitReady("web")
	if err := testbed.StopKubelet(s.ctx, nodeOf(p)); err != nil {
		t.Fatal(err)
	}
	s.remove(p, client.GracePeriodSeconds(0))
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	mustAwaitDeleted(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	if err := testbed.StartKubelet(s.ctx, nodeOf(p)); err != nil {
		t.Fatal(err)
	}
	s.awaitPodDirRemoved(p)
}

// TestAHostilePodCannotPreventItsDeletion: whatever a Pod that runs as root creates in its volume, the Pod can be
// deleted, and its directory is removed.
func TestAHostilePodCannotPreventItsDeletion(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	namespace := &corev1.Namespace{}
	s.get(namespace, client.ObjectKey{Name: s.namespace})
	s.patch(namespace, func() { namespace.Labels["pod-security.kubernetes.io/enforce"] = "privileged" })
	class := s.createClass(unpinned())
	p := pod("messy", map[string]map[string]string{"listener": byClass(class.Name)})
	p.Spec.SecurityContext = nil
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0)}
	p.Spec.Containers[0].Args = []string{"mess"}
	s.create(p)
	p = s.awaitReady("messy")
	s.awaitAnswer(s.awaitPodListener(p, "listener").IngressAddresses[0], "messy")
	s.remove(p)
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	s.awaitPodDirRemoved(p)
}

// TestAPodCanBeDeletedWhileItsVolumeIsMounted: a Pod whose mount waits for an address that is never assigned can be
// deleted.
func TestAPodCanBeDeletedWhileItsVolumeIsMounted(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(loadBalanced())
	p := pod("web", map[string]map[string]string{"listener": byClass(class.Name)})
	s.create(p)
	s.awaitEvent("Pod", "web", listenersv1alpha1.ReasonWaitingForAddress)
	p = mustAwait(s, &corev1.Pod{}, "web", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	s.remove(p)
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key("web-listener"))
	s.awaitPodDirRemoved(p)
}

// TestADeletedNodeDoesNotAffectOtherAddresses: the address of a deleted node is removed, those of the others stay.
func TestADeletedNodeDoesNotAffectOtherAddresses(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.createBootstrapListener(class.Name)
	nodes := testbed.Nodes()
	lost := nodes[len(nodes)-1] + 1
	if err := testbed.StartNode(s.ctx, lost); err != nil { // joins as a new node
		t.Fatal(err)
	}
	for i, node := range []int{nodes[0], lost} {
		p := pod(fmt.Sprintf("web-%d", i), map[string]map[string]string{"listener": byName("bootstrap")})
		p.Spec.NodeName = "" // the volume is provisioned only if the scheduler selects the node
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: testbed.NodeName(node)}
		s.create(p)
		s.awaitReady(p.Name)
	}
	s.awaitListener("bootstrap", 2)
	if err := testbed.DeleteNode(s.ctx, lost); err != nil {
		t.Fatal(err)
	}
	l := s.awaitListener("bootstrap", 1)
	if got := l.Status.IngressAddresses[0].Address; got != testbed.NodeIP(nodes[0]) {
		t.Errorf("the remaining address is %s, want that of %s", got, testbed.NodeName(nodes[0]))
	}
	s.awaitAnswer(l.Status.IngressAddresses[0], "web-0")
	// The deleted node's kubelet cannot confirm the deletion of its Pod.
	s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: s.namespace}}, client.GracePeriodSeconds(0))
}

// TestPodsRunWhileTheOperatorIsDown: running Pods are not affected, and a Pod that was created meanwhile starts when
// the operator is back.
func TestPodsRunWhileTheOperatorIsDown(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("before", map[string]map[string]string{"listener": byClass(class.Name)}))
	before := s.awaitPodListener(s.awaitReady("before"), "listener").IngressAddresses[0]
	operator := &appsv1.Deployment{}
	s.get(operator, client.ObjectKey{Namespace: operatorNamespace, Name: "listener-operator"})
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](0) })
	if _, err := await(s.timeoutContext(), &appsv1.Deployment{}, client.ObjectKeyFromObject(operator),
		func(d *appsv1.Deployment) bool { return d.Status.Replicas == 0 }); err != nil {
		t.Fatal(err)
	}
	s.create(pod("meanwhile", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.awaitAnswer(before, "before")
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](1) })
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("meanwhile"), "listener").IngressAddresses[0], "meanwhile")
	s.awaitAnswer(before, "before")
}

// TestAKilledOperatorKeepsItsLease: the container that replaces a killed one serves Pods without waiting until the old
// lease expires, because the leader is the Pod. After an expiry the lease would have another transition.
func TestAKilledOperatorKeepsItsLease(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	operator := s.operatorPod()
	before := s.operatorLease()
	restarts := operator.Status.ContainerStatuses[0].RestartCount
	s.killOnNode(operator.Spec.NodeName, "/operator")
	if _, err := await(s.timeoutContext(), &corev1.Pod{}, client.ObjectKeyFromObject(operator), func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount > restarts && isReady(p)
	}); err != nil {
		t.Fatal(err)
	}
	s.create(pod("after", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("after"), "listener").IngressAddresses[0], "after")
	after := s.operatorLease()
	if !strings.HasSuffix(*after.Spec.HolderIdentity, "_"+string(operator.UID)) || *after.Spec.HolderIdentity != *before.Spec.HolderIdentity {
		t.Errorf("the lease was held by %q and is held by %q", *before.Spec.HolderIdentity, *after.Spec.HolderIdentity)
	}
	if *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions || !after.Spec.AcquireTime.Equal(before.Spec.AcquireTime) {
		t.Errorf("the lease was acquired again: it was %+v and is %+v", before.Spec, after.Spec)
	}
}

// TestABurstOfPodsAndTheEndOfTheirNamespaceAreNoErrors: 30 Pods start at once, and the namespace of another 30 is
// deleted while their volumes are being mounted. Nothing of that is an error in the operator's metrics and log, and
// nothing stays on the nodes.
func TestABurstOfPodsAndTheEndOfTheirNamespaceAreNoErrors(t *testing.T) {
	const burst = 30
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.allowMetrics("reader")
	token := s.token("reader")
	before := s.operatorErrors(token)
	started := metav1.Now()
	for i := range burst {
		s.create(pod(fmt.Sprintf("web-%d", i), map[string]map[string]string{"listener": byClass(class.Name)}))
	}
	for i := range burst {
		s.awaitReady(fmt.Sprintf("web-%d", i))
	}

	ending := newScenario(t)
	pods := make([]*corev1.Pod, burst)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("web-%d", i), map[string]map[string]string{"listener": byClass(class.Name)})
		ending.create(pods[i])
	}
	for i, p := range pods { // the kubelets are mounting
		pods[i] = mustAwait(ending, &corev1.Pod{}, p.Name, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	}
	deleted := time.Now()
	ending.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ending.namespace}})
	mustAwaitDeleted(ending, &corev1.Namespace{}, client.ObjectKey{Name: ending.namespace})
	for _, p := range pods {
		ending.awaitPodDirRemoved(p)
	}
	t.Logf("the namespace and the directories of its %d Pods were removed after %s", burst, time.Since(deleted).Round(time.Second))
	ending.awaitNoVolumes()
	if after := s.operatorErrors(token); after != before {
		t.Errorf("the operator counted %v reconcile errors", after-before)
	}
	if lines := s.operatorErrorLog(started); len(lines) > 0 {
		t.Errorf("the operator logged %d errors:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

// awaitNoVolumes waits until no PersistentVolume has a claim in the namespace.
func (s *scenario) awaitNoVolumes() {
	s.Helper()
	err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		var volumes corev1.PersistentVolumeList
		if err := api.List(ctx, &volumes); err != nil {
			return err
		}
		for i := range volumes.Items {
			if ref := volumes.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == s.namespace {
				return fmt.Errorf("PersistentVolume %s of claim %s still exists", volumes.Items[i].Name, ref.Name)
			}
		}
		return nil
	})
	if err != nil {
		s.Error(err)
	}
}

// operatorErrors returns how many reconcile errors the operator has counted.
func (s *scenario) operatorErrors(token string) (sum float64) {
	s.Helper()
	var body string
	if err := eventually(s.timeoutContext(), func(ctx context.Context) error { // RBAC rules take effect with a delay
		code, content, err := metrics(ctx, s.metricsURL(), token)
		if body = content; err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d: %s", code, content)
		}
		return err
	}); err != nil {
		s.Fatalf("reading metrics: %v", err)
	}
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "controller_runtime_reconcile_errors_total{") {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			s.Fatalf("parsing %q: %v", line, err)
		}
		sum += value
	}
	return sum
}

// operatorErrorLog returns the errors that the operator has logged since a time.
func (s *scenario) operatorErrorLog(since metav1.Time) (lines []string) {
	s.Helper()
	output, err := exec.CommandContext(s.ctx, testbed.Kubectl(), "--kubeconfig", testbed.Kubeconfig(), "-n", operatorNamespace,
		"logs", "--since-time="+since.UTC().Format(time.RFC3339), s.operatorPod().Name).Output()
	if err != nil {
		s.Fatalf("reading the operator's log: %v", err)
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, `"level":"ERROR"`) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// operatorLease returns the lease of leader election.
func (s *scenario) operatorLease() *coordinationv1.Lease {
	s.Helper()
	lease := &coordinationv1.Lease{}
	s.get(lease, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator})
	return lease
}

// operatorPod waits until the operator's Pod is ready, and returns it.
func (s *scenario) operatorPod() (operator *corev1.Pod) {
	s.Helper()
	err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := api.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "operator"}); err != nil {
			return fmt.Errorf("listing the operator's Pods: %w", err)
		}
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil && isReady(&pods.Items[i]) {
				operator = &pods.Items[i]
				return nil
			}
		}
		return errors.New("the operator has no ready Pod")
	})
	if err != nil {
		s.Fatal(err)
	}
	return operator
}

// killOnNode kills the programs of containers on a node whose command line starts like this.
func (s *scenario) killOnNode(node, command string) {
	s.Helper()
	if output, err := testbed.NodeCommand(s.ctx, nodeNumber(node), "pkill", "-KILL", "-f", "^"+command).CombinedOutput(); err != nil {
		s.Fatalf("killing %s on %s: %v: %s", command, node, err, output)
	}
}

// TestInstalledObjectsAreRepaired: installed objects that an administrator changes or deletes are restored, and volumes
// can be mounted afterwards.
func TestInstalledObjectsAreRepaired(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	agents := &appsv1.DaemonSet{}
	s.get(agents, client.ObjectKey{Namespace: operatorNamespace, Name: names.NodeAgent})
	s.patch(agents, func() { agents.Spec.Template.Spec.Containers[0].Args = []string{"--nonsense"} })
	if _, err := await(s.timeoutContext(), &appsv1.DaemonSet{}, client.ObjectKeyFromObject(agents), func(d *appsv1.DaemonSet) bool {
		return !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--nonsense") && d.Status.ObservedGeneration == d.Generation &&
			d.Status.UpdatedNumberScheduled == d.Status.DesiredNumberScheduled && d.Status.NumberReady == d.Status.DesiredNumberScheduled
	}); err != nil {
		t.Fatal(err)
	}
	driver, storage := &storagev1.CSIDriver{}, &storagev1.StorageClass{}
	for _, o := range []client.Object{driver, storage} {
		s.get(o, client.ObjectKey{Name: names.Driver})
		s.remove(o)
	}
	if _, err := await(s.timeoutContext(), &storagev1.CSIDriver{}, client.ObjectKeyFromObject(driver), func(d *storagev1.CSIDriver) bool { return d.UID != driver.UID }); err != nil {
		t.Error(err)
	}
	if _, err := await(s.timeoutContext(), &storagev1.StorageClass{}, client.ObjectKeyFromObject(storage), func(c *storagev1.StorageClass) bool { return c.UID != storage.UID }); err != nil {
		t.Error(err)
	}
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0], "web")
}

// TestCRDsOfStackableAreTakenOver: the CustomResourceDefinitions of Stackable's listener operator have a conversion
// webhook, which stops working when that operator is uninstalled. Deploying this operator removes the webhook. If
// another field manager owns it, deploying fails.
func TestCRDsOfStackableAreTakenOver(t *testing.T) {
	s := newScenario(t)
	s.setConversionWebhook(stackableFieldManager)
	if output, err := deploy(s.ctx); err != nil {
		t.Fatal(err, output)
	}
	s.checkNoConversionWebhook()
	s.setConversionWebhook("another-manager")
	if output, err := deploy(s.ctx); err == nil || !strings.Contains(output, "spec.conversion.webhookClientConfig: Forbidden") {
		t.Errorf("deploying although another field manager owns the conversion webhook: %v: %s", err, output)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	s.get(crd, takenOverCRD)
	s.patch(crd, func() {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	if output, err := deploy(s.ctx); err != nil {
		t.Error(err, output)
	}
}

// stackableFieldManager is the field manager with which Stackable's listener operator applies its CRDs.
const stackableFieldManager = "listener-operator"

// takenOverCRD is a CRD that Stackable's listener operator also installs.
var takenOverCRD = client.ObjectKey{Name: "listeners.listeners.stackable.tech"}

// setConversionWebhook adds a conversion webhook to the CRD, as Stackable's listener operator does: it applies the
// whole object, with force, as this field manager.
func (s *scenario) setConversionWebhook(owner string) {
	s.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	s.get(crd, takenOverCRD)
	spec, _, err := unstructured.NestedMap(crd.Object, "spec")
	if err != nil {
		s.Fatal(err)
	}
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{"service": map[string]any{
			"namespace": "stackable-operators", "name": "listener-operator", "port": int64(8443), "path": "/convert/" + takenOverCRD.Name,
		}},
	}}
	crd.Object = map[string]any{
		"apiVersion": crd.GetAPIVersion(), "kind": crd.GetKind(), "metadata": map[string]any{"name": takenOverCRD.Name}, "spec": spec,
	}
	if err := api.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		s.Fatal(err)
	}
}

// checkNoConversionWebhook fails if the CRD has a conversion webhook.
func (s *scenario) checkNoConversionWebhook() {
	s.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	s.get(crd, takenOverCRD)
	if conversion := crd.Spec.Conversion; conversion == nil || conversion.Strategy != apiextensionsv1.NoneConverter || conversion.Webhook != nil {
		s.Errorf("the CRD still has the conversion %+v", conversion)
	}
}
