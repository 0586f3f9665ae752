package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

const account = "system:serviceaccount:ns:account"

// event returns a line of an audit log.
func event(verb, uri, ref, status string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"` + verb + `","requestURI":"` + uri +
		`","user":{"username":"` + account + `"},"objectRef":{` + ref + `},"responseStatus":{` + status + `}}` + "\n"
}

// Response statuses.
const (
	ok      = `"code":200`
	created = `"code":201`
)

func read(t *testing.T, log string, starts ...Period) *Requests {
	t.Helper()
	requests, err := parse(strings.NewReader(log), account, starts)
	check.Must(t, err)
	return requests
}

func TestPermissionIsUsedByTheRequestsThatRequireIt(t *testing.T) {
	pods := func(verbs ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}}
	}
	named := func(name string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{name}, Verbs: verbs}
	}
	for name, tc := range map[string]struct {
		log       string
		rules     []rbacv1.PolicyRule
		namespace string
		unused    []string
	}{
		"no request": {rules: pods("get"), unused: []string{"get pods"}},
		"a request":  {log: event("get", "/", `"resource":"pods","namespace":"a","name":"x"`, ok), rules: pods("get")},
		"a request of another user": {
			log: strings.ReplaceAll(event("get", "/", `"resource":"pods"`, ok), account, "other"), rules: pods("get"), unused: []string{"get pods"},
		},
		"a request that was denied": {
			log: event("get", "/", `"resource":"pods"`, `"code":403`), rules: pods("get"), unused: []string{"get pods"},
		},
		"another verb":  {log: event("get", "/", `"resource":"pods"`, ok), rules: pods("get", "patch"), unused: []string{"patch pods"}},
		"another group": {log: event("get", "/", `"resource":"pods","apiGroup":"x"`, ok), rules: pods("get"), unused: []string{"get pods"}},
		"a subresource": {log: event("get", "/", `"resource":"pods","subresource":"status"`, ok), rules: pods("get"), unused: []string{"get pods"}},
		"another namespace": {
			log: event("get", "/", `"resource":"pods","namespace":"b"`, ok), rules: pods("get"), namespace: "a", unused: []string{"get pods in namespace a"},
		},
		"another name": {
			log:   event("patch", "/", `"resource":"daemonsets","apiGroup":"apps","namespace":"a","name":"y"`, ok),
			rules: []rbacv1.PolicyRule{named("x", "patch")}, unused: []string{"patch daemonsets.apps named x"},
		},
		"a patch that creates": {
			log:   event("patch", "/", `"resource":"daemonsets","apiGroup":"apps","namespace":"a","name":"x"`, created),
			rules: []rbacv1.PolicyRule{named("x", "create", "patch")},
		},
		"a patch that changes": {
			log:   event("patch", "/", `"resource":"daemonsets","apiGroup":"apps","namespace":"a","name":"x"`, ok),
			rules: []rbacv1.PolicyRule{named("x", "create", "patch")}, unused: []string{"create daemonsets.apps named x"},
		},
		"a create request, whose name the authorizer does not see": {
			log:   event("create", "/", `"resource":"daemonsets","apiGroup":"apps","namespace":"a","name":"x"`, created),
			rules: []rbacv1.PolicyRule{named("x", "create")}, unused: []string{"create daemonsets.apps named x"},
		},
		"a watch in place of a list": {
			log: event("watch", "/api/v1/pods?sendInitialEvents=true&watch=true", `"resource":"pods"`, ok), rules: pods("list", "watch"),
		},
		"a watch after a list": {
			log: event("watch", "/api/v1/pods?resourceVersion=7&watch=true", `"resource":"pods"`, ok), rules: pods("list", "watch"), unused: []string{"list pods"},
		},
		"a permission that is wider than required": {
			log: event("get", "/", `"resource":"daemonsets","apiGroup":"apps","namespace":"a","name":"x"`, ok),
			rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}}, named("x", "get"),
			},
			unused: []string{"get daemonsets.apps"},
		},
		"a request for a URL": {
			log: strings.Replace(event("get", "/version", "", ok), `"objectRef":{},`, "", 1), rules: pods("get"), unused: []string{"get pods"},
		},
		"an incomplete event": {log: strings.TrimSuffix(event("get", "/", `"resource":"pods"`, ok), "\n"), rules: pods("get"), unused: []string{"get pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			permissions, err := Expand(tc.rules, tc.namespace)
			check.Must(t, err)
			var unused []string
			for _, permission := range read(t, tc.log).Unused(permissions) {
				unused = append(unused, permission.String())
			}
			check.Equal(t, "unused", tc.unused, unused)
		})
	}
}

