package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// settled is how long something may wait before it is reported: most of what waits is just being created.
const settled = 30 * time.Second

// young reports whether something began to wait a moment ago.
func (d *doctor) young(since metav1.Time) bool { return d.Now().Sub(since.Time) < settled }

// more returns the remedy of a finding with the command that says more about its object.
func more(f check.Finding, kind string) string {
	sentence, ended := strings.CutSuffix(f.Remedy, ".")
	separator := "; more: "
	if ended {
		separator = ". More: "
	}
	return fmt.Sprintf("%s%skubectl listener why %s/%s --namespace %s", sentence, separator, kind, f.Name, f.Namespace)
}

// ofAdministrators are the reasons of Listeners about which users can do nothing.
var ofAdministrators = []string{
	listenersv1alpha1.ReasonWaitingForLoadBalancer, listenersv1alpha1.ReasonNodesMissing, listenersv1alpha1.ReasonInvalidNodeAddress,
	listenersv1alpha1.ReasonWaitingForRouter, listenersv1alpha1.ReasonWaitingForIngress, listenersv1alpha1.ReasonNoGatewayListener,
	listenersv1alpha1.ReasonWaitingForGateway, listenersv1alpha1.ReasonGatewayRouteNotAccepted,
}

// examineListeners checks for Listeners that are not accepted or not ready, or whose class does not exist.
func (d *doctor) examineListeners(context.Context) {
	if !d.served || !d.read("Listener", "ListenerClass") {
		return
	}
	classes := sets.New[string]()
	for i := range d.classes.Items {
		classes.Insert(d.classes.Items[i].Name)
	}
	var findings []check.Finding
	for i := range d.listeners.Items {
		if listener := &d.listeners.Items[i]; listener.DeletionTimestamp == nil && !onLostNodes(listener) {
			f := d.listenerFinding(listener, classes)
			if f.State == check.Failed {
				f.Remedy = more(f, "listener")
			}
			findings = append(findings, f)
		}
	}
	d.AddAll(findings, "Listeners", "%d are ready, or wait for a Pod")
}

// onLostNodes reports whether no node of a Listener is ready, which the findings about these nodes say.
func onLostNodes(listener *listenersv1alpha1.Listener) bool {
	return ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Summary.Reason == listenersv1alpha1.ReasonNodesNotReady
}

// listenerFinding returns what the operator says about a Listener, unless another finding says it: a range of ports
// without ports. A Listener that only waits for a Pod is as it should be, as a claim is.
func (d *doctor) listenerFinding(listener *listenersv1alpha1.Listener, classes sets.Set[string]) check.Finding {
	f := check.Finding{Kind: "Listener", Namespace: listener.Namespace, Name: listener.Name, ForUsers: true}
	status := ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{})
	accepted := check.Condition(status.Conditions, listenersv1alpha1.ListenerAccepted)
	ready := check.Condition(status.Conditions, listenersv1alpha1.ListenerReady)
	switch {
	case slices.Contains([]string{listenersv1alpha1.ReasonNodePortsExhausted, listenersv1alpha1.ReasonSharedPortsExhausted}, status.Summary.Reason):
		return f.OK("")
	case accepted.Status == metav1.ConditionFalse:
		return f.FailedBy(accepted.Reason, accepted.Message)
	case listener.Class() != "" && !classes.Has(listener.Class()):
		return f.FailedBy(listenersv1alpha1.ReasonClassNotFound, fmt.Sprintf("ListenerClass %q does not exist", listener.Class()))
	case ready.Status == metav1.ConditionFalse && ready.Reason != listenersv1alpha1.ReasonWaitingForPods && !d.young(ready.LastTransitionTime):
		f.ForUsers = !slices.Contains(ofAdministrators, ready.Reason)
		return f.FailedBy(ready.Reason, ready.Message)
	case ready.Status == metav1.ConditionTrue:
		return readyFinding(f, accepted, ready)
	case accepted.Type == "" && !d.young(listener.CreationTimestamp):
		f.ForUsers = false
		return f.Failed("", "the operator has not looked at it", d.operatorLog())
	default:
		return f.OK("")
	}
}

