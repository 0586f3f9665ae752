// Package certificates is the signer of certificates for the addresses of Pods (KEP-4317). The kubelet requests such a
// certificate for a volume of a Pod, with a private key that never leaves the node.
//
// It must never issue a certificate for anything but what PodListeners and Listeners of the same namespace publish, nor
// touch a request of another signer. It must never log a key, nor keep a request waiting that can be decided.
package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

type Signer struct {
	*Trust
	// Clock is the time of the API server, which rejects certificates of another time.
	Clock clock.PassiveClock

	requests *platform.View
	// waiting are the namespaced names of the requests that wait for longer than usual.
	waiting sync.Map
}

const action = "Sign"

// slow is how long a request may wait until an event says for what. Addresses are usually known sooner.
const slow = 5 * time.Second

// workers is the number of requests that are decided concurrently, and of namespaces whose trust is published.
const workers = 4

const byPod = "request.pod"

func (s *Signer) SetupWithManager(mgr manager.Manager) (err error) {
	all := func(ctx context.Context) []reconcile.Request { return s.undecided(ctx) }
	s.requests, err = s.Platform.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: &certificatesv1.PodCertificateRequest{},
		Cache: ctrlcache.ByObject{Field: fields.OneTermEqualSelector("spec.signerName", names.Signer), Transform: trim},
		Indexes: map[string]client.IndexerFunc{byPod: func(o client.Object) []string {
			if request := o.(*certificatesv1.PodCertificateRequest); !decided(request) {
				return []string{string(request.Spec.PodUID)}
			}
			return nil
		}},
		Handler: &handler.EnqueueRequestForObject{},
		Changed: all,
	})
	if err != nil {
		return err
	}
	return requests.Controller(mgr, "certificates", workers).
		WatchesRawSource(s.requests).
		WatchesRawSource(s.source(all)).
		Watches(&listenersv1alpha1.PodListeners{}, handler.EnqueueRequestsFromMapFunc(s.podListenersToRequests)).
		Complete(requests.Requeue(mgr, "certificates", s))
}

// trim keeps of a request that is decided no more than that.
func trim(o any) (any, error) {
	request, ok := o.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return o, nil // a tombstone of what was trimmed before
	}
	request.ManagedFields = nil
	cache.Bound(request)
	if decided(request) {
		request.Spec = certificatesv1.PodCertificateRequestSpec{}
		decision := metav1.Condition{Type: request.Status.Conditions[0].Type}
		request.Status = certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{decision}}
	}
	return request, nil
}

func (s *Signer) podListenersToRequests(ctx context.Context, o client.Object) []reconcile.Request {
	return s.undecided(ctx, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{byPod: string(listenersv1alpha1.PodUID(o.GetName()))})
}

// undecided returns requests that are not decided. While the kind is not served, there are none.
func (s *Signer) undecided(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var all certificatesv1.PodCertificateRequestList
	if s.requests.Version() == "" || s.requests.List(ctx, &all, options...) != nil {
		return nil // each is enqueued when it becomes known
	}
	var found []reconcile.Request
	for i := range all.Items {
		if !decided(&all.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return found
}

// Reconcile implements reconcile.Reconciler. Its requests are PodCertificateRequests.
func (s *Signer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	request, err := lookup.Get(ctx, s.requests, req.NamespacedName, &certificatesv1.PodCertificateRequest{})
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case request == nil || request.Spec.SignerName != names.Signer || decided(request):
		if _, waits := s.waiting.LoadAndDelete(req.NamespacedName); waits {
			waitingRequests.Dec()
		}
		return reconcile.Result{}, nil
	}
	o, err := parse(&request.Spec)
	var pod *corev1.Pod
	if err == nil {
		pod, err = s.pod(ctx, request)
	}
	if err == nil {
		err = s.issue(ctx, request, pod, o)
	}
	var v *verdict
	switch {
	case !errors.As(err, &v):
		return reconcile.Result{}, err
	case v.reason == "":
		return s.wait(request, pod, v.message), nil
	}
	text := message.Printable(v.message, message.MaxEvent) // the kubelet repeats it in an event of the Pod
	const decision = certificatesv1.PodCertificateRequestConditionTypeDenied
	return reconcile.Result{}, s.decide(ctx, request, decision, v.reason, text,
		certificatesv1.PodCertificateRequestStatus{})
}

// pod returns the Pod of a request. Whether it still exists on the node the API server decides.
func (s *Signer) pod(ctx context.Context, request *certificatesv1.PodCertificateRequest) (*corev1.Pod, error) {
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}
	for _, reader := range []client.Reader{s.Client, s.APIReader} {
		pod, err := lookup.WithUID(ctx, reader, key, request.Spec.PodUID, &corev1.Pod{})
		if err != nil || pod != nil && pod.Spec.NodeName == string(request.Spec.NodeName) {
			return pod, err
		}
	}
	return nil, deny(listenersv1alpha1.ReasonPodDeleted, "Pod %s with uid %s does not exist on node %s any more",
		request.Spec.PodName, request.Spec.PodUID, request.Spec.NodeName)
}

