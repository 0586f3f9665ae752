package confinement_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// rule is what an account may do: verbs on one resource of an API group, or on one path that is no resource.
func rule(group, resource, names string, verbs ...string) string {
	slices.Sort(verbs)
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s %s", strings.Join(verbs, ","), resource, group, names))
}

// everyone has what Kubernetes permits every authenticated account and every ServiceAccount, by the roles
// system:basic-user, system:discovery, system:public-info-viewer, system:service-account-issuer-discovery and
// system:cluster-trust-bundle-discovery.
var (
	everyonesResources = []string{
		rule("authentication.k8s.io", "selfsubjectreviews", "", "create"),
		rule("authorization.k8s.io", "selfsubjectaccessreviews", "", "create"),
		rule("authorization.k8s.io", "selfsubjectrulesreviews", "", "create"),
		rule("certificates.k8s.io", "clustertrustbundles", "", "get", "list", "watch"),
	}
	everyonesPaths = []string{
		"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi",
		"/openapi/*", "/openid/v1/jwks", "/openid/v1/jwks/", "/readyz", "/version", "/version/",
	}
	agentsResources = []string{
		rule("listeners.stackable.tech", "podlisteners", "", "list", "watch"),
		rule("security.openshift.io", "securitycontextconstraints", names.NodeAgent, "use"), // is no request, but checked by OpenShift's admission
	}
)

// TestNodeAgentTokenOnlyReadsPodListeners uses a token of the node agent, bound to its Pod. It compares what the API
// server says the account may do, and then sends a request for each verb of each resource and subresource that the API
// server serves, in the agent's namespace and outside, and for each path that is no resource.
func TestNodeAgentTokenOnlyReadsPodListeners(t *testing.T) {
	world := operator.NewWorld(t, apiserver.Config(t))
	crds.Install(t, world.Client, optional...)
	defer crds.Remove(t, world.Client, optional...)
	world.InstallRBAC()
	config := apiserver.WithToken(t, world.Config, world.Namespace, names.NodeAgent)
	agent, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	world.Expect(err).NotTo(HaveOccurred())
	world.Eventually(func() error { return agent.List(t.Context(), &listenersv1alpha1.PodListenersList{}) }).Should(Succeed())

	for _, in := range []string{world.Namespace, "default", "kube-system"} {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: in}}
		check.Must(t, agent.Create(t.Context(), review))
		resources, paths := rulesIn(review.Status)
		check.Equal(t, "permissions in namespace "+in, slices.Sorted(slices.Values(slices.Concat(everyonesResources, agentsResources))), resources)
		check.Equal(t, "paths that may be read", everyonesPaths, paths)
	}

	w := &walk{T: t, config: config, namespace: world.Namespace}
	w.http, err = rest.HTTPClientFor(config)
	check.Must(t, err)
	w.resources(apiserver.Config(t))
	w.paths(apiserver.Config(t))
	if len(w.allowed) == 0 || w.refused < 1000 {
		t.Fatalf("%d requests were allowed and %d refused; the walk is not complete", len(w.allowed), w.refused)
	}
	want := []string{
		"create selfsubjectaccessreviews", "create selfsubjectreviews", "create selfsubjectrulesreviews", "get clustertrustbundles",
		"list clustertrustbundles", "list podlisteners", "watch clustertrustbundles", "watch podlisteners",
	}
	check.Equal(t, "allowed requests for resources", want, slices.Compact(slices.Sorted(slices.Values(w.allowed))))
	t.Logf("%d requests were refused", w.refused)
}

// rulesIn returns the permissions in a review, sorted.
func rulesIn(status authorizationv1.SubjectRulesReviewStatus) (resources, paths []string) {
	for _, r := range status.ResourceRules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				resources = append(resources, rule(group, resource, strings.Join(r.ResourceNames, ","), r.Verbs...))
			}
		}
	}
	for _, r := range status.NonResourceRules {
		for _, path := range r.NonResourceURLs {
			if !slices.Equal(r.Verbs, []string{"get"}) {
				path = strings.Join(r.Verbs, ",") + " " + path
			}
			paths = append(paths, path)
		}
	}
	slices.Sort(resources)
	slices.Sort(paths)
	return slices.Compact(resources), slices.Compact(paths)
}

