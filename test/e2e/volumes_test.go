//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// They have the same addresses, and the Pod is not affected.
func TestDeletedPodListenersAreRecreated(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	_, p, own := s.createReachablePod()
	deleted := mustGet(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	s.remove(deleted)
	recreated := mustAwait(s, &listenersv1alpha1.PodListeners{}, s.key(deleted.Name), func(l *listenersv1alpha1.PodListeners) bool {
		return l.UID != deleted.UID && len(l.Spec.Listeners["listener"].IngressAddresses) > 0
	})
	if diff := cmp.Diff(deleted.Spec, recreated.Spec); diff != "" {
		t.Errorf("spec of the PodListeners (-before +after):\n%s", diff)
	}
	s.checkFilesAt(own)
	s.checkNotRestarted(p)
	s.remove(p)
	mustAwaitDeleted(s, deleted, client.ObjectKeyFromObject(deleted))
	s.awaitPodDirRemoved(p)
}

// A Pod on another node cannot mount it, and an event says why. The first Pod keeps its address.
func TestAPinnedVolumeBelongsToTheNodeOfItsFirstPod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "shared", Annotations: byClass(class.Name)}, Spec: objects.ClaimSpec("")})
	first := podWith("first", objects.ClaimVolume("listener", "shared"))
	first.Spec.NodeSelector = onNode(testbed.NodeName(1))
	s.create(first)
	_, own := s.awaitReachable("first")

	second := podWith("second", objects.ClaimVolume("listener", "shared"))
	second.Spec.NodeName = testbed.NodeName(2) // past the scheduler, which knows better
	s.create(second)
	s.awaitEvent("Pod", "second", listenersv1alpha1.ReasonWaitingForAddress, "is pinned to node "+testbed.NodeName(1))
	s.removeAndAwait(second)
	s.awaitAnswer(own, "first")
	s.checkFilesAt(own)
}

// Pods whose mounts wait for an address do not delay the deletion.
func TestANamespaceCanBeDeletedWhileVolumesAreMounted(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(loadBalanced())
	for _, name := range []string{"a", "b", "c"} {
		s.create(pod(name, byClass(class.Name)))
	}
	for _, name := range []string{"a", "b", "c"} {
		s.awaitEvent("Pod", name, listenersv1alpha1.ReasonWaitingForAddress)
	}
	s.removeAndAwait(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
}

// Nothing of it remains, in the API or on the node.
func TestAnEphemeralVolumeIsDeletedWithItsPod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	_, p, _ := s.createReachablePod()
	pvc := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key("web-listener"))
	staging := stagingDir(p, pvc.Spec.VolumeName)
	if _, err := os.Stat(staging); err != nil {
		t.Errorf("the kubelet has created no directory to stage the volume: %v", err)
	}
	s.removeWithListener(p)
	mustAwaitDeleted(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: pvc.Spec.VolumeName})
	s.awaitDirRemoved(staging)
}

// removeWithListener deletes a Pod, and waits until nothing of it and of the Listener of its volume "listener" remains.
func (s *scenario) removeWithListener(p *corev1.Pod) {
	s.Helper()
	s.removeAndAwait(p)
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key(p.Name+"-listener"))
	mustAwaitDeleted(s, &corev1.Service{}, s.key(p.Name+"-listener"))
	mustAwaitDeleted(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	s.awaitPodDirRemoved(p)
}

// It needs no claim, and is permitted where the Pod security standard restricted is enforced. A new agent finds it.
func TestAnInlineVolumeHasTheAddressOfItsPod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(podWith("web", objects.InlineVolume("listener", byClass(class.Name))))
	p, own := s.awaitReachable("web")
	s.checkFilesAt(own)

	agent := s.agentOn(p.Spec.NodeName)
	s.remove(agent)
	s.awaitNewAgent(agent)
	listener := s.awaitListener("web-listener", 1)
	s.patch(listener, func() {
		listener.Spec.Ports = append(listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "later", Port: 8081})
	})
	later := s.awaitEntry(p, "listener", func(entry listenersv1alpha1.PodListener) bool {
		return len(entry.IngressAddresses) == 1 && len(entry.IngressAddresses[0].Ports) > len(own.Ports)
	})
	s.awaitFilesAt(own, later.IngressAddresses...)

	s.removeWithListener(p)
}

