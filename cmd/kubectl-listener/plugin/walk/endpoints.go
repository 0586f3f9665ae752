package walk

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// endpoints follows the endpoints of a Service. pod, which should be among them, and class may be nil.
func (w *Walk) endpoints(
	ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass,
	service *corev1.Service, pod *corev1.Pod,
) {
	var endpoints discoveryv1.EndpointSliceList
	f := check.Finding{Kind: "Endpoints", Namespace: service.Namespace, Name: service.Name}
	if w.ReadAll(ctx, f, &endpoints, client.InNamespace(service.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}) == check.Forbidden {
		return
	}
	published, serving := countEndpoints(endpoints.Items)
	all, ready, known := len(published), serving, true
	if service.Spec.PublishNotReadyAddresses { // then every endpoint counts as ready
		ready, known = w.readyPods(ctx, service.Namespace, published)
		ready = min(ready, serving)
	}
	switch {
	case !known:
		w.Add(f.OK("%d published", all))
	case all == 0 && readyOf(listener).Reason == listenersv1alpha1.ReasonReserved:
		w.Add(f.Warning(listenersv1alpha1.ReasonReserved, "there are none, because no Pod mounts the Listener"))
	case all == 0:
		w.Add(w.noEndpoints(ctx, f, listener, pod).Aside())
	case serving == 0:
		w.Add(noneReady(f, all, notReadyRemedy(listener, class)))
	case pod != nil && !published.Has(string(pod.UID)) && pod.Status.PodIP != "":
		w.Add(w.noEndpoint(f, listener, pod))
	case service.Spec.PublishNotReadyAddresses:
		w.Add(publishedFinding(f, ready, all, onlyReadyRemedy(listener, class)))
	default:
		w.Add(f.OK("%d of %d ready", ready, all))
	}
}

// noneReady returns that clients are sent to no Pod. remedy says what sends them to Pods that are not ready.
func noneReady(f check.Finding, all int, remedy string) check.Finding {
	f = f.Failed("", fmt.Sprintf("none of %d Pods is ready", all), fmt.Sprintf(
		"Find out why the Pods are not ready: kubectl describe pods --namespace %s. If they should receive traffic "+
			"anyway, %s.", f.Namespace, remedy)).Symptom()
	if all == 1 {
		f = f.Aside()
	}
	return f
}

// publishedFinding returns the state of a Service that publishes all Pods. remedy lets it publish ready ones only.
func publishedFinding(f check.Finding, ready, all int, remedy string) check.Finding {
	text := fmt.Sprintf("%d of %d published, %d of %d Pods ready", all, all, ready, all)
	switch {
	case ready == all:
		return f.OK("%s", text)
	case all == 1:
		return f.Warning("", text).Aside()
	}
	return f.Warning("", text+", and clients are also sent to the others; unless they need that, "+remedy)
}

// readyPods returns how many endpoints are Pods that are ready, and whether the user may know that.
func (w *Walk) readyPods(ctx context.Context, namespace string, published sets.Set[string]) (ready int, known bool) {
	var pods corev1.PodList
	if w.ReadAll(ctx, check.Finding{Kind: "Pod", Namespace: namespace}, &pods,
		client.InNamespace(namespace)) == check.Forbidden {
		return 0, false
	}
	ready = len(published)
	for pod := range check.Each(pods.Items) {
		condition := check.PodCondition(pod, corev1.PodReady)
		if published.Has(string(pod.UID)) && condition.Type != "" && condition.Status != corev1.ConditionTrue {
			ready--
		}
	}
	return ready, true
}