// walk sends requests with a token, and records which are allowed.
type walk struct {
	*testing.T
	config    *rest.Config
	http      *http.Client
	namespace string
	allowed   []string // verb and resource
	refused   int
}

// send returns the status code of a request.
func (w *walk) send(method, path string) int {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, strings.TrimSuffix(w.config.Host, "/")+path, bytes.NewReader([]byte("{}")))
	check.Must(w, err)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := w.http.Do(request)
	check.Must(w, err)
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	check.Must(w, err)
	return response.StatusCode
}

// resources tries all verbs on all resources.
func (w *walk) resources(admin *rest.Config) {
	w.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(admin)
	check.Must(w, err)
	_, lists, err := d.ServerGroupsAndResources()
	check.Must(w, err)
	for _, list := range lists {
		root := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			root = "/api/v1"
		}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; r.Namespaced {
				w.resource(r, root+"/namespaces/"+w.namespace, true)
				w.resource(r, root+"/namespaces/default", true)
				w.resource(r, root, false)
			} else {
				w.resource(r, root, true)
			}
		}
	}
}

// resource tries all verbs on one resource or subresource, of which single objects can be named.
func (w *walk) resource(r *metav1.APIResource, root string, named bool) {
	w.Helper()
	resource, subresource, isSub := strings.Cut(r.Name, "/")
	collection, object := root+"/"+resource, root+"/"+resource+"/"+names.NodeAgent
	const options = "?dryRun=All&timeoutSeconds=1"
	requests := []struct{ verb, method, path string }{
		{verb: "list", method: http.MethodGet, path: collection + "?limit=1"},
		{verb: "watch", method: http.MethodGet, path: collection + "?watch=1&timeoutSeconds=1"},
	}
	if named {
		requests = append(requests, []struct{ verb, method, path string }{
			{verb: "create", method: http.MethodPost, path: collection + options},
			{verb: "deletecollection", method: http.MethodDelete, path: collection + options},
			{verb: "get", method: http.MethodGet, path: object},
			{verb: "update", method: http.MethodPut, path: object + options},
			{verb: "patch", method: http.MethodPatch, path: object + options},
			{verb: "delete", method: http.MethodDelete, path: object + options},
		}...)
	}
	if isSub {
		requests = nil
		for verb, method := range map[string]string{
			"get": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
		} {
			if named {
				requests = append(requests, struct{ verb, method, path string }{verb, method, object + "/" + subresource + options})
			}
		}
	}
	for _, request := range requests {
		if code := w.send(request.method, request.path); code == http.StatusForbidden {
			w.refused++
		} else {
			w.allowed = append(w.allowed, request.verb+" "+r.Name)
		}
	}
}

// paths tries all paths that are no resources.
func (w *walk) paths(admin *rest.Config) {
	w.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(admin)
	check.Must(w, err)
	root := struct {
		Paths []string `json:"paths"`
	}{}
	raw, err := d.RESTClient().Get().AbsPath("/").DoRaw(w.Context())
	check.Must(w, err)
	check.Must(w, json.Unmarshal(raw, &root))
	all := append(root.Paths, "/", "/debug/pprof/", "/debug/flags/v", "/logs/", "/metrics/slis", "/configz", "/statusz", "/flagz", "/version", "/version/", "/evil")
	for _, path := range all {
		everyones := slices.ContainsFunc(everyonesPaths, func(allowed string) bool {
			prefix, any := strings.CutSuffix(allowed, "*")
			return path == allowed || any && strings.HasPrefix(path, prefix)
		})
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			code := w.send(method, path)
			if allowed := code != http.StatusForbidden; allowed != (everyones && method == http.MethodGet) {
				w.Errorf("%s %s returns %d", method, path, code)
			}
			w.refused++
		}
	}
}