// wait reports what a request waits for, if that takes long. What it waits for is watched.
func (s *Signer) wait(request *certificatesv1.PodCertificateRequest, pod *corev1.Pod, what string) reconcile.Result {
	if left := requests.Left(request.CreationTimestamp, slow, s.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}
	}
	if _, waits := s.waiting.LoadOrStore(client.ObjectKeyFromObject(request), nil); !waits {
		waitingRequests.Inc()
	}
	s.Events.Eventf(pod, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonCertificateWaiting, action, "%s",
		message.Printable("The certificate for the addresses of the Pod is not issued yet: "+what, message.MaxEvent))
	return reconcile.Result{RequeueAfter: message.Repeat}
}

func (s *Signer) issue(ctx context.Context, request *certificatesv1.PodCertificateRequest, pod *corev1.Pod,
	o order) error {
	addresses, err := s.addressesOf(ctx, pod, o)
	if err != nil {
		return err
	}
	namespace := tenancy.Namespace()
	if err := s.Client.Get(ctx, types.NamespacedName{Name: request.Namespace}, namespace); err != nil {
		return fmt.Errorf("reading namespace %s: %w", request.Namespace, err)
	}
	if err := s.publish(ctx, namespace); err != nil {
		return err
	}
	authority, err := s.signing(namespace.Name, namespace.UID)
	if err != nil {
		return err
	}
	issued, err := authority.Issue(certificate.Leaf{
		PublicKey: o.publicKey, Pod: client.ObjectKeyFromObject(pod), Names: addresses, Client: o.client,
		Now: s.Clock.Now(), Lifetime: o.lifetime,
	})
	switch {
	case errors.Is(err, certificate.ErrNoNames):
		return wait("none of the addresses of the Pod can be in a certificate")
	case err != nil:
		return err
	}
	refresh := metav1.NewTime(issued.NotBefore.Add(certificate.RefreshAfter))
	const decision = certificatesv1.PodCertificateRequestConditionTypeIssued
	err = s.decide(ctx, request, decision, decision, fmt.Sprintf("issued for %s", addresses),
		certificatesv1.PodCertificateRequestStatus{
			CertificateChain: string(issued.Chain), NotBefore: new(metav1.NewTime(issued.NotBefore)),
			NotAfter: new(metav1.NewTime(issued.NotAfter)), BeginRefreshAt: &refresh,
		})
	if err == nil {
		log.FromContext(ctx).V(1).Info("Issued a certificate", "pod", pod.Name, "addresses", addresses.String(),
			"notAfter", issued.NotAfter)
	}
	return err
}