// The template of the Pods has nothing but annotations. Pods of a namespace that does not opt in stay as they are.
func TestAnAnnotationGivesPodsTheirAddresses(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.enableInjection()
	class := s.createClass(unpinned())
	annotated := func(name string) *appsv1.StatefulSet {
		set := statefulSet(name, 2, nil)
		set.Spec.VolumeClaimTemplates = nil
		set.Spec.Template.Annotations = map[string]string{
			names.AnnotationInject: class.Name, names.AnnotationInjectPath: "/listeners/listener", names.AttributeKeep: "true",
		}
		for i := range set.Spec.Template.Spec.Containers {
			set.Spec.Template.Spec.Containers[i].VolumeMounts = nil
		}
		return set
	}
	s.create(annotated("before"))
	s.awaitReady("before-0")
	out, status := s.plugin()("listener", "why", "before-0", "--namespace", s.namespace)
	if want := "kubectl label namespace " + s.namespace + " " + names.LabelInjection + "=enabled"; status != 1 || !strings.Contains(out, want) {
		t.Errorf("kubectl listener why: status %d, want %q in\n%s", status, want, out)
	}
	s.optIn()
	s.create(annotated("web"))
	for _, name := range []string{"web-0", "web-1"} {
		_, own := s.awaitReachable(name)
		s.checkFilesAt(own)
	}
}

