package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/names"
)

// overdue is how long a request for a certificate may wait until it is reported: longer than the Pod, whose address
// comes first.
const overdue = time.Minute

// certificates checks whether there are authorities, and what became of the requests of the kubelet for certificates.
// It reads no Secret. A cluster that does not serve the kind has no requests.
func (d *doctor) certificates(ctx context.Context) {
	f := check.Finding{Kind: "PodCertificateRequest"}
	var all certificatesv1.PodCertificateRequestList
	if !d.served || d.FollowAll(ctx, f, &all) != check.Present {
		return
	}
	issued, open := d.sorted(all.Items)
	var lastIssued time.Time
	for _, request := range issued {
		if at := decisionOf(request).LastTransitionTime.Time; at.After(lastIssued) {
			lastIssued = at
		}
	}
	if len(issued) > 0 {
		d.Add(f.OK("%d were granted lately", len(issued)))
	}
	if d.damagedAuthority(ctx, lastIssued) || d.stopped {
		return // that is why they wait
	}
	w := d.newWaiting()
	for _, namespace := range slices.Sorted(maps.Keys(open)) {
		w.openRequests(ctx, namespace, open[namespace])
	}
}

// sorted returns the requests of the signer for which a certificate was issued, and by namespace those that were denied
// or are overdue.
func (d *doctor) sorted(all []certificatesv1.PodCertificateRequest) (
	issued []*certificatesv1.PodCertificateRequest, open map[string][]*certificatesv1.PodCertificateRequest,
) {
	open = map[string][]*certificatesv1.PodCertificateRequest{}
	for i := range all {
		request := &all[i]
		decision := decisionOf(request)
		switch {
		case request.Spec.SignerName != names.Signer:
		case decision.Type == certificatesv1.PodCertificateRequestConditionTypeIssued:
			issued = append(issued, request)
		case decision.Type != "" || d.Now().Sub(request.CreationTimestamp.Time) > overdue:
			open[request.Namespace] = append(open[request.Namespace], request)
		}
	}
	return issued, open
}

// decisionOf returns the condition of a request that is decided, or an empty one.
func decisionOf(request *certificatesv1.PodCertificateRequest) metav1.Condition {
	if len(request.Status.Conditions) == 0 {
		return metav1.Condition{}
	}
	return request.Status.Conditions[0]
}

// damagedAuthority reports whether the operator cannot sign: it has said so, and issued nothing since.
func (d *doctor) damagedAuthority(ctx context.Context, lastIssued time.Time) bool {
	if d.config == nil {
		return false
	}
	damage := d.LastEvent(ctx, d.config, func(e *corev1.Event) bool { return e.Reason == operatorv1alpha1.ReasonCertificateAuthorityDamaged })
	if damage == nil || check.EventTime(damage).Before(lastIssued) {
		return false
	}
	f := check.Finding{Kind: "Secret", Namespace: d.namespace, Name: names.CertificateAuthoritySecret}
	d.Add(f.FailedBy(damage.Reason, damage.Message))
	return true
}

// openRequests reports the requests of a namespace that wait, and those that were denied, in a finding for each. It
// leaves out those of Pods that do not exist any more, or whose problem another finding has.
func (w *waiting) openRequests(ctx context.Context, namespace string, requests []*certificatesv1.PodCertificateRequest) {
	f := check.Finding{Kind: "PodCertificateRequest", Namespace: namespace, ForUsers: true}
	var pods corev1.PodList
	if w.FollowAll(ctx, check.Finding{Kind: "Pod", Namespace: namespace}, &pods, client.InNamespace(namespace)) != check.Present {
		return
	}
	byUID := map[types.UID]*corev1.Pod{}
	for i := range pods.Items {
		byUID[pods.Items[i].UID] = &pods.Items[i]
	}
	slices.SortFunc(requests, func(a, b *certificatesv1.PodCertificateRequest) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var waiting, denied []*certificatesv1.PodCertificateRequest
	for _, request := range requests {
		pod := byUID[request.Spec.PodUID]
		switch {
		case pod == nil || pod.DeletionTimestamp != nil || w.explained(pod, w.mounts(pod)):
		case decisionOf(request).Type == "":
			waiting = append(waiting, request)
		default:
			denied = append(denied, request)
		}
	}
	if len(waiting) > 0 {
		pod := byUID[waiting[0].Spec.PodUID]
		message := fmt.Sprintf("waiting for longer than a minute: %d, first that of Pod %s", len(waiting), pod.Name)
		if e := w.event(ctx, pod.UID, listenersv1alpha1.ReasonCertificateWaiting, names.EventReporter); e != nil {
			message += ": " + e.Message
		}
		w.Add(ofPod(f.FailedBy(listenersv1alpha1.ReasonCertificateWaiting, message), pod))
	}
	if len(denied) > 0 {
		pod, decision := byUID[denied[0].Spec.PodUID], decisionOf(denied[0])
		message := fmt.Sprintf("denied: %d, first that of Pod %s: %s", len(denied), pod.Name, decision.Message)
		w.Add(ofPod(f.Failed(decision.Reason, message, "Do what the message says, and then delete the Pod: the kubelet does not ask again for this one"), pod))
	}
}

// ofPod adds to the remedy of a finding where to read more about one of its Pods.
func ofPod(f check.Finding, pod *corev1.Pod) check.Finding {
	f.Name = pod.Name
	f.Remedy = more(f, "pod")
	f.Name = ""
	return f
}
