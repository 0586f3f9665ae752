package plugin

import (
	"context"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// CompareListeners finds the Listeners that this operator does not accept.
func CompareListeners(classes []listenersv1alpha1.ListenerClass, listeners []listenersv1alpha1.Listener) {
	m := &migration{classes: classes, listeners: listeners}
	m.compareListeners(context.Background())
}

// HasRemedy reports whether there is a remedy for a reason.
func HasRemedy(reason string) bool { return remedies()[reason] != "" }

// Permission is a permission that doctor checks. Resource contains the subresource.
type Permission struct{ Account, Verb, Group, Resource, Name string }

// Permissions returns all permissions that doctor checks.
func Permissions() []Permission {
	var all []Permission
	for _, p := range append(neededPermissions(), sccPermission()) {
		resource := p.resource
		if p.subresource != "" {
			resource += "/" + p.subresource
		}
		all = append(all, Permission{p.account, p.verb, p.group, resource, p.name})
	}
	return all
}
