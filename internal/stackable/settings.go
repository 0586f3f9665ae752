package stackable

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// externalStable is the class that differs between the presets.
const externalStable = "external-stable"

// presetClasses are the names of the classes of all presets (contract: preset classes).
var presetClasses = []string{"cluster-internal", "external-unstable", externalStable}

// Settings returns the settings of Stackable's listener operator, which may have been removed, as far as classes and
// Listeners show them; the others are empty. resolver is the DNS domain that this operator's resolver has, or empty.
func Settings(classes []listenersv1alpha1.ListenerClass, listeners []listenersv1alpha1.Listener, resolver string) operatorv1alpha1.ListenerOperatorSpec {
	listeners = slices.DeleteFunc(slices.Clone(listeners), func(l listenersv1alpha1.Listener) bool { return l.Status == nil })
	spec := operatorv1alpha1.ListenerOperatorSpec{Preset: earlierPreset(classes, listeners)}
	domain := earlierClusterDomain(listeners)
	if domain != (&operatorv1alpha1.ListenerOperator{}).ClusterDomain(resolver) {
		spec.ClusterDomain = domain
	}
	return spec
}

// earlierPreset returns the preset of the installation that has exposed the Listeners, or "" if it is unknown. Classes
// may have been deleted with that installation, because a Helm chart contained them; then Listeners name them.
func earlierPreset(classes []listenersv1alpha1.ListenerClass, listeners []listenersv1alpha1.Listener) operatorv1alpha1.Preset {
	existing := slices.ContainsFunc(classes, func(c listenersv1alpha1.ListenerClass) bool { return slices.Contains(presetClasses, c.Name) })
	used := slices.ContainsFunc(listeners, func(l listenersv1alpha1.Listener) bool { return slices.Contains(presetClasses, l.Class()) })
	pinning := slices.ContainsFunc(classes, func(c listenersv1alpha1.ListenerClass) bool {
		return c.Name == externalStable && c.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort
	})
	pinned := slices.ContainsFunc(listeners, func(l listenersv1alpha1.Listener) bool {
		return l.Class() == externalStable && len(l.Status.NodePorts) > 0
	})
	switch {
	case len(listeners) > 0 && !existing && !used:
		return operatorv1alpha1.PresetNone
	case pinning, !existing && pinned:
		return operatorv1alpha1.PresetStableNodes
	default:
		return ""
	}
}

// earlierClusterDomain returns the DNS domain of the cluster that all host names of Listeners end with, or "".
func earlierClusterDomain(listeners []listenersv1alpha1.Listener) string {
	domains := sets.New[string]()
	for i := range listeners {
		l := &listeners[i]
		for _, a := range l.Status.IngressAddresses {
			if domain, ok := strings.CutPrefix(a.Address, l.Name+"."+l.Namespace+".svc."); ok {
				domains.Insert(domain)
			}
		}
	}
	if len(domains) != 1 {
		return ""
	}
	domain, _ := domains.PopAny()
	return domain
}