// readyFinding returns what the operator says about a Listener that has its addresses.
func readyFinding(f check.Finding, accepted, ready metav1.Condition) check.Finding {
	switch {
	case accepted.Reason == listenersv1alpha1.ReasonDuplicatePortName:
		return f.FailedBy(accepted.Reason, accepted.Message)
	case ready.Reason == listenersv1alpha1.ReasonNoMatchingPods:
		return f.FailedBy(ready.Reason, ready.Message)
	case slices.Contains([]string{listenersv1alpha1.ReasonNodesWithoutPods, listenersv1alpha1.ReasonPortNotDeclared}, ready.Reason):
		return f.Warning(ready.Reason, ready.Message)
	default:
		return f.OK("")
	}
}

// operatorLog returns how to find out why the operator does not act.
func (d *doctor) operatorLog() string {
	if d.stopped {
		return fmt.Sprintf("The operator does not run, so it does nothing about this: kubectl describe --namespace %s deployment/%s", d.namespace, names.Operator)
	}
	return fmt.Sprintf("See the log of the operator: kubectl logs --namespace %s deployment/%s", cmp.Or(d.namespace, "NAMESPACE"), names.Operator)
}

// waitingPods checks for Pods that cannot be scheduled and mount a listener volume, and for Pods that are bound to a
// node and do not start because of one. Of a Pod whose containers have been created, it says nothing. It leaves out
// what another finding is the cause of.
func (d *doctor) waitingPods(ctx context.Context) {
	if !d.served || !d.read("PersistentVolumeClaim", "PersistentVolume", "Listener", "PodListeners") {
		return
	}
	var pods corev1.PodList
	pending := client.MatchingFields{"status.phase": string(corev1.PodPending)}
	if d.FollowAll(ctx, check.Finding{Kind: "Pod"}, &pods, pending) != check.Present {
		return
	}
	w := d.newWaiting()
	for i := range pods.Items {
		pod := &pods.Items[i]
		mounts := w.mounts(pod)
		if pod.DeletionTimestamp != nil || len(mounts) == 0 || d.young(waitsSince(pod)) || w.explained(pod, mounts) {
			continue
		}
		f := w.finding(ctx, check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, ForUsers: true}, pod, mounts)
		if f.State == check.Failed {
			f.Remedy = more(f, "pod")
			d.Add(f)
		}
	}
}

// waitsSince returns since when a Pod waits for the scheduler, or for its node.
func waitsSince(pod *corev1.Pod) metav1.Time {
	if scheduled := check.PodCondition(pod, corev1.PodScheduled); scheduled != nil && !scheduled.LastTransitionTime.IsZero() {
		return scheduled.LastTransitionTime
	}
	return pod.CreationTimestamp
}

// waiting examines Pods that wait.
type waiting struct {
	*doctor
	claims    map[types.NamespacedName]*corev1.PersistentVolumeClaim
	addresses map[types.UID]*listenersv1alpha1.PodListeners
	// pinned are the nodes of volumes that are pinned.
	pinned map[string]string
	// reported are the objects of findings with a problem.
	reported sets.Set[string]
	// events are the last events of a reason about each object, which are read once.
	events map[string]map[types.UID]*corev1.Event
}

