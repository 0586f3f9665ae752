package walk

import (
	"context"
	"slices"
	"strings"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// class follows the class of a Listener, and returns it, or nil.
func (w *Walk) class(ctx context.Context, listener *listenersv1alpha1.Listener) *listenersv1alpha1.ListenerClass {
	f := check.Finding{Kind: "ListenerClass", Name: listener.Class()}
	if f.Name == "" {
		return nil // the operator says so
	}
	class := &listenersv1alpha1.ListenerClass{}
	if !w.Require(ctx, class, f.FailedBy(listenersv1alpha1.ReasonClassNotFound, "does not exist")) {
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
		w.Add(f.FailedBy(listenersv1alpha1.ReasonNamespaceNotAllowed, problem))
	default:
		w.Add(Described(f, class))
	}
	return class
}

// Described returns what a class does, or which of its settings have no effect.
func Described(f check.Finding, class *listenersv1alpha1.ListenerClass) check.Finding {
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
