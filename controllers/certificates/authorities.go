package certificates

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// Authorities keeps the roots from which the certificate authorities of all namespaces are derived, in a Secret in the
// operator's namespace, and replaces them in time. The cache has only the metadata of this Secret.
type Authorities struct {
	Client client.Client
	// APIReader reads the Secret, and Pods that are not in the cache yet.
	APIReader client.Reader
	Events    events.EventRecorder
	Applier   *apply.Applier
	// Platform reports whether the cluster serves PodCertificateRequests, without which there are no authorities.
	Platform  *platform.APIs
	Namespace string // the operator's
	Clock     clock.PassiveClock

	current atomic.Value // a state
	// changed has an event for each change of the state, for each controller that depends on it.
	changed []chan event.GenericEvent
}

type state struct {
	roots    certificate.Roots
	rotation certificate.Rotation
}

// errNoAuthority means that the roots have not been read, or are damaged. Authorities enqueue what waits for them.
var errNoAuthority = wait("the operator has no certificate authority: see the events of ListenerOperator/cluster")

// maxSilence is when the Secret is read again, although nothing says that it has changed.
const maxSilence = time.Hour

// SetupWithManager registers the controller, which runs at the start, when the configuration changes, and in time.
func (a *Authorities) SetupWithManager(mgr manager.Manager) error {
	return requests.Controller(mgr, "certificate-authorities", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&operatorv1alpha1.ListenerOperator{}, requests.Only(),
									builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Secret{}, requests.Only()). // of this name only, see package cache
		Complete(requests.Requeue(mgr, "certificate-authorities", a))
}

// source is a source of these requests for each change of the authorities.
func (a *Authorities) source(all func(context.Context) []reconcile.Request) source.Source {
	changed := make(chan event.GenericEvent, 1)
	a.changed = append(a.changed, changed)
	return source.Channel(changed,
		handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
			return all(ctx)
		}))
}

// Reconcile implements reconcile.Reconciler. Its one request are the roots.
func (a *Authorities) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if !a.Platform.Serves(names.KindPodCertificateRequest) {
		return reconcile.Result{RequeueAfter: time.Minute}, nil // an upgrade of the cluster may change that
	}
	configuration, err := lookup.Get(ctx, a.Client, types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName},
		&operatorv1alpha1.ListenerOperator{})
	key := types.NamespacedName{Namespace: a.Namespace, Name: names.CertificateAuthoritySecret}
	secret, secretErr := lookup.Get(ctx, a.APIReader, key, &corev1.Secret{})
	if err := errors.Join(err, secretErr); err != nil {
		return reconcile.Result{}, err
	}
	rotation := rotationOf(configuration)
	roots, again, err := a.next(ctx, secret, rotation)
	if err != nil {
		if configuration != nil {
			a.Events.Eventf(configuration, nil, corev1.EventTypeWarning,
				operatorv1alpha1.ReasonCertificateAuthorityDamaged, action, "%s", err)
		}
		return reconcile.Result{}, err
	}
	a.set(state{roots, rotation})
	return reconcile.Result{RequeueAfter: min(again.Sub(a.Clock.Now()), maxSilence)}, nil
}

// next returns the roots that are in the Secret, or, if it was deleted or emptied, those that all clients trust.
func (a *Authorities) next(ctx context.Context, secret *corev1.Secret,
	rotation certificate.Rotation) (certificate.Roots, time.Time, error) {
	before, stored := a.state().roots, secret != nil && len(secret.Data) > 0
	if stored {
		var err error
		if before, err = certificate.Decode(secret.Data); err != nil {
			return nil, time.Time{},
				fmt.Errorf("the Secret %s/%s is damaged: %w; restore it from a backup, or delete it, upon which "+
					"clients have to trust new authorities", a.Namespace, names.CertificateAuthoritySecret, err)
		}
	}
	roots, again := before.Next(rotation, a.Clock.Now())
	if stored && reflect.DeepEqual(roots, before) {
		return roots, again, nil
	}
	if err := a.write(ctx, roots, secret); err != nil {
		return nil, time.Time{}, err
	}
	log.FromContext(ctx).Info("Wrote the roots of the certificate authorities", "roots", len(roots), "before",
		len(before))
	return roots, again, nil
}

// write applies the Secret. It has no owner: in a cluster that is restored from a backup, the owner would be
// another object, and the garbage collector would delete what all clients trust. With the observed version, no roots
// are lost that another process has written.
func (a *Authorities) write(ctx context.Context, roots certificate.Roots, observed *corev1.Secret) error {
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: names.CertificateAuthoritySecret,
			Labels: names.OperatorLabels()},
		Type: corev1.SecretTypeOpaque,
		Data: roots.Encode(),
	}
	if observed != nil {
		secret.ResourceVersion = observed.ResourceVersion
	}
	desired, err := apply.Unstructured(secret)
	if err != nil {
		return err
	}
	_, err = a.Applier.Apply(ctx, desired, observed)
	return err
}

func rotationOf(configuration *operatorv1alpha1.ListenerOperator) certificate.Rotation {
	rotation := certificate.Rotation{Overlap: certificate.DefaultOverlap}
	if configuration == nil {
		return rotation
	}
	spec := configuration.Spec.CertificateAuthorities
	rotation.NotBefore = ptr.Deref(spec.NotBefore, metav1.Time{}).Time
	if spec.Overlap.Duration > 0 {
		rotation.Overlap = spec.Overlap.Duration
	}
	return rotation
}

func (a *Authorities) state() state {
	current, _ := a.current.Load().(state)
	return current
}

// set makes the roots those that sign, and notifies the controllers that depend on them if they have changed.
func (a *Authorities) set(next state) {
	before := a.state()
	a.current.Store(next)
	authorityExpiry.Set(float64(next.roots[len(next.roots)-1].Since.Add(certificate.AuthorityLifetime).Unix()))
	if reflect.DeepEqual(before, next) {
		return
	}
	for _, c := range a.changed {
		select {
		case c <- event.GenericEvent{Object: &corev1.Secret{}}:
		default: // one is pending
		}
	}
}

func (a *Authorities) signing(namespace string, uid types.UID) (*certificate.Authority, error) {
	current := a.state()
	if len(current.roots) == 0 {
		return nil, errNoAuthority
	}
	return current.roots.Signing(current.rotation, a.Clock.Now()).Authority(namespace, uid)
}

// trusted returns the certificates of all authorities of a namespace that clients have to trust.
func (a *Authorities) trusted(namespace string, uid types.UID) (string, error) {
	roots := a.state().roots
	if len(roots) == 0 {
		return "", errNoAuthority
	}
	var bundle []byte
	for _, root := range roots {
		authority, err := root.Authority(namespace, uid)
		if err != nil {
			return "", err
		}
		bundle = append(bundle, authority.PEM()...)
	}
	return string(bundle), nil
}