// newWaiting makes what a Pod refers to available by its name.
func (d *doctor) newWaiting() *waiting {
	w := &waiting{
		doctor: d, claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, addresses: map[types.UID]*listenersv1alpha1.PodListeners{},
		pinned: map[string]string{}, reported: sets.New[string](), events: map[string]map[types.UID]*corev1.Event{},
	}
	for i := range d.claims.Items {
		w.claims[client.ObjectKeyFromObject(&d.claims.Items[i])] = &d.claims.Items[i]
	}
	for i := range d.podListeners.Items {
		if owners := d.podListeners.Items[i].OwnerReferences; len(owners) > 0 {
			w.addresses[owners[0].UID] = &d.podListeners.Items[i]
		}
	}
	for i := range d.volumes.Items {
		if pv := &d.volumes.Items[i]; claim.IsListenerVolume(pv) {
			w.pinned[pv.Name] = strings.Join(index.PinnedNodes(pv), ", ")
		}
	}
	for i := range d.Findings {
		if f := &d.Findings[i]; f.State == check.Failed {
			w.reported.Insert(f.Object())
		}
	}
	return w
}

// mounts returns the volumes of a Pod that are listener volumes, or will be when the claim of an ephemeral volume
// exists, by their names. A claim that does not exist is nil.
func (w *waiting) mounts(pod *corev1.Pod) map[string]*corev1.PersistentVolumeClaim {
	found := map[string]*corev1.PersistentVolumeClaim{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		pvc := w.claims[types.NamespacedName{Namespace: pod.Namespace, Name: index.ClaimName(pod, volume)}]
		described := pvc
		if pvc == nil && volume.Ephemeral != nil {
			template := volume.Ephemeral.VolumeClaimTemplate
			described = &corev1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		}
		if described != nil && check.RequestsListener(described) {
			found[volume.Name] = pvc
		}
	}
	return found
}

// explained reports whether another finding is about the Pod, or why it waits: its node, a claim, a volume or a
// Listener.
func (w *waiting) explained(pod *corev1.Pod, mounts map[string]*corev1.PersistentVolumeClaim) bool {
	causes := []check.Finding{{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}, {Kind: "Node", Name: pod.Spec.NodeName}}
	for volume, pvc := range mounts {
		if pvc != nil {
			causes = append(causes, check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name},
				check.Finding{Kind: "PersistentVolume", Name: pvc.Spec.VolumeName}, check.Finding{Kind: "Node", Name: w.pinned[pvc.Spec.VolumeName]},
				check.Finding{Kind: "Listener", Namespace: pvc.Namespace, Name: w.listenerName(pod, volume, pvc)})
		}
	}
	return slices.ContainsFunc(causes, func(f check.Finding) bool { return f.Name != "" && w.reported.Has(f.Object()) })
}

// listenerName returns the name of the Listener of a Pod's volume.
func (w *waiting) listenerName(pod *corev1.Pod, volume string, pvc *corev1.PersistentVolumeClaim) string {
	if addresses := w.addresses[pod.UID]; addresses != nil && addresses.Spec.Listeners[volume].ListenerName != "" {
		return addresses.Spec.Listeners[volume].ListenerName
	}
	selector, _ := claim.ParseSelector(pvc.Annotations)
	return selector.ListenerName(pvc.Name)
}

// event returns the last event with a reason about an object, or nil.
func (w *waiting) event(ctx context.Context, uid types.UID, reason, reporter string) *corev1.Event {
	if w.events[reason] == nil {
		w.events[reason] = w.LastEvents(ctx, reason, reporter)
	}
	return w.events[reason][uid]
}

// finding returns what a Pod waits for, or an empty finding if it is not a listener volume, or not known.
func (w *waiting) finding(ctx context.Context, f check.Finding, pod *corev1.Pod, mounts map[string]*corev1.PersistentVolumeClaim) check.Finding {
	if pod.Spec.NodeName == "" {
		return w.unscheduled(ctx, f, pod, mounts)
	}
	if created := check.PodCondition(pod, corev1.PodReadyToStartContainers); created != nil && created.Status == corev1.ConditionTrue {
		return check.Finding{} // the kubelet mounts volumes first
	}
	switch {
	case w.addresses[pod.UID] == nil && w.reported.Has((&check.Finding{Kind: "Deployment", Namespace: w.namespace, Name: names.Operator}).Object()):
		return check.Finding{}
	case w.addresses[pod.UID] == nil:
		f.ForUsers = false
		if e := w.event(ctx, pod.UID, listenersv1alpha1.ReasonRequestRejected, names.EventReporter); e != nil {
			return f.FailedBy(e.Reason, e.Message)
		}
		return f.Failed("", fmt.Sprintf("is bound to node %s, and the operator has not written its addresses", pod.Spec.NodeName), w.operatorLog())
	}
	for _, volume := range slices.Sorted(maps.Keys(mounts)) {
		if found := w.volume(ctx, f, pod, volume, mounts[volume]); found.State != "" {
			return found
		}
	}
	return check.Finding{}
}

