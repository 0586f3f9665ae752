// Package audit compares the RBAC permissions of users with the requests in an API server's audit log. It finds
// permissions that are not used, and requests that were denied.
//
// It must be imported by tests only.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listener-operator/listener-operator/internal/names"
)

// Permission is a single permission of an RBAC rule: one verb on one resource.
type Permission struct {
	// Namespace is the Role's; "" for a ClusterRole.
	Namespace string
	Group     string
	// Resource is the resource, with a slash and the subresource if there is one.
	Resource string
	// Name is the name of the only object that the permission is for; "" for all objects.
	Name string
	Verb string
}

// String returns a description of the permission.
func (p Permission) String() string {
	s := p.Verb + " " + p.Resource
	if p.Group != "" {
		s += "." + p.Group
	}
	if p.Name != "" {
		s += " named " + p.Name
	}
	if p.Namespace != "" {
		s += " in namespace " + p.Namespace
	}
	return s
}

// Expand returns the permissions of rules in a namespace, or with "" in the whole cluster. It returns an error for
// rules that cannot be audited: those with wildcards, and those for non-resource URLs.
func Expand(rules []rbacv1.PolicyRule, namespace string) ([]Permission, error) {
	var permissions []Permission
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			return nil, fmt.Errorf("rule %v is for non-resource URLs, whose use cannot be audited", rule)
		}
		if slices.ContainsFunc(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), func(s string) bool { return strings.Contains(s, "*") }) {
			return nil, fmt.Errorf("rule %v has a wildcard, which permits more than is required", rule)
		}
		objects := rule.ResourceNames
		if len(objects) == 0 {
			objects = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range objects {
					for _, verb := range rule.Verbs {
						permissions = append(permissions, Permission{Namespace: namespace, Group: group, Resource: resource, Name: name, Verb: verb})
					}
				}
			}
		}
	}
	return permissions, nil
}

// covers reports whether the permission includes another one.
func (p Permission) covers(other Permission) bool {
	return p.Group == other.Group && p.Resource == other.Resource && p.Verb == other.Verb &&
		(p.Namespace == "" || p.Namespace == other.Namespace) && (p.Name == "" || p.Name == other.Name)
}

// Requests are the requests of one user.
type Requests struct {
	// used has the permissions that the requests required, each for a single object.
	used sets.Set[Permission]
	// Denied describes the requests that were denied, sorted and without duplicates.
	Denied []string
}

// Period is the time from From to To.
type Period struct{ From, To time.Time }

// Read reads the requests of a user, for example system:serviceaccount:kube-system:default, from an audit log. While
// the API server starts, until it is ready, it denies requests for which the user has permission. So those that it
// denied in one of the periods do not count.
func Read(log, user string, starts ...Period) (*Requests, error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	requests, err := parse(file, user, starts)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log %s: %w", log, err)
	}
	return requests, nil
}

func parse(log io.Reader, user string, starts []Period) (*Requests, error) {
	requests, denied := &Requests{used: sets.New[Permission]()}, sets.New[string]()
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			requests.Denied = sets.List(denied)
			return requests, nil // a line without an end is still being written
		}
		if err != nil {
			return nil, err
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("parsing an event: %w", err)
		}
		if event.User.Username != user || event.ObjectRef == nil {
			continue
		}
		if isDenied(&event) {
			received := event.RequestReceivedTimestamp.Time
			if slices.ContainsFunc(starts, func(p Period) bool { return !received.Before(p.From) && !received.After(p.To) }) {
				continue
			}
			denied.Insert(event.Verb + " " + event.RequestURI + ": " + event.ResponseStatus.Message)
			continue
		}
		requests.used.Insert(required(&event)...)
	}
}

// isDenied reports whether a request was denied for lack of a permission, by the authorizer or by an admission plugin
// that calls it, or by a policy that confines the operator, except for dry runs, which tests make. Requests that are
// forbidden because the namespace or the CRD is being deleted are not denied, and neither are those with an owner whose
// CRD the plugin OwnerReferencesPermissionEnforcement does not know yet.
func isDenied(event *auditv1.Event) bool {
	status := event.ResponseStatus
	if status != nil && strings.Contains(status.Message, "ValidatingAdmissionPolicy '"+names.Operator+".") {
		return !strings.Contains(event.RequestURI, "dryRun=All")
	}
	if status == nil || status.Code != http.StatusForbidden || strings.Contains(status.Message, "cannot find RESTMapping") ||
		strings.Contains(status.Message, "not allowed while custom resource definition is terminating") {
		return false
	}
	if status.Details == nil {
		return true
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == corev1.NamespaceTerminatingCause {
			return false
		}
	}
	return true
}

// required returns the permissions that a request required.
func required(event *auditv1.Event) []Permission {
	ref := event.ObjectRef
	permission := Permission{Namespace: ref.Namespace, Group: ref.APIGroup, Resource: ref.Resource, Name: ref.Name, Verb: event.Verb}
	switch {
	case ref.Subresource != "":
		permission.Resource += "/" + ref.Subresource
	case event.Verb == "create":
		permission.Name = "" // the authorizer does not see the name, which is in the object
	}
	permissions := []Permission{permission}
	also := func(verb string) {
		permission.Verb = verb
		permissions = append(permissions, permission)
	}
	// A patch or an update that creates its object requires permission to create, too.
	created := event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusCreated
	if created && (event.Verb == "patch" || event.Verb == "update") {
		also("create")
	}
	if uri, err := url.Parse(event.RequestURI); err == nil && uri.Query().Get("sendInitialEvents") == "true" {
		also("list") // the fallback for API servers that do not support it
	}
	return permissions
}

// Unused returns the permissions that no request used. A request uses the narrowest permission that covers it, so a
// permission is also unused if narrower ones suffice.
func (r *Requests) Unused(permissions []Permission) []Permission {
	used := sets.New[Permission]()
	for request := range r.used {
		for _, permission := range permissions {
			if permission.covers(request) && !slices.ContainsFunc(permissions, func(other Permission) bool {
				return other != permission && other.covers(request) && permission.covers(other)
			}) {
				used.Insert(permission)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(permissions), used.Has)
}
