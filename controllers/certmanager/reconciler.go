// Package certmanager lets cert-manager issue certificates for the addresses of Listeners, if kubelets request none, or
// of other authorities. It writes Certificates, and leaves keys, Secrets and renewals to cert-manager.
//
// The package must never write a Certificate with an address that no Listener of its namespace has, nor with an issuer
// that the class of one of these Listeners does not have, and never change a Certificate that others created.
package certmanager

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/requests"
)

const action = "RequestCertificate"

type Reconciler struct {
	Client    client.Client
	APIReader client.Reader
	Events    events.EventRecorder
	Applier   *apply.Applier
	Platform  *platform.APIs
	Clock     clock.PassiveClock

	certificates *platform.View
	warnings     message.Warnings[types.NamespacedName, string]
}

// Reconcile implements reconcile.Reconciler. The name of a request is the value of the label.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	members, err := r.members(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.bringTo(ctx, req, members); err != nil {
		return reconcile.Result{}, err
	}
	r.report(req.NamespacedName, members)
	return reconcile.Result{RequeueAfter: r.warnings.RepeatAfter(req.NamespacedName)}, nil
}

// bringTo brings the Certificate of a request to its desired state, or sets the problems of members.
func (r *Reconciler) bringTo(ctx context.Context, req reconcile.Request, members []member) error {
	key := types.NamespacedName{Namespace: req.Namespace, Name: req.Name + names.CertificateSuffix}
	if r.certificates.Version() == "" {
		return reject(members, "the cluster does not serve the Certificates of cert-manager: install cert-manager, "+
			"or remove the label")
	}
	if problems := validation.IsDNS1123Subdomain(key.Name); len(problems) > 0 {
		return reject(members, "there can be no Certificate named %s: %s; change the value of the label", key.Name,
			strings.Join(problems, ", "))
	}
	observed, err := lookup.Get(ctx, r.certificates, key, apply.Object(names.KindCertificate, key))
	switch {
	case err != nil:
		return err
	case observed != nil && !names.IsOwn(observed):
		return reject(members, "Certificate %s was not created by the listener operator: delete or rename it, or "+
			"change the value of the label", key.Name)
	case len(members) > 0:
		return r.apply(ctx, key, members, observed)
	case observed != nil:
		return r.Applier.Delete(ctx, observed)
	}
	return nil
}

// apply applies the Certificate of the members. While none of them has both an address and a class with settings, the
// Certificate stays as it is, unless it has an address that is not theirs any more: cert-manager would renew it with
// that. What the API server rejects is a problem of all.
func (r *Reconciler) apply(ctx context.Context, key types.NamespacedName, members []member,
	observed *unstructured.Unstructured) error {
	p := newPlan(members)
	switch {
	case p.settings == nil && outdated(observed, members):
		return r.Applier.Delete(ctx, observed)
	case p.settings == nil:
		return nil
	}
	owner, err := lookup.ConfigurationCRD(ctx, r.APIReader) // with which the Certificate ends
	if err != nil {
		return err
	}
	desired := apply.Object(names.KindCertificate, key)
	desired.SetLabels(map[string]string{names.LabelManagedBy: names.Operator})
	desired.SetOwnerReferences([]metav1.OwnerReference{owner})
	desired.Object["spec"] = p.spec(key.Name)
	_, err = r.Applier.Apply(ctx, desired, observed)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return reject(members, "the API server rejects Certificate %s: %v", key.Name, err)
	}
	return err
}

func reject(members []member, format string, args ...any) error {
	for i := range members {
		members[i].problem = fmt.Sprintf(format, args...)
	}
	return nil
}

func (r *Reconciler) members(ctx context.Context, key types.NamespacedName) ([]member, error) {
	var listeners listenersv1alpha1.ListenerList
	if err := r.Client.List(ctx, &listeners, client.InNamespace(key.Namespace),
		client.MatchingLabels{names.LabelCertificate: key.Name}); err != nil {
		return nil, fmt.Errorf("listing the Listeners for certificate %s: %w", key, err)
	}
	var members []member
	for i := range listeners.Items {
		m := member{listener: &listeners.Items[i]}
		if m.listener.DeletionTimestamp != nil {
			continue
		}
		class, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: m.listener.Class()},
			&listenersv1alpha1.ListenerClass{})
		if err != nil {
			return nil, err
		}
		if class != nil {
			m.settings = class.Spec.Certificates
		}
		members = append(members, m)
	}
	return members, nil
}

func (r *Reconciler) report(key types.NamespacedName, members []member) {
	if !slices.ContainsFunc(members, func(m member) bool { return m.problem != "" }) {
		r.warnings.Keep(key, nil)
	}
	for _, m := range members {
		if r.warnings.Due(key, m.listener.Name, m.problem, r.Clock.Now()) {
			r.Events.Eventf(m.listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonNotInCertificate, action,
				"Listener %s is in no certificate: %s", m.listener.Name, message.Printable(m.problem, message.MaxEvent))
		}
	}
}

const workers = 4

func (r *Reconciler) SetupWithManager(mgr manager.Manager) (err error) {
	r.certificates, err = r.Platform.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: apply.Object(names.KindCertificate, types.NamespacedName{}),
		Cache:   cache.ByObject{Transform: trim},
		Handler: handler.EnqueueRequestsFromMapFunc(certificateToRequest),
		Changed: func(ctx context.Context) []reconcile.Request {
			return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, listenerToRequest)
		},
	})
	if err != nil {
		return err
	}
	ofClass := index.Mapping[listenersv1alpha1.ListenerList](r.Client, listenerToRequest, index.ListenersByClass)
	b := requests.Controller(mgr, "cert-manager", workers).WatchesRawSource(r.certificates)
	requests.Watch(b, &listenersv1alpha1.Listener{}, listenerToRequest)
	requests.Watch(b, &listenersv1alpha1.ListenerClass{}, ofClass, predicate.GenerationChangedPredicate{})
	return b.Complete(requests.Requeue(mgr, "cert-manager", r))
}

