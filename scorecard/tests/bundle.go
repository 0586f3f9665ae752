package main

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// installable are the kinds that every version of OLM installs on every cluster. OLM knows more, but some fail the
// installation where their API is not served (ServiceMonitor, Console…), others are refused by some versions
// (PodMonitor) or catalogues (NetworkPolicy).
var installable = []string{
	"ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount",
	"Service", "Secret", "ConfigMap", "PodDisruptionBudget", "PriorityClass",
}

// bundleIsInstallable fails if the bundle has an object that OLM does not install everywhere, if it chooses a
// namespace, or if one of its own kinds is missing from it.
func bundleIsInstallable(_ context.Context, e *environment) error {
	var errs []error
	defined := map[string]bool{}
	for _, o := range e.bundle.Objects {
		e.logf("%s %s", o.GetKind(), o.GetName())
		errs = append(errs, misplaced(o))
		if o.GetKind() == "CustomResourceDefinition" {
			defined[o.GetName()] = true
		}
	}
	for _, owned := range e.bundle.CSV.Spec.CustomResourceDefinitions.Owned {
		if !defined[owned.Name] {
			errs = append(errs, failf("the bundle owns the kind %s, but has no CustomResourceDefinition %s", owned.Kind, owned.Name))
		}
	}
	return errors.Join(errs...)
}

// misplaced fails for an object that does not belong into a bundle.
func misplaced(o *unstructured.Unstructured) error {
	if !slices.Contains(installable, o.GetKind()) {
		return failf("%s %s: OLM does not install this kind everywhere; the operator has to install it when it runs", o.GetKind(), o.GetName())
	}
	if o.GetNamespace() != "" {
		return failf("%s %s is bound to the namespace %s, but users choose where the operator goes", o.GetKind(), o.GetName(), o.GetNamespace())
	}
	return nil
}
