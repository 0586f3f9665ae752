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

// accounts are the ServiceAccounts whose rights are checked.
var accounts = []string{names.Operator, names.NodeAgent}

// allStories tells whether no flag left out a story, so that every right should have been used.
func allStories() bool {
	return flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
}

// checkRights compares the rights of the operator and its agents with the requests that they have made while the
// stories were told: none was denied and, if all were told, no right was without use.
func checkRights(ctx context.Context) error {
	var errs []error
	for _, account := range accounts {
		requests, err := audit.Read(testbed.AuditLog(), "system:serviceaccount:"+operatorSpace+":"+account)
		if err != nil {
			return err
		}
		if len(requests.Denied) > 0 {
			errs = append(errs, fmt.Errorf("ServiceAccount %s was denied what it asked for; give it the right in config/rbac, or do not ask:\n  %s",
				account, strings.Join(requests.Denied, "\n  ")))
		}
		if !allStories() {
			continue
		}
		rights, err := rightsOf(ctx, account)
		if err != nil {
			return err
		}
		for _, right := range requests.Unused(rights) {
			if audit.Unseen(account)[right] != "" {
				continue
			}
			errs = append(errs, fmt.Errorf("ServiceAccount %s has a right that no story used; take it out of config/rbac, or tell a story: %s", account, right))
		}
	}
	return errors.Join(errs...)
}

// rightsOf returns what all Roles and ClusterRoles that a ServiceAccount is bound to allow it.
func rightsOf(ctx context.Context, account string) ([]audit.Right, error) {
	var (
		wide   rbacv1.ClusterRoleBindingList
		narrow rbacv1.RoleBindingList
		all    []audit.Right
	)
	if err := errors.Join(api.List(ctx, &wide), api.List(ctx, &narrow)); err != nil {
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
		rights, err := audit.Expand(rules, namespace)
		if err != nil {
			return fmt.Errorf("counting the rights of %s %s: %w", ref.Kind, ref.Name, err)
		}
		all = append(all, rights...)
		return nil
	}
	var errs []error
	for i := range wide.Items {
		errs = append(errs, add("", wide.Items[i].RoleRef, wide.Items[i].Subjects))
	}
	for i := range narrow.Items {
		errs = append(errs, add(narrow.Items[i].Namespace, narrow.Items[i].RoleRef, narrow.Items[i].Subjects))
	}
	if len(all) == 0 {
		errs = append(errs, fmt.Errorf("ServiceAccount %s is bound to no role", account))
	}
	return all, errors.Join(errs...)
}

func isBound(account string, subjects []rbacv1.Subject) bool {
	for _, s := range subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == operatorSpace && s.Name == account {
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