// trim keeps of a Certificate what the operator writes, or the name alone if others created it. The operator deletes
// one of others that has its label and such a name.
func trim(o any) (any, error) {
	certificate, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil // a tombstone of what was trimmed before
	}
	kept := apply.Object(names.KindCertificate, client.ObjectKeyFromObject(certificate))
	kept.SetUID(certificate.GetUID())
	kept.SetResourceVersion(certificate.GetResourceVersion())
	if names.IsOwn(certificate) && strings.HasSuffix(certificate.GetName(), names.CertificateSuffix) {
		kept.SetLabels(certificate.GetLabels())
		kept.SetOwnerReferences(certificate.GetOwnerReferences())
		kept.Object["spec"] = certificate.Object["spec"]
	}
	return kept, nil
}

func certificateToRequest(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := strings.CutSuffix(o.GetName(), names.CertificateSuffix)
	if !ok {
		return nil
	}
	return index.RequestsFor(o.GetNamespace(), name)
}

func listenerToRequest(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := o.GetLabels()[names.LabelCertificate]
	if !ok {
		return nil
	}
	return index.RequestsFor(o.GetNamespace(), name)
}

// maxNames is the maximum number of names and addresses in a certificate, which every client receives whole.
const maxNames = 500

type member struct {
	listener *listenersv1alpha1.Listener
	// settings are in the Listener's class, or nil if the class does not exist or has none.
	settings *listenersv1alpha1.Certificates
	// problem says why it is not part of the Certificate, or is empty.
	problem string
}

type plan struct {
	// settings are in the class, or nil while no Listener has both an address and a class with settings.
	settings *listenersv1alpha1.Certificates
	// dnsNames and ips are the addresses of the Listeners, in order, each once, as values of a spec.
	dnsNames, ips []any
}

// newPlan plans a Certificate of the members, which it sorts: the oldest decides about the issuer, and about who has a
// problem. An address counts while a Listener publishes it, and no longer: it may belong to others then.
func newPlan(members []member) plan {
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(a.listener.CreationTimestamp.Compare(b.listener.CreationTimestamp.Time),
			cmp.Compare(a.listener.Name, b.listener.Name))
	})
	p := plan{dnsNames: []any{}, ips: []any{}}
	all := sets.New[string]()
	var first *listenersv1alpha1.Listener
	for i := range members {
		m := &members[i]
		addresses := addressesOf(m.listener)
		switch {
		case m.settings == nil:
			m.problem = fmt.Sprintf("ListenerClass %s does not exist, or has no certificates: use another class, or "+
				"remove the label", m.listener.Class())
		case len(addresses) == 0:
		case p.settings != nil && !reflect.DeepEqual(p.settings, m.settings):
			m.problem = fmt.Sprintf("Listener %s has the same label, but its ListenerClass %s has other certificates "+
				"than ListenerClass %s: use labels with different values",
				first.Name, first.Class(), m.listener.Class())
		case all.Union(sets.New(addresses...)).Len() > maxNames:
			m.problem = fmt.Sprintf("the certificate would have more than %d names and addresses: use labels with "+
				"different values", maxNames)
		default:
			if p.settings == nil {
				p.settings, first = m.settings, m.listener
			}
			all.Insert(addresses...)
		}
	}
	for _, a := range sets.List(all) {
		if address.IsIP(a) {
			p.ips = append(p.ips, a)
		} else {
			p.dnsNames = append(p.dnsNames, a)
		}
	}
	return p
}

// outdated reports whether a Certificate, which may be nil, has an address that none of the members publishes.
func outdated(observed *unstructured.Unstructured, members []member) bool {
	published := sets.New[string]()
	for _, m := range members {
		published.Insert(addressesOf(m.listener)...)
	}
	return observed != nil && !published.HasAll(certificate.SubjectNames(observed)...)
}

// addressesOf returns the published addresses of a Listener that a certificate can be for.
func addressesOf(listener *listenersv1alpha1.Listener) []string {
	var found []string
	for _, a := range ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).IngressAddresses {
		if address.IsIP(a.Address) || address.IsHostname(a.Address) {
			found = append(found, strings.ToLower(a.Address))
		}
	}
	return found
}

// spec returns the desired spec of the Certificate with this name, and this Secret. Programs in Java, too, can read its
// key, which is never used for another certificate. The Secret also has key and certificates in one file, which some
// programs require, and which is replaced at once.
func (p plan) spec(name string) map[string]any {
	usages := []any{"digital signature"}
	for _, u := range p.settings.Usages {
		usages = append(usages, string(u)+" auth")
	}
	return map[string]any{
		"secretName": name, "dnsNames": p.dnsNames, "ipAddresses": p.ips, "usages": usages,
		"issuerRef": map[string]any{"group": p.settings.IssuerRef.Group,
			"kind": p.settings.IssuerRef.Kind, "name": p.settings.IssuerRef.Name},
		"privateKey": map[string]any{"algorithm": "ECDSA", "size": int64(256), "encoding": "PKCS8",
			"rotationPolicy": "Always"},
		"additionalOutputFormats": []any{map[string]any{"type": "CombinedPEM"}},
	}
}