// volume returns what a volume of a Pod that is bound to a node lacks, or an empty finding. pvc may be nil.
func (w *waiting) volume(ctx context.Context, f check.Finding, pod *corev1.Pod, name string, pvc *corev1.PersistentVolumeClaim) check.Finding {
	if len(w.addresses[pod.UID].Spec.Listeners[name].IngressAddresses) == 0 {
		message := fmt.Sprintf("volume %q has no address yet", name)
		if e := w.event(ctx, pod.UID, listenersv1alpha1.ReasonWaitingForAddress, names.EventReporter); e != nil {
			message = e.Message
		}
		return f.FailedBy(listenersv1alpha1.ReasonWaitingForAddress, message)
	}
	e := w.event(ctx, pod.UID, reasons.FailedMount, kubelet)
	if e == nil || !concerns(e, name) && (pvc == nil || !concerns(e, pvc.Spec.VolumeName)) {
		return check.Finding{}
	}
	f.ForUsers = false
	return f.FailedBy(e.Reason, e.Message, "{node}", pod.Spec.NodeName)
}

// Reporters of events of Kubernetes about volumes that cannot be mounted, and about claims of ephemeral volumes that
// cannot be created.
const (
	kubelet          = "kubelet"
	ephemeralVolumes = "ephemeral_volume"
)

// concerns reports whether an event of the kubelet is about a volume.
func concerns(e *corev1.Event, volume string) bool {
	return volume != "" && strings.Contains(e.Message, fmt.Sprintf("%q", volume))
}

// unscheduled returns why a Pod cannot be scheduled, or an empty finding if nobody has tried.
func (w *waiting) unscheduled(ctx context.Context, f check.Finding, pod *corev1.Pod, mounts map[string]*corev1.PersistentVolumeClaim) check.Finding {
	scheduled := check.PodCondition(pod, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason == corev1.PodReasonSchedulingGated {
		return check.Finding{}
	}
	if claim.AwaitsAgent(scheduled.Message) {
		f.ForUsers = false
		return f.Failed(scheduled.Reason, scheduled.Message, "Find out why no node agent runs on these nodes: docs/configuration.md#nodes-without-an-agent")
	}
	for _, volume := range slices.Sorted(maps.Keys(mounts)) {
		pvc := mounts[volume]
		if pvc == nil {
			if e := w.event(ctx, pod.UID, reasons.FailedBinding, ephemeralVolumes); e != nil {
				return f.FailedBy(e.Reason, e.Message)
			}
			continue
		}
		if w.pinned[pvc.Spec.VolumeName] == "" {
			continue
		}
		message := fmt.Sprintf("cannot be scheduled, and its volume is pinned to node %s: %s", w.pinned[pvc.Spec.VolumeName], scheduled.Message)
		if e := w.event(ctx, pod.UID, listenersv1alpha1.ReasonPinnedToNode, names.EventReporter); e != nil {
			message = e.Message
		}
		f.ForUsers = false
		return f.FailedBy(listenersv1alpha1.ReasonPinnedToNode, message, "{claim}", pvc.Name)
	}
	return f.Failed(scheduled.Reason, scheduled.Message, "Do what the scheduler says.")
}
