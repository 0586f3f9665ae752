package doctor

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/names"
)

// permission is one that a ServiceAccount needs. It is in config/rbac.
type permission struct {
	account, verb, group, resource, subresource, name string
}

// neededPermissions are the permissions without which no volume works: of each rule in config/rbac that concerns all
// clusters, the one that is needed first.
func neededPermissions() []permission {
	listeners := listenersv1alpha1.GroupVersion.Group
	return []permission{
		{account: names.Operator, verb: "watch", group: listeners, resource: "listenerclasses"},
		{account: names.Operator, verb: "create", group: listeners, resource: "listeners"},
		{account: names.Operator, verb: "patch", group: listeners, resource: "listeners", subresource: "status"},
		{account: names.Operator, verb: "create", group: listeners, resource: "podlisteners"},
		{account: names.Operator, verb: "create", resource: "services"},
		{account: names.Operator, verb: "create", resource: "persistentvolumes"},
		{account: names.Operator, verb: "watch", resource: "persistentvolumeclaims"},
		{account: names.Operator, verb: "patch", resource: "pods"},
		{account: names.Operator, verb: "watch", resource: "nodes"},
		{account: names.Operator, verb: "watch", resource: "namespaces"},
		{account: names.NodeAgent, verb: "watch", group: listeners, resource: "podlisteners"},
	}
}

// sccPermission is the permission of node agents to run on OpenShift.
func sccPermission() permission {
	return permission{
		account: names.NodeAgent, verb: "use", group: names.KindSecurityContextConstraints.Group, resource: "securitycontextconstraints", name: names.NodeAgent,
	}
}

// permissions checks the permissions of operator and node agents.
func (d *doctor) permissions(ctx context.Context) {
	if d.namespace == "" {
		return
	}
	needed := neededPermissions()
	for _, f := range d.Findings {
		if f.Kind == names.KindSecurityContextConstraints.Kind {
			needed = append(needed, sccPermission())
		}
	}
	denied := map[string][]string{}
	for _, p := range needed {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   fmt.Sprintf("system:serviceaccount:%s:%s", d.namespace, p.account),
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + d.namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Name: p.name,
			},
		}}
		if d.Request("reviewing a permission", func() error { return d.client.Create(ctx, review) }) == check.Forbidden {
			d.Add(check.Finding{Kind: "ServiceAccount", Namespace: d.namespace, Name: p.account}.Unreadable())
			return
		}
		if !review.Status.Allowed {
			denied[p.account] = append(denied[p.account], p.String())
		}
	}
	for _, account := range []string{names.Operator, names.NodeAgent} {
		f := check.Finding{Kind: "ServiceAccount", Namespace: d.namespace, Name: account}
		if len(denied[account]) == 0 {
			d.Add(f.OK("has the permissions that it needs"))
			continue
		}
		d.Add(f.Failed("Forbidden", "may not "+strings.Join(denied[account], ", "), "Apply the roles and bindings of the operator's release again."))
	}
}

// String returns the permission as in "create services".
func (p permission) String() string {
	resource := schema.GroupResource{Group: p.group, Resource: p.resource}.String()
	if p.subresource != "" {
		resource = schema.GroupResource{Group: p.group, Resource: p.resource + "/" + p.subresource}.String()
	}
	return strings.TrimSpace(strings.Join([]string{p.verb, resource, p.name}, " "))
}
