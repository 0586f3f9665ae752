package audit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

const account = "system:serviceaccount:ns:account"

// event is a line of an audit log.
func event(verb, uri, ref, status string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"` + verb + `","requestURI":"` + uri +
		`","user":{"username":"` + account + `"},"objectRef":{` + ref + `},"responseStatus":{` + status + `}}` + "\n"
}

// Answers of the API server.
const (
	ok      = `"code":200`
	created = `"code":201`
)

func read(t *testing.T, log string) *Requests {
	t.Helper()
	requests, err := parse(strings.NewReader(log), account)
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

func TestARightIsUsedByTheRequestsThatNeedIt(t *testing.T) {
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
		"a request of somebody else": {
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
		"a creation, whose name the authorizer does not see": {
			log:   event("create", "/", `"resource":"daemonsets","apiGroup":"apps","namespace":"a","name":"x"`, created),
			rules: []rbacv1.PolicyRule{named("x", "create")}, unused: []string{"create daemonsets.apps named x"},
		},
		"a stream in place of a list": {
			log: event("watch", "/api/v1/pods?sendInitialEvents=true&watch=true", `"resource":"pods"`, ok), rules: pods("list", "watch"),
		},
		"a watch after a list": {
			log: event("watch", "/api/v1/pods?resourceVersion=7&watch=true", `"resource":"pods"`, ok), rules: pods("list", "watch"), unused: []string{"list pods"},
		},
		"a right that is wider than need be": {
			log: event("get", "/", `"resource":"daemonsets","apiGroup":"apps","namespace":"a","name":"x"`, ok),
			rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}}, named("x", "get"),
			},
			unused: []string{"get daemonsets.apps"},
		},
		"an event that is still being written": {log: strings.TrimSuffix(event("get", "/", `"resource":"pods"`, ok), "\n"), rules: pods("get"), unused: []string{"get pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			rights, err := Expand(tc.rules, tc.namespace)
			if err != nil {
				t.Fatal(err)
			}
			var unused []string
			for _, right := range read(t, tc.log).Unused(rights) {
				unused = append(unused, right.String())
			}
			if diff := cmp.Diff(tc.unused, unused); diff != "" {
				t.Errorf("unused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARightThatCannotBeCountedIsRefused(t *testing.T) {
	for name, rule := range map[string]rbacv1.PolicyRule{
		"all verbs":      {APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"*"}},
		"all resources":  {APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"get"}},
		"any status":     {APIGroups: []string{""}, Resources: []string{"*/status"}, Verbs: []string{"get"}},
		"all groups":     {APIGroups: []string{"*"}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		"a path, /x":     {NonResourceURLs: []string{"/x"}, Verbs: []string{"get"}},
		"a path of many": {NonResourceURLs: []string{"/x/*"}, Verbs: []string{"get"}},
	} {
		if rights, err := Expand([]rbacv1.PolicyRule{rule}, ""); err == nil {
			t.Errorf("%s is %v", name, rights)
		}
	}
}

func TestWhatIsDeniedIsTold(t *testing.T) {
	denial := event("get", "/api/v1/secrets", `"resource":"secrets"`, `"code":403,"message":"no"`)
	late := event("create", "/api/v1/namespaces/a/services", `"resource":"services"`,
		`"code":403,"message":"late","details":{"causes":[{"reason":"NamespaceTerminating"}]}`)
	early := event("patch", "/api/v1/namespaces/a/services/b", `"resource":"services"`,
		`"code":403,"message":"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion x/v1 Kind Y"`)
	leaving := event("patch", "/apis/x/v1/ys/z", `"resource":"ys"`,
		`"code":403,"message":"ys.x \"z\" is forbidden: create not allowed while custom resource definition is terminating"`)
	gone := event("get", "/api/v1/pods", `"resource":"pods"`, `"code":404`)
	got := read(t, denial+late+early+leaving+gone+denial).Denied
	if diff := cmp.Diff([]string{"get /api/v1/secrets: no"}, got); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
}

func TestALogThatIsNoneIsRefused(t *testing.T) {
	if _, err := parse(strings.NewReader("not JSON\n"), account); err == nil {
		t.Error("it was read")
	}
	if _, err := Read(t.TempDir()+"/none", account); err == nil {
		t.Error("a log that is missing was read")
	}
}
