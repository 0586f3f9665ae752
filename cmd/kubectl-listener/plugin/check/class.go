package check

import (
	"slices"
	"strings"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// Described returns what a class does, or which of its settings have no effect.
func (f Finding) Described(class *listenersv1alpha1.ListenerClass) Finding {
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
