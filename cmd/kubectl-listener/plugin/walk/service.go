package walk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

func (w *Walk) service(ctx context.Context, listener *listenersv1alpha1.Listener) *corev1.Service {
	service := &corev1.Service{}
	f := check.Finding{Kind: "Service", Namespace: listener.Namespace, Name: names.Service(listener.Name)}
	if !w.Require(ctx, service, f.LeftToOperator("", "does not exist").Symptom().Since(listener.CreationTimestamp)) {
		return nil
	}
	if !metav1.IsControlledBy(service, listener) {
		w.Add(f.FailedBy(listenersv1alpha1.ReasonForeignService, "belongs to another owner than the Listener"))
		return nil
	}
	kind := string(service.Spec.Type)
	if exposure.IsHeadless(service) {
		kind += ", headless"
	}
	w.Add(unlessDeleted(okUnless(f, listener, "%s, %s", kind, portsOf(service)), service))
	return service
}

// ServiceOf returns the Service of a Listener, or nil if it cannot be read.
func (w *Walk) ServiceOf(ctx context.Context, namespace, listener string) *corev1.Service {
	service := &corev1.Service{}
	key := types.NamespacedName{Namespace: namespace, Name: names.Service(listener)}
	if w.Get(ctx, key, service) != check.Present {
		return nil
	}
	return service
}

func portsOf(service *corev1.Service) string {
	var ports []string
	for _, p := range service.Spec.Ports {
		text := fmt.Sprintf("%s %d", p.Name, p.Port)
		if p.NodePort != 0 {
			text += fmt.Sprintf(":%d", p.NodePort)
		}
		ports = append(ports, text+"/"+string(p.Protocol))
	}
	slices.Sort(ports)
	return strings.Join(ports, ", ")
}

// exposures follows the objects that expose a Listener beside its Service, and those that its class names.
func (w *Walk) exposures(ctx context.Context, listener *listenersv1alpha1.Listener,
	class *listenersv1alpha1.ListenerClass) {
	backend := w.Backends.Of(class)
	if backend.Assumed != nil && slices.ContainsFunc(backend.Generates, func(k *exposure.Kind) bool {
		return readyOf(listener).Reason == reasons.WaitingFor(k.Kind)
	}) {
		w.assumed(ctx, class, backend)
	}
	for _, kind := range backend.KindsFor(class) {
		if kind != backend.Reads {
			w.generated(ctx, listener, kind)
		}
	}
	if backend.Reads == nil {
		return
	}
	for _, reference := range backend.References(class, nil) {
		f := check.Finding{Kind: backend.Reads.Kind, Namespace: reference.Namespace, Name: reference.Name}
		missing := f.Failed("", "does not exist, and class "+class.Name+" names it",
			"Create it, or name another one in the class.")
		object := lookup.Metadata(backend.Reads.GroupVersionKind)
		if w.Require(ctx, object, missing, lookup.MetadataList(backend.Reads.GroupVersionKind)) {
			w.Add(unlessDeleted(okUnless(f, listener, "exists"), object))
		}
	}
}

// assumed reports that an object that the class of a waiting Listener names is missing. Some controllers need none.
func (w *Walk) assumed(ctx context.Context, class *listenersv1alpha1.ListenerClass, backend *exposure.Backend) {
	kind, name := backend.Assumed(class)
	f, key := check.Finding{Kind: kind.Kind, Name: name}, types.NamespacedName{Name: name}
	if w.Get(ctx, key, lookup.Metadata(kind)) == check.Missing {
		f = f.Failed("", "does not exist, and class "+class.Name+" names it",
			"Create it, and see whether its controller runs, or name another one in the class.")
		w.Add(w.DidYouMean(ctx, f, key, lookup.MetadataList(kind)))
	}
}

func (w *Walk) generated(ctx context.Context, listener *listenersv1alpha1.Listener, kind *exposure.Kind) {
	f := check.Finding{Kind: kind.Kind, Namespace: listener.Namespace}
	served, _ := Served(w.Client, kind)
	list := lookup.MetadataList(served)
	if w.ReadAll(ctx, f, list, client.InNamespace(listener.Namespace)) == check.Forbidden {
		return
	}
	for o := range check.Each(list.Items) {
		if metav1.IsControlledBy(o, listener) {
			f.Name = o.Name
			w.Add(unlessDeleted(okUnless(f, listener, "exists"), o))
		}
	}
	if f.Name == "" {
		f = f.LeftToOperator("", "none belongs to Listener "+listener.Name)
		w.Add(f.Symptom().Since(listener.CreationTimestamp))
	}
}
