//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/audit"
)

// accounts are the ServiceAccounts whose permissions are checked.
var accounts = []string{names.Operator, names.NodeAgent}

// allScenariosSelected reports whether the flags select all tests, so that every permission should have been used.
// Those that make test-e2e runs on another cluster use none that the others do not.
func allScenariosSelected() bool { return flag.Lookup("test.run").Value.String() == "" }

var (
	// permissionsVaried is set by a test that installs another version, which has other permissions.
	permissionsVaried bool
	// apiServerStarts are the times in which the API server started again.
	apiServerStarts []audit.Period
)

// checkPermissions compares the permissions of the operator and its agents with their requests during the tests. It
// returns an error if a request was denied or, if all tests were selected, a permission was not used.
func checkPermissions(ctx context.Context) error {
	if permissionsVaried {
		return nil
	}
	var errs []error
	for _, account := range accounts {
		requests, err := audit.Read(testbed.AuditLog(), "system:serviceaccount:"+operatorNamespace+":"+account, apiServerStarts...)
		if err != nil {
			return err
		}
		if len(requests.Denied) > 0 {
			errs = append(errs, fmt.Errorf("requests of ServiceAccount %s were denied; add the permissions in config/rbac, or remove the requests:\n  %s",
				account, strings.Join(requests.Denied, "\n  ")))
		}
		if !allScenariosSelected() {
			continue
		}
		permissions, err := permissionsOf(ctx, account)
		if err != nil {
			return err
		}
		for _, permission := range requests.Unused(permissions) {
			listed := permission
			if listed.Name == operatorImage {
				listed.Name = "listener-operator:latest" // as in config/rbac
			}
			if audit.Unlogged(account)[listed] != "" {
				continue
			}
			errs = append(errs, fmt.Errorf("ServiceAccount %s has a permission that no test has used; remove it from config/rbac, or add a test: %s", account, permission))
		}
	}
	return errors.Join(errs...)
}

// permissionsOf returns the permissions of all Roles and ClusterRoles to which a ServiceAccount is bound.
func permissionsOf(ctx context.Context, account string) ([]audit.Permission, error) {
	var (
		clusterRoleBindings rbacv1.ClusterRoleBindingList
		roleBindings        rbacv1.RoleBindingList
		all                 []audit.Permission
	)
	if err := errors.Join(api.List(ctx, &clusterRoleBindings), api.List(ctx, &roleBindings)); err != nil {
		return nil, fmt.Errorf("listing bindings: %w", err)
	}
	add := func(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) error {
		if !isBound(account, subjects) {
			return nil
		}
		rules, err := rulesOf(ctx, namespace, ref)
		if err != nil {
			return err
		}
		permissions, err := audit.Expand(rules, namespace)
		if err != nil {
			return fmt.Errorf("expanding the rules of %s %s: %w", ref.Kind, ref.Name, err)
		}
		all = append(all, permissions...)
		return nil
	}
	var errs []error
	for i := range clusterRoleBindings.Items {
		b := &clusterRoleBindings.Items[i]
		errs = append(errs, add("", b.RoleRef, b.Subjects))
	}
	for i := range roleBindings.Items {
		b := &roleBindings.Items[i]
		errs = append(errs, add(b.Namespace, b.RoleRef, b.Subjects))
	}
	if len(all) == 0 {
		errs = append(errs, fmt.Errorf("ServiceAccount %s is not bound to any role", account))
	}
	return all, errors.Join(errs...)
}

func isBound(account string, subjects []rbacv1.Subject) bool {
	for _, s := range subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == operatorNamespace && s.Name == account {
			return true
		}
	}
	return false
}

func rulesOf(ctx context.Context, namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "ClusterRole" {
		role := &rbacv1.ClusterRole{}
		err := api.Get(ctx, client.ObjectKey{Name: ref.Name}, role)
		return role.Rules, err
	}
	role := &rbacv1.Role{}
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, role)
	return role.Rules, err
}