func TestRulesThatCannotBeAuditedAreRefused(t *testing.T) {
	for name, rule := range map[string]rbacv1.PolicyRule{
		"all verbs":     {APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"*"}},
		"all resources": {APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"get"}},
		"any status":    {APIGroups: []string{""}, Resources: []string{"*/status"}, Verbs: []string{"get"}},
		"all groups":    {APIGroups: []string{"*"}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		"a URL, /x":     {NonResourceURLs: []string{"/x"}, Verbs: []string{"get"}},
		"a URL prefix":  {NonResourceURLs: []string{"/x/*"}, Verbs: []string{"get"}},
	} {
		if permissions, err := Expand([]rbacv1.PolicyRule{rule}, ""); err == nil {
			t.Errorf("%s: got %v, want an error", name, permissions)
		}
	}
}

func TestDeniedRequestsAreReported(t *testing.T) {
	denial := event("get", "/api/v1/secrets", `"resource":"secrets"`, `"code":403,"message":"no"`)
	late := event("create", "/api/v1/namespaces/a/services", `"resource":"services"`,
		`"code":403,"message":"late","details":{"causes":[{"reason":"NamespaceTerminating"}]}`)
	early := event("patch", "/api/v1/namespaces/a/services/b", `"resource":"services"`,
		`"code":403,"message":"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion x/v1 Kind Y"`)
	leaving := event("patch", "/apis/x/v1/ys/z", `"resource":"ys"`,
		`"code":403,"message":"ys.x \"z\" is forbidden: create not allowed while custom resource definition is terminating"`)
	gone := event("get", "/api/v1/pods", `"resource":"pods"`, `"code":404`)
	detailed := event("create", "/api/v1/namespaces/a/pods", `"resource":"pods"`,
		`"code":403,"message":"not this host","details":{"causes":[{"reason":"FieldValueForbidden"}]}`)
	const message = `"code":422,"message":"ValidatingAdmissionPolicy 'listener-operator.services' denied request: no"`
	confined := event("patch", "/api/v1/namespaces/a/services/c", `"resource":"services"`, message)
	tried := event("patch", "/api/v1/namespaces/a/services/d?dryRun=All", `"resource":"services"`, message)
	got := read(t, denial+late+early+leaving+gone+detailed+denial+confined+tried).Denied
	if diff := cmp.Diff([]string{
		"create /api/v1/namespaces/a/pods: not this host", "get /api/v1/secrets: no",
		"patch /api/v1/namespaces/a/services/c: ValidatingAdmissionPolicy 'listener-operator.services' denied request: no",
	}, got); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
}

func TestRequestsThatAStartingAPIServerDeniedDoNotCount(t *testing.T) {
	at := func(uri, received string) string {
		return strings.Replace(event("get", uri, `"resource":"pods"`, `"code":403`), `"verb"`, `"requestReceivedTimestamp":"`+received+`","verb"`, 1)
	}
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	log := at("/before", "2026-01-01T11:59:59.999999Z") + at("/meanwhile", "2026-01-01T12:00:10.000000Z") + at("/after", "2026-01-01T12:00:20.000001Z")
	requests := read(t, log, Period{From: start, To: start.Add(20 * time.Second)})
	check.Equal(t, "denied", []string{"get /after: ", "get /before: "}, requests.Denied)
	if unused := requests.Unused([]Permission{{Resource: "pods", Verb: "get"}}); len(unused) != 1 {
		t.Error("a request that was denied uses a permission")
	}
}

func TestInvalidLogIsAnError(t *testing.T) {
	if _, err := parse(strings.NewReader("not JSON\n"), account, nil); err == nil {
		t.Error("a log that is not JSON is accepted")
	}
	if _, err := Read(t.TempDir()+"/none", account); err == nil {
		t.Error("a log that does not exist is accepted")
	}
}