// enableInjection applies the policy by which annotated Pods get a volume, and enables it until the test ends.
func (s *scenario) enableInjection() {
	s.Helper()
	config := s.configuration()
	s.patch(config, func() { config.Spec.Injection = operatorv1alpha1.InjectionEnabled })
	s.kubectl("apply", "-k", "../../config/injection")
	s.Cleanup(func() {
		_, err := kubectl(context.WithoutCancel(s.ctx), "delete", "-k", "../../config/injection")
		s.must(errors.Join(err, api.Patch(context.WithoutCancel(s.ctx), config, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"injection":"Disabled"}}`)))))
	})
}

// optIn lets the namespace opt in to annotations for volumes, and waits until its Pods get these: API servers follow
// labels of namespaces, and new policies, within a moment.
func (s *scenario) optIn() {
	s.Helper()
	s.kubectl("label", "namespace", s.namespace, names.LabelInjection+"=enabled")
	s.eventually(func(ctx context.Context) error {
		probe := podWith("probe")
		probe.Namespace, probe.Annotations = s.namespace, map[string]string{names.AnnotationInject: "any"}
		if err := api.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if !slices.ContainsFunc(probe.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == names.InjectedVolume }) {
			return errors.New("the Pod has no listener volume")
		}
		return nil
	})
}

// The next Pod of the name has the same address, without a claim that anybody has to delete.
func TestAKeptListenerOfAnInlineVolumeServesTheNextPod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	set := statefulSet("web", 1, nil)
	attributes := byClass(class.Name)
	attributes[names.AttributeKeep] = "true"
	set.Spec.VolumeClaimTemplates, set.Spec.Template.Spec.Volumes = nil, []corev1.Volume{objects.InlineVolume("listener", attributes)}
	set.Spec.Template.Spec.NodeSelector = onNode(testbed.NodeName(1))
	s.create(set)
	p, own := s.awaitReachable("web-0")
	before := s.awaitListener("web-0-listener", 1)
	s.remove(p)
	_, after := s.awaitReachable("web-0", p)
	if diff := cmp.Diff(own, after); diff != "" {
		t.Errorf("address (-before +after):\n%s", diff)
	}
	if listener := s.awaitListener("web-0-listener", 1); listener.UID != before.UID {
		t.Error("the Listener was replaced")
	}
	s.remove(set)
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key("web-0-listener"))
}

// kubectl debug copies the Pod without its controller and its labels.
func TestACopyOfAPodWithAnInlineVolumeHasNoListener(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	set := statefulSet("web", 1, nil)
	set.Spec.VolumeClaimTemplates, set.Spec.Template.Spec.Volumes = nil, []corev1.Volume{objects.InlineVolume("listener", byClass(class.Name))}
	s.create(set)
	_, own := s.awaitReachable("web-0")
	s.kubectl("debug", "web-0", "--copy-to", "copy", "--same-node", "--set-image", "*="+set.Spec.Template.Spec.Containers[0].Image)
	p := s.awaitReady("copy")
	if entry := s.awaitPodListener(p, "listener"); entry.ListenerName != "web-0-listener" || !cmp.Equal([]listenersv1alpha1.IngressAddress{own}, entry.IngressAddresses) {
		t.Errorf("the entry of the copy is %+v", entry)
	}
	var listeners listenersv1alpha1.ListenerList
	s.must(api.List(s.ctx, &listeners, client.InNamespace(s.namespace)))
	if len(listeners.Items) != 1 {
		t.Errorf("Listeners %+v", listeners.Items)
	}
}

// A user deletes the StatefulSet without its Pod to change its template. The Pod ends before there is another one,
// which then has no replicas for a while.
func TestAnInlineVolumeKeepsItsAddressBetweenStatefulSets(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	attributes := byClass(class.Name)
	attributes[names.AttributeKeep] = "true"
	newSet := func() *appsv1.StatefulSet {
		set := statefulSet("web", 1, nil)
		set.Spec.VolumeClaimTemplates, set.Spec.Template.Spec.Volumes = nil, []corev1.Volume{objects.InlineVolume("listener", attributes)}
		set.Spec.Template.Spec.NodeSelector = onNode(testbed.NodeName(1))
		s.create(set)
		return set
	}
	set := newSet()
	p, own := s.awaitReachable("web-0")
	before := s.awaitListener("web-0-listener", 1)
	same := func(what string, earlier *corev1.Pod) *corev1.Pod {
		t.Helper()
		next, after := s.awaitReachable("web-0", earlier)
		if listener := s.awaitListener("web-0-listener", 1); listener.UID != before.UID || !cmp.Equal(own, after) {
			t.Errorf("%s: the address was %+v, and is %+v; Listener %+v", what, own, after, listener)
		}
		return next
	}

	s.removeAndAwait(set, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key("web-0-listener"), func(l *listenersv1alpha1.Listener) bool { return len(l.OwnerReferences) == 0 })
	s.checkNotRestarted(p)
	if entry := s.awaitPodListener(p, "listener"); len(entry.IngressAddresses) != 1 || !cmp.Equal(own, entry.IngressAddresses[0]) {
		t.Errorf("without a StatefulSet, the entry is %+v", entry)
	}
	s.removeAndAwait(p)
	set = newSet()
	p = same("another StatefulSet", p)

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](0) })
	mustAwaitDeleted(s, &corev1.Pod{}, s.key("web-0"))
	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](1) })
	same("a replica again", p)
	s.remove(set)
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key("web-0-listener"))
}

// The PodListeners of a Pod with an ephemeral volume is written once, with the address. The Listener gets its address
// once and loses it once, and no status is written twice. The number of requests may be higher, because the operator's
// cache lags behind; what they repeat changes nothing.
func TestAFreshVolumeIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	listeners, podListeners := s.versions(&listenersv1alpha1.ListenerList{}), s.versions(&listenersv1alpha1.PodListenersList{})
	p := pod("web", byClass(class.Name))
	s.create(p)
	s.awaitReady("web")
	s.awaitListener("web-listener", 1)
	s.remove(p)
	if versions := podListeners(); len(versions) != 1 {
		t.Errorf("%d versions of the PodListeners: %+v", len(versions), versions)
	}
	var last *listenersv1alpha1.ListenerStatus
	var reasons []string
	assigned, changed := 0, ""
	for _, version := range listeners() {
		status := version.(*listenersv1alpha1.Listener).Status
		if status == nil || cmp.Equal(status, last) {
			continue
		}
		changed, last = cmp.Diff(last, status), status
		reason := meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerReady).Reason
		reasons = append(reasons, reason)
		if reason == listenersv1alpha1.ReasonAddressesAssigned {
			assigned++
		}
	}
	if assigned != 1 || len(slices.Compact(slices.Clone(reasons))) != len(reasons) {
		t.Errorf("the reasons of the condition Ready were %q; the last change of the status (-before +after):\n%s", reasons, changed)
	}
}

// versions watches the objects of a kind in the namespace. The function that it returns waits until one of them is
// deleted, and returns all versions until then.
func (s *scenario) versions(list client.ObjectList) func() []client.Object {
	s.Helper()
	changes, err := api.Watch(s.ctx, list, client.InNamespace(s.namespace))
	if err != nil {
		s.Fatalf("watching %T: %v", list, err)
	}
	s.Cleanup(changes.Stop)
	return func() (versions []client.Object) {
		s.Helper()
		timeout := s.timeoutContext().Done()
		for {
			select {
			case change := <-changes.ResultChan():
				if change.Type == watch.Deleted {
					return versions
				}
				versions = append(versions, change.Object.(client.Object))
			case <-timeout:
				s.Fatalf("no object of %T was deleted", list)
			}
		}
	}
}

// TestAMountTakesFewWrites counts the writes, from all clients, for a claim that is bound, as at each restart of a Pod
// on the same node: the label of the Pod, and its PodListeners object.
func TestAMountTakesFewWrites(t *testing.T) {
	s := newScenario(t)
	s.must(awaitEndedNamespaces(s.timeoutContext())) // their deletion takes writes
	class := s.createClass(unpinned())
	s.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "kept", Annotations: byClass(class.Name)}, Spec: objects.ClaimSpec("")})
	var writes map[string]float64
	for _, name := range []string{"first", "again"} {
		before := s.ourWrites()
		p := podWith(name, objects.ClaimVolume("listener", "kept"))
		p.Spec.NodeSelector = onNode(testbed.NodeName(1))
		s.create(p)
		s.removeAndAwait(s.awaitReady(name))
		mustAwait(s, &listenersv1alpha1.Listener{}, s.key("kept"), func(l *listenersv1alpha1.Listener) bool {
			return l.Annotations[names.AnnotationNumbers] != "" // written once, ten seconds after the creation
		})
		writes = s.ourWrites()
		for what := range writes {
			writes[what] -= before[what]
		}
	}
	maps.DeleteFunc(writes, func(_ string, count float64) bool { return count == 0 })
	check.Equal(t, "writes for mounting a bound claim", map[string]float64{"PATCH pods": 1, "POST podlisteners": 1}, writes)
}

// ourWrites returns the number of writes, except for events, that the API server has served for resources that the
// operator and its agents write, by verb and resource.
func (s *scenario) ourWrites() map[string]float64 {
	s.Helper()
	config, err := testbed.RESTConfig()
	s.must(err)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/", &corev1.SchemeGroupVersion, clientgoscheme.Codecs
	server, err := rest.RESTClientFor(config)
	s.must(err)
	body, err := server.Get().AbsPath("/metrics").Stream(s.ctx)
	if err != nil {
		s.Fatalf("reading the API server's metrics: %v", err)
	}
	defer func() { _ = body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		s.Fatalf("parsing the API server's metrics: %v", err)
	}
	writes := map[string]float64{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		what := labels["resource"]
		if labels["subresource"] != "" {
			what += "/" + labels["subresource"]
		}
		ours := slices.Contains([]string{"podlisteners", "listeners", "listeners/status", "services", "persistentvolumes"}, what) ||
			what == "pods" && labels["verb"] == "PATCH"
		if ours && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY"}, labels["verb"]) {
			writes[labels["verb"]+" "+what] += m.GetCounter().GetValue()
		}
	}
	return writes
}

// Whatever a Pod that runs as root creates in its volume, the Pod can be deleted, and its directory is removed.
func TestAHostilePodCannotPreventItsDeletion(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.allowPrivileged()
	class := s.createClass(unpinned())
	p := pod("messy", byClass(class.Name))
	p.Spec.SecurityContext = nil
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0)}
	p.Spec.Containers[0].Args = []string{"mess"}
	s.create(p)
	p, _ = s.awaitReachable("messy")
	s.removeAndAwait(p)
	s.awaitPodDirRemoved(p)
}

// A Pod whose mount waits for an address that is never assigned can be deleted.
func TestAPodCanBeDeletedWhileItsVolumeIsMounted(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(loadBalanced())
	p := pod("web", byClass(class.Name))
	s.create(p)
	s.awaitEvent("Pod", "web", listenersv1alpha1.ReasonWaitingForAddress)
	p = mustAwait(s, &corev1.Pod{}, s.key("web"), func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	s.removeAndAwait(p)
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key("web-listener"))
	s.awaitPodDirRemoved(p)
}

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

// 30 Pods start at once, and the namespace of another 30 is deleted while their volumes are being mounted. Nothing of
// that is an error in the operator's metrics and log, and nothing stays on the nodes.
func TestABurstOfPodsAndTheEndOfTheirNamespaceAreNoErrors(t *testing.T) {
	const burst = 30
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.allowMetrics("reader")
	token := s.token("reader")
	before := s.operatorErrors(token)
	started := metav1.Now()
	for i := range burst {
		s.create(pod(fmt.Sprintf("web-%d", i), byClass(class.Name)))
	}
	for i := range burst {
		s.awaitReady(fmt.Sprintf("web-%d", i))
	}

	ending := newScenario(t)
	pods := make([]*corev1.Pod, burst)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("web-%d", i), byClass(class.Name))
		ending.create(pods[i])
	}
	for i, p := range pods { // the kubelets are mounting
		pods[i] = mustAwait(ending, &corev1.Pod{}, ending.key(p.Name), func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	}
	deleted := time.Now()
	ending.removeAndAwait(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ending.namespace}})
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
	s.eventually(func(ctx context.Context) error {
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
}

// operatorErrors returns how many reconcile errors the operator has counted.
func (s *scenario) operatorErrors(token string) (sum float64) {
	s.Helper()
	var body string
	s.eventually(func(ctx context.Context) error { // RBAC rules take effect with a delay
		code, content, err := metrics(ctx, s.metricsURL(), token)
		if body = content; err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d: %s", code, content)
		}
		return err
	})
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
	output, err := kubectl(s.ctx, "-n", operatorNamespace, "logs", "--since-time="+since.UTC().Format(time.RFC3339), s.operatorPod().Name)
	if err != nil {
		s.Fatalf("reading the operator's log: %v", err)
	}
	for line := range strings.Lines(output) {
		if strings.Contains(line, `"level":"ERROR"`) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// An init container copies the quoted file into an emptyDir, the only volume from which the kubelet reads variables.
func TestTheKubeletReadsTheDefaultAddressAsVariables(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	p := clientPod("web")
	listener := objects.EphemeralVolume("listener", byClass(class.Name))
	p.Spec.Volumes = []corev1.Volume{listener, {Name: "env", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	c := &p.Spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	copying := *c.DeepCopy()
	copying.Name, copying.Ports, copying.Command = "copy", nil, []string{"cp", "/listener/default-address.quoted.env", "/env/address.env"}
	copying.VolumeMounts = []corev1.VolumeMount{{Name: "listener", MountPath: "/listener", ReadOnly: true}, {Name: "env", MountPath: "/env"}}
	p.Spec.InitContainers = []corev1.Container{copying}
	c.Env = []corev1.EnvVar{{Name: "ADVERTISED", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{
		VolumeName: "env", Path: "address.env", Key: "LISTENER_ENDPOINT_HTTP",
	}}}}
	if err := api.Create(s.ctx, p, client.DryRunAll); err != nil && strings.Contains(err.Error(), "must specify one of") {
		t.Skip("needs fileKeyRef, which is on by default as of Kubernetes 1.35")
	}
	s.create(p)
	own := s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0]
	want := hostPort(own, "http")
	got, err := kubectl(s.timeoutContext(), "-n", s.namespace, "exec", "web", "--", "sh", "-c", "echo $ADVERTISED")
	if err != nil || strings.TrimSpace(got) != want {
		t.Errorf("the variable is %q (%v), want %s", got, err, want)
	}
}