// noEndpoints returns why a Service has no endpoints. pod is the Pod that should be one of them, or nil.
func (w *Walk) noEndpoints(ctx context.Context, f check.Finding, listener *listenersv1alpha1.Listener,
	pod *corev1.Pod) check.Finding {
	if pods, _ := w.PodsOfListener(ctx, listener); pod == nil && len(pods) > 0 {
		pod = &pods[0]
	}
	switch {
	case pod == nil:
		return f.Failed("", "no Pod belongs to the Service",
			reasons.Of(listenersv1alpha1.ReasonWaitingForPods).Remedy).Symptom()
	case pod.DeletionTimestamp != nil:
		return f.Warning("", fmt.Sprintf("no Pod belongs to the Service, because Pod %s is being deleted", pod.Name))
	case pod.Status.PodIP == "" || claim.PodFinished(pod):
		return f.Failed("", fmt.Sprintf("no Pod belongs to the Service, because Pod %s does not run", pod.Name),
			"See why: "+describe("pod", pod)).Symptom()
	}
	return w.noEndpoint(f, listener, pod).Symptom()
}

// noEndpoint returns that a Pod, which has an address, is no endpoint of a Service.
func (w *Walk) noEndpoint(f check.Finding, listener *listenersv1alpha1.Listener, pod *corev1.Pod) check.Finding {
	message := fmt.Sprintf("Pod %s is not among them", pod.Name)
	switch {
	case pod.DeletionTimestamp != nil:
		return f.Warning("", message+", because it is being deleted").Aside()
	case metav1.GetControllerOf(pod) == nil && pod.Labels[names.PodMountLabel(listener.UID)] == "":
		return f.Warning(listenersv1alpha1.ReasonPodIsCopy,
			message+", if it is a copy of the Pod that the claim belongs to").Aside()
	case len(listener.Spec.ExtraPodSelectorLabels) > 0:
		return f.FailedBy(listenersv1alpha1.ReasonNoMatchingPods, message).Aside()
	default:
		return f.Failed("", message, fmt.Sprintf("Kubernetes adds it within a moment. If it does not, compare the "+
			"selector of the Service with the labels of the Pod: kubectl get service %s --namespace %s --output wide",
			f.Name, f.Namespace)).Since(waitsSince(pod))
	}
}

// countEndpoints returns the Pods in endpoint slices, which may have a Pod twice, and how many of them are ready.
func countEndpoints(endpointSlices []discoveryv1.EndpointSlice) (all sets.Set[string], ready int) {
	all = sets.New[string]()
	for slice := range check.Each(endpointSlices) {
		for _, e := range slice.Endpoints {
			id := cmp.Or(string(ptr.Deref(e.TargetRef, corev1.ObjectReference{}).UID), e.Addresses[0])
			if !all.Has(id) && ptr.Deref(e.Conditions.Ready, true) {
				ready++
			}
			all.Insert(id)
		}
	}
	return all, ready
}

// onlyReadyRemedy returns what lets a Listener send clients to ready Pods only. class may be nil.
func onlyReadyRemedy(listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) string {
	switch {
	case claim.OwnsListener(listener):
		return "the Listener belongs to a claim that is meant for a single Pod; create a Listener that the Pods " +
			"share: docs/listeners.md#one-address-for-several-pods"
	case !listener.PublishesNotReady(), class != nil && exposure.OnlyReady(class, listener):
		return fmt.Sprintf("remove spec.publishNotReadyAddresses from objectOverrides of the Listener, or from "+
			"serviceOverrides of ListenerClass %s", listener.Class())
	default:
		return fmt.Sprintf("set publishNotReadyAddresses: false in the Listener; an administrator can set "+
			"notReadyAddressPolicy: PerPodOnly in ListenerClass %s, for all Listeners that Pods share",
			listener.Class())
	}
}

// notReadyRemedy returns what lets a Listener send clients to Pods that are not ready. class may be nil.
func notReadyRemedy(listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) string {
	if class != nil && exposure.OnlyReady(class, listener) {
		return fmt.Sprintf("override spec.publishNotReadyAddresses in objectOverrides of the Listener, because "+
			"ListenerClass %s has notReadyAddressPolicy: PerPodOnly", class.Name)
	}
	return "set spec.publishNotReadyAddresses of the Listener"
}
