// Package certificates is the signer of certificates for the addresses of Pods (KEP-4317). The kubelet requests such a
// certificate for a volume of a Pod, with a private key that never leaves the node.
//
// It must never issue a certificate for anything but what PodListeners and Listeners of the same namespace publish, nor
// touch a request of another signer. It must never log a key, nor keep a request waiting that can be decided.
package certificates

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Signer decides PodCertificateRequests.
type Signer struct {
	// Client reads from the cache, and writes the status of requests.
	Client client.Client
	// APIReader reads Pods that are not in the cache yet.
	APIReader client.Reader
	// Events emits the events of Pods.
	Events events.EventRecorder
	// Platform reports whether the cluster serves PodCertificateRequests.
	Platform *platform.APIs
	// Authorities sign.
	Authorities *Authorities
	// Trust publishes the authorities before they sign.
	Trust *Trust
	// Clock is the time of the API server, which rejects certificates of another time.
	Clock clock.PassiveClock

	requests *platform.View
	waiting  waiting
}

// action is the action of all events.
const action = "Sign"

// slow is how long a request may wait until an event says for what. Addresses are usually known sooner.
const slow = 5 * time.Second

// Reconcile implements reconcile.Reconciler. Its requests are PodCertificateRequests.
func (s *Signer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	request, err := lookup.Get(ctx, s.requests, req.NamespacedName, &certificatesv1.PodCertificateRequest{})
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case request == nil || request.Spec.SignerName != names.Signer || decided(request):
		s.waiting.remove(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	o, denied := parse(&request.Spec)
	if denied != nil {
		return reconcile.Result{}, s.deny(ctx, request, denied)
	}
	pod, err := s.pod(ctx, request)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case pod == nil:
		return reconcile.Result{}, s.deny(ctx, request, &denial{listenersv1alpha1.ReasonPodDeleted,
			fmt.Sprintf("Pod %s with uid %s does not exist on node %s any more", request.Spec.PodName, request.Spec.PodUID, request.Spec.NodeName)})
	}
	found, err := s.addressesOf(ctx, pod, o)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case found.denied != nil:
		return reconcile.Result{}, s.deny(ctx, request, found.denied)
	case found.waiting != "":
		return s.wait(request, pod, found.waiting), nil
	}
	return s.issue(ctx, request, pod, o, found.names)
}

// pod returns the Pod of a request, or nil if it does not exist any more on the node, which the API server decides.
func (s *Signer) pod(ctx context.Context, request *certificatesv1.PodCertificateRequest) (*corev1.Pod, error) {
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}
	for _, reader := range []client.Reader{s.Client, s.APIReader} {
		pod, err := lookup.WithUID(ctx, reader, key, request.Spec.PodUID, &corev1.Pod{})
		if err != nil || pod != nil && pod.Spec.NodeName == string(request.Spec.NodeName) {
			return pod, err
		}
	}
	return nil, nil //nolint:nilnil // it does not exist
}

// wait reports what a request waits for, if that takes long. What it waits for is watched.
func (s *Signer) wait(request *certificatesv1.PodCertificateRequest, pod *corev1.Pod, what string) reconcile.Result {
	if left := requests.Left(request.CreationTimestamp, slow, s.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}
	}
	s.waiting.add(client.ObjectKeyFromObject(request))
	s.Events.Eventf(pod, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonCertificateWaiting, action, "%s",
		message.Printable("The certificate for the addresses of the Pod is not issued yet: "+what, message.MaxEvent))
	return reconcile.Result{RequeueAfter: message.Repeat}
}

// issue signs a certificate. While the namespace has no authority, it waits: Authorities enqueue the request again.
func (s *Signer) issue(
	ctx context.Context, request *certificatesv1.PodCertificateRequest, pod *corev1.Pod, o order, addresses certificate.Names,
) (reconcile.Result, error) {
	namespace := tenancy.Namespace()
	if err := s.Client.Get(ctx, types.NamespacedName{Name: request.Namespace}, namespace); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading namespace %s: %w", request.Namespace, err)
	}
	if err := s.Trust.publish(ctx, namespace); errors.Is(err, errNoAuthority) {
		return s.wait(request, pod, err.Error()), nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	authority, err := s.Authorities.signing(namespace.Name, namespace.UID)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := s.Clock.Now()
	issued, err := authority.Issue(certificate.Leaf{
		PublicKey: o.publicKey, Pod: client.ObjectKeyFromObject(pod), Names: addresses, Client: o.client, Now: now, Lifetime: o.lifetime,
	})
	switch {
	case errors.Is(err, certificate.ErrNoNames):
		return s.wait(request, pod, "none of the addresses of the Pod can be in a certificate"), nil
	case err != nil:
		return reconcile.Result{}, err
	}
	text := fmt.Sprintf("issued for %s", addresses)
	refresh := metav1.NewTime(issued.NotBefore.Add(certificate.RefreshAfter))
	status := certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{condition(certificatesv1.PodCertificateRequestConditionTypeIssued, "Issued", text, now)},
		CertificateChain: string(issued.Chain), NotBefore: new(metav1.NewTime(issued.NotBefore)), NotAfter: new(metav1.NewTime(issued.NotAfter)), BeginRefreshAt: &refresh,
	}
	if err := s.decide(ctx, request, status, "issued"); err != nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).V(1).Info("Issued a certificate", "pod", pod.Name, "addresses", addresses.String(), "notAfter", issued.NotAfter)
	return reconcile.Result{}, nil
}

// deny writes why a request can never be granted. The kubelet repeats that in an event of the Pod.
func (s *Signer) deny(ctx context.Context, request *certificatesv1.PodCertificateRequest, d *denial) error {
	text := message.Printable(d.message, message.MaxEvent)
	status := certificatesv1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{condition(certificatesv1.PodCertificateRequestConditionTypeDenied, d.reason, text, s.Clock.Now())},
	}
	return s.decide(ctx, request, status, "denied")
}

func condition(kind, reason, text string, now time.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: text, LastTransitionTime: metav1.NewTime(now)}
}

// decide writes the status of a request, which is then final. A request that no longer exists is no error. result is
// how the decision is counted.
func (s *Signer) decide(ctx context.Context, request *certificatesv1.PodCertificateRequest, status certificatesv1.PodCertificateRequestStatus, result string) error {
	changed := request.DeepCopy()
	changed.Status = status
	patch := client.MergeFromWithOptions(request, client.MergeFromWithOptimisticLock{})
	err := s.Client.Status().Patch(ctx, changed, patch, client.FieldOwner(names.FieldManagerOperator))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deciding PodCertificateRequest %s: %w", client.ObjectKeyFromObject(request), err)
	}
	decisions.WithLabelValues(result).Inc()
	return nil
}