// decide writes a status with the decision, which is then final, and counts it. A request that was deleted is no error.
func (s *Signer) decide(
	ctx context.Context, request *certificatesv1.PodCertificateRequest, decision, reason, text string,
	status certificatesv1.PodCertificateRequestStatus,
) error {
	changed := request.DeepCopy()
	changed.Status = status
	changed.Status.Conditions = []metav1.Condition{
		{Type: decision, Status: metav1.ConditionTrue, Reason: reason, Message: text,
			LastTransitionTime: metav1.NewTime(s.Clock.Now())},
	}
	patch := client.MergeFromWithOptions(request, client.MergeFromWithOptimisticLock{})
	err := s.Client.Status().Patch(ctx, changed, patch, client.FieldOwner(names.FieldManagerOperator))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deciding PodCertificateRequest %s: %w", client.ObjectKeyFromObject(request), err)
	}
	decisions.WithLabelValues(strings.ToLower(decision)).Inc()
	return nil
}

// verdict is an error that says why a request is not granted. With a reason, it never can be, and the kubelet does not
// repeat it. Without, it waits for something.
type verdict struct{ reason, message string }

func (v *verdict) Error() string { return v.message }

func deny(reason, format string, args ...any) error {
	return &verdict{reason, fmt.Sprintf(format, args...)}
}

func wait(format string, args ...any) error { return deny("", format, args...) }

type order struct {
	publicKey crypto.PublicKey
	// volumes are the Pod's volumes whose addresses the certificate is for. Nil means all listener volumes.
	volumes  sets.Set[string]
	client   bool
	lifetime time.Duration
}

// maxAnnotation is a length in bytes: enough for the longest names of as many volumes as a certificate has names.
const maxAnnotation = certificate.MaxNames * (validation.DNS1123LabelMaxLength + 1)

const (
	usageServer = "server"
	usageClient = "client"
)

// parse reads a request. Of its certificate signing request only the public key counts, which the API server verified.
func parse(spec *certificatesv1.PodCertificateRequestSpec) (order, error) {
	o := order{lifetime: certificate.LeafLifetime}
	if maximum := spec.MaxExpirationSeconds; maximum != nil {
		o.lifetime = min(o.lifetime, time.Duration(*maximum)*time.Second)
	}
	request, err := x509.ParseCertificateRequest(spec.StubPKCS10Request)
	if err != nil || request.PublicKey == nil {
		return order{}, deny(certificatesv1.PodCertificateRequestConditionUnsupportedKeyType,
			"the type of the key is not known: set keyType to one of ECDSAP256, ECDSAP384, ECDSAP521, ED25519, "+
				"RSA3072 and RSA4096")
	}
	o.publicKey = request.PublicKey
	for key, value := range spec.UnverifiedUserAnnotations {
		var problem string
		switch {
		case value == "" && keys.Belongs(keys.Request, key): // as none
		case len(value) > maxAnnotation:
			problem = fmt.Sprintf("it is longer than %d bytes", maxAnnotation)
		case key == names.AnnotationCertificateVolumes:
			if o.volumes = sets.New(keys.List(value)...); len(o.volumes) == 0 {
				problem = "it names no volume; without it, the certificate is for the addresses of all listener volumes"
			}
		case key == names.AnnotationCertificateUsages:
			o.client, problem = parseUsages(value)
		default:
			problem = fmt.Sprintf("it is none of %s and %s", names.AnnotationCertificateVolumes,
				names.AnnotationCertificateUsages)
		}
		if problem != "" {
			return order{}, deny(certificatesv1.PodCertificateRequestConditionInvalidUserConfig,
				"userAnnotations: %s: %s", key, problem)
		}
	}
	return o, nil
}

func parseUsages(value string) (asClient bool, problem string) {
	usages := sets.New(keys.List(value)...)
	if !usages.Has(usageServer) || len(usages.Difference(sets.New(usageServer, usageClient))) > 0 {
		return false, fmt.Sprintf("%q is neither %q nor %q", value, usageServer, usageServer+","+usageClient)
	}
	return usages.Has(usageClient), ""
}

// decided reports whether a request was issued, denied or has failed, which is final.
func decided(request *certificatesv1.PodCertificateRequest) bool {
	return len(request.Status.Conditions) > 0
}
