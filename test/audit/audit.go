// Package audit compares the rights of accounts with the requests that they have made, as an API server's audit log
// shows them: so a right that nobody needs, and a request that was denied, do not stay unnoticed.
//
// It must never be imported by anything but tests.
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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Right is the smallest thing that a rule of RBAC allows.
type Right struct {
	// Namespace is where a Role gives the right; "" for a ClusterRole.
	Namespace string
	Group     string
	// Resource is the resource or, after a slash, its subresource.
	Resource string
	// Name is that of the only object that the right is for; "" for all.
	Name string
	Verb string
}

// String tells a right to a reader.
func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Name != "" {
		s += " named " + r.Name
	}
	if r.Namespace != "" {
		s += " in namespace " + r.Namespace
	}
	return s
}

// Expand returns the rights that rules give in a namespace, or with "" in the whole cluster. The error is for rules
// whose rights cannot be counted: those with wildcards, and those for paths.
func Expand(rules []rbacv1.PolicyRule, namespace string) ([]Right, error) {
	var rights []Right
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			return nil, fmt.Errorf("rule %v is for paths, whose use nobody counts", rule)
		}
		if slices.ContainsFunc(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), func(s string) bool { return strings.Contains(s, "*") }) {
			return nil, fmt.Errorf("rule %v has a wildcard, which is always more than is needed", rule)
		}
		objects := rule.ResourceNames
		if len(objects) == 0 {
			objects = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range objects {
					for _, verb := range rule.Verbs {
						rights = append(rights, Right{Namespace: namespace, Group: group, Resource: resource, Name: name, Verb: verb})
					}
				}
			}
		}
	}
	return rights, nil
}

// covers tells whether the right allows all that another one does.
func (r Right) covers(other Right) bool {
	return r.Group == other.Group && r.Resource == other.Resource && r.Verb == other.Verb &&
		(r.Namespace == "" || r.Namespace == other.Namespace) && (r.Name == "" || r.Name == other.Name)
}

// Requests are those of one account.
type Requests struct {
	// used are the rights that it took to answer them, each for one object: a right covers them or not.
	used sets.Set[Right]
	// Denied describes those that the API server did not allow, sorted, each once.
	Denied []string
}

// Read reads the requests of a user, for example system:serviceaccount:kube-system:default, from an audit log.
func Read(log, user string) (*Requests, error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	requests, err := parse(file, user)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log %s: %w", log, err)
	}
	return requests, nil
}

func parse(log io.Reader, user string) (*Requests, error) {
	requests, denied := &Requests{used: sets.New[Right]()}, sets.New[string]()
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			requests.Denied = sets.List(denied)
			return requests, nil // what has no end yet is still being written
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
			denied.Insert(event.Verb + " " + event.RequestURI + ": " + event.ResponseStatus.Message)
			continue
		}
		requests.used.Insert(needed(&event)...)
	}
}

// isDenied tells whether a request was refused for want of a right, by the authorizer or by an admission plugin that
// asks it. What comes too late for a namespace or a kind that is being deleted is not, and neither is an owner whose
// kind is so new that the plugin OwnerReferencesPermissionEnforcement does not know it yet.
func isDenied(event *auditv1.Event) bool {
	status := event.ResponseStatus
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

// needed returns the rights that a request took.
func needed(event *auditv1.Event) []Right {
	ref := event.ObjectRef
	right := Right{Namespace: ref.Namespace, Group: ref.APIGroup, Resource: ref.Resource, Name: ref.Name, Verb: event.Verb}
	switch {
	case ref.Subresource != "":
		right.Resource += "/" + ref.Subresource
	case event.Verb == "create":
		right.Name = "" // it was in the object, which the authorizer does not see
	}
	rights := []Right{right}
	also := func(verb string) {
		right.Verb = verb
		rights = append(rights, right)
	}
	// What creates its object is authorized as a creation, too.
	created := event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusCreated
	if created && (event.Verb == "patch" || event.Verb == "update") {
		also("create")
	}
	if uri, err := url.Parse(event.RequestURI); err == nil && uri.Query().Get("sendInitialEvents") == "true" {
		also("list") // which an API server that does not stream is asked for instead
	}
	return rights
}

// Unused returns those of an account's rights that none of its requests took. A request takes the narrowest of the
// rights that allow it, so a right is also unused when narrower ones would do.
func (r *Requests) Unused(rights []Right) []Right {
	taken := sets.New[Right]()
	for request := range r.used {
		for _, right := range rights {
			if right.covers(request) && !slices.ContainsFunc(rights, func(other Right) bool {
				return other != right && other.covers(request) && right.covers(other)
			}) {
				taken.Insert(right)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(rights), taken.Has)
}
