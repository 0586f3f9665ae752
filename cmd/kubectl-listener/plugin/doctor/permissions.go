package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/names"
)

// listeners is the API group of Listeners.
var listeners = listenersv1alpha1.GroupVersion.Group

// operatorPermissions and agentPermissions are the permissions without which no volume works: of each rule in config/rbac
// that concerns all clusters, the one that is needed first.
var (
	operatorPermissions = []authorizationv1.ResourceAttributes{
		{Verb: "watch", Group: listeners, Resource: "listenerclasses"},
		{Verb: "create", Group: listeners, Resource: "listeners"},
		{Verb: "patch", Group: listeners, Resource: "listeners", Subresource: "status"},
		{Verb: "create", Group: listeners, Resource: "podlisteners"},
		{Verb: "create", Resource: "services"},
		{Verb: "create", Resource: "persistentvolumes"},
		{Verb: "watch", Resource: "persistentvolumeclaims"},
		{Verb: "patch", Resource: "pods"},
		{Verb: "watch", Resource: "nodes"},
		{Verb: "watch", Resource: "namespaces"},
	}
	agentPermissions = []authorizationv1.ResourceAttributes{{Verb: "watch", Group: listeners, Resource: "podlisteners"}}

	// sccPermission is the permission of node agents to run on OpenShift.
	sccPermission = authorizationv1.ResourceAttributes{
		Verb: "use", Group: names.KindSecurityContextConstraints.Group, Resource: "securitycontextconstraints", Name: names.NodeAgent,
	}
)

// permissions checks the permissions of operator and node agents.
func (d *doctor) permissions(ctx context.Context) {
	if d.namespace == "" {
		return
	}
	ofAgents := agentPermissions
	if slices.ContainsFunc(d.Findings, func(f check.Finding) bool { return f.Kind == names.KindSecurityContextConstraints.Kind }) {
		ofAgents = append(ofAgents, sccPermission)
	}
	d.account(ctx, names.Operator, operatorPermissions)
	d.account(ctx, names.NodeAgent, ofAgents)
}

// account checks the permissions that a ServiceAccount needs.
func (d *doctor) account(ctx context.Context, name string, needed []authorizationv1.ResourceAttributes) {
	f := check.Finding{Kind: "ServiceAccount", Namespace: d.namespace, Name: name}
	var denied []string
	for _, attributes := range needed {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               fmt.Sprintf("system:serviceaccount:%s:%s", d.namespace, name),
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + d.namespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		if d.Request("reviewing a permission", func() error { return d.Client.Create(ctx, review) }) == check.Forbidden {
			d.Add(f.Unreadable())
			return
		}
		if !review.Status.Allowed {
			resource, _ := strings.CutSuffix(attributes.Resource+"/"+attributes.Subresource, "/")
			text := attributes.Verb + " " + schema.GroupResource{Group: attributes.Group, Resource: resource}.String() + " " + attributes.Name
			denied = append(denied, strings.TrimSpace(text))
		}
	}
	if len(denied) > 0 {
		d.Add(f.Failed("Forbidden", "may not "+strings.Join(denied, ", "), "Apply the roles and bindings of the operator's release again."))
		return
	}
	d.Add(f.OK("has the permissions that it needs"))
}
