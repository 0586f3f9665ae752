package main

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// installable are the kinds that every version of OLM installs on every cluster. OLM supports more, but the
// installation of some fails where their API is not served (ServiceMonitor, Console…), and some versions (PodMonitor)
// or catalogues (NetworkPolicy) reject others.
var installable = []string{
	"ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount",
	"Service", "Secret", "ConfigMap", "PodDisruptionBudget", "PriorityClass",
}

// bundleIsInstallable fails if the bundle contains an object that OLM does not install on every cluster, if an object
// has a namespace, or if the CRD of an owned resource is missing.
func bundleIsInstallable(_ context.Context, e *environment) error {
	var errs []error
	defined := map[string]bool{}
	for _, o := range e.bundle.Objects {
		e.logf("%s %s", o.GetKind(), o.GetName())
		errs = append(errs, checkObject(o))
		if o.GetKind() == "CustomResourceDefinition" {
			defined[o.GetName()] = true
		}
	}
	for _, owned := range e.bundle.CSV.Spec.CustomResourceDefinitions.Owned {
		if !defined[owned.Name] {
			errs = append(errs, failf("the bundle owns %s, but contains no CustomResourceDefinition %s", owned.Kind, owned.Name))
		}
	}
	return errors.Join(errs...)
}

// checkObject fails if an object must not be part of a bundle.
func checkObject(o *unstructured.Unstructured) error {
	if !slices.Contains(installable, o.GetKind()) {
		return failf("%s %s: OLM does not install this kind on every cluster; the operator has to install it", o.GetKind(), o.GetName())
	}
	if o.GetNamespace() != "" {
		return failf("%s %s has the namespace %s, but users choose the operator's namespace", o.GetKind(), o.GetName(), o.GetNamespace())
	}
	return nil
}
