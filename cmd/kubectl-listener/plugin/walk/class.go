package walk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

func (w *Walk) class(ctx context.Context, listener *listenersv1alpha1.Listener) *listenersv1alpha1.ListenerClass {
	f, class := check.Finding{Kind: "ListenerClass", Name: listener.Class()}, &listenersv1alpha1.ListenerClass{}
	if f.Name == "" { // the operator says so
		return nil
	}
	switch w.Follow(ctx, f, class) {
	case check.Forbidden:
		return nil
	case check.Missing:
		w.Add(w.noClass(ctx, f.FailedBy(listenersv1alpha1.ReasonClassNotFound, "does not exist"), listener))
		return nil
	}
	var problem string
	w.Request("reading a namespace", func() (err error) {
		problem, err = tenancy.Check(ctx, w.Client, class, listener.Namespace)
		return err
	})
	switch {
	case problem != "" && listener.Status != nil && listener.Status.KeptClassName == f.Name:
		w.Add(f.Warning(listenersv1alpha1.ReasonNamespaceNotAllowed, problem+", and the Listener keeps it"))
	case problem != "":
		r := reasons.Of(listenersv1alpha1.ReasonNamespaceNotAllowed)
		w.Add(f.Failed(r.Name, problem, r.Remedy))
	default:
		w.Add(unlessDeleted(classFinding(f, class), class))
	}
	return class
}

// noClass completes the finding that the class of a Listener does not exist.
func (w *Walk) noClass(ctx context.Context, f check.Finding, listener *listenersv1alpha1.Listener) check.Finding {
	if claim.OwnsListener(listener) {
		return w.mistakenClass(ctx, f, types.NamespacedName{Namespace: listener.Namespace, Name: listener.Class()})
	}
	return w.DidYouMean(ctx, f, types.NamespacedName{Name: listener.Class()}, &listenersv1alpha1.ListenerClassList{})
}

// mistakenClass completes the finding that what a claim or an inline volume of a namespace names is no class.
func (w *Walk) mistakenClass(ctx context.Context, f check.Finding, key types.NamespacedName) check.Finding {
	shared := &listenersv1alpha1.Listener{}
	if w.Get(ctx, key, shared) == check.Present && !claim.OwnsListener(shared) {
		f.Message += fmt.Sprintf(", and Listener %s does", key)
		f.Remedy = fmt.Sprintf("To use this Listener, give the volume or the claim %s in place of %s.",
			names.AnnotationListenerName, names.AnnotationListenerClass)
		return f
	}
	return w.DidYouMean(ctx, f, types.NamespacedName{Name: key.Name}, &listenersv1alpha1.ListenerClassList{})
}

// mistakenListener completes the finding that what a claim or an inline volume names is no Listener.
func (w *Walk) mistakenListener(ctx context.Context, f check.Finding, key types.NamespacedName) check.Finding {
	if w.Get(ctx, types.NamespacedName{Name: key.Name}, &listenersv1alpha1.ListenerClass{}) == check.Present {
		f.Message += fmt.Sprintf(", and ListenerClass %s does", key.Name)
		f.Remedy = fmt.Sprintf("For a Listener of this class, give the volume or the claim %s in place of %s.",
			names.AnnotationListenerClass, names.AnnotationListenerName)
		return f
	}
	return w.DidYouMean(ctx, f, key, &listenersv1alpha1.ListenerList{})
}

func classFinding(f check.Finding, class *listenersv1alpha1.ListenerClass) check.Finding {
	if ignored := slices.Concat(exposure.IgnoredSettings(class), exposure.UnknownOverrides(class)); len(ignored) > 0 {
		return f.Warning(listenersv1alpha1.ReasonSettingsIgnored, strings.Join(ignored, "; "))
	}
	text := "serviceType " + string(class.Spec.ServiceType)
	if backend := backends.All().Of(class); !backend.PlainService {
		text += ", exposed by " + backend.Name
	}
	if pinning := class.Pinning(); pinning != nil {
		text += ", pinning " + string(pinning.Policy)
	}
	return f.OK("%s", text)
}
