//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	routev1 "github.com/openshift/api/route/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	platform "github.com/listener-operator/listener-operator/internal/testutil/openshift"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// constraintsOf is the annotation of a Pod with the constraints that admitted it.
const constraintsOf = "openshift.io/scc"

// requireOpenShift skips a test unless the cluster runs OpenShift's API server.
func requireOpenShift(t *testing.T) {
	t.Helper()
	if microShift == "" {
		t.Skip("needs OpenShift's API server: make test-openshift MICROSHIFT=<checkout of github.com/openshift/microshift>")
	}
}

// awaitProject waits until Pods can be created in the namespace: until it has a range of users, and a Pod security
// standard.
func (s *scenario) awaitProject() {
	s.Helper()
	mustAwait(s, &corev1.Namespace{}, client.ObjectKey{Name: s.namespace}, func(n *corev1.Namespace) bool {
		return n.Annotations["openshift.io/sa.scc.uid-range"] != "" && n.Labels[podSecurity] != ""
	})
}

// The operator runs as any Pod, its agents under their own constraints, and Pods with claims and inline volumes in an
// ordinary project, whose Pod security standard stays the restricted one.
func TestPodsRunUnderTheirConstraints(t *testing.T) {
	requireOpenShift(t)
	t.Parallel()
	s := newScenario(t)
	for component, want := range map[string]string{"operator": "restricted-v2", "node-agent": names.NodeAgent} {
		pods, err := podsOf(s.ctx, component)
		s.must(err)
		for i := range pods {
			if got := pods[i].Annotations[constraintsOf]; got != want {
				t.Errorf("Pod %s runs under the constraints %q, want %q", pods[i].Name, got, want)
			}
		}
	}
	class := s.createClass(unpinned())
	s.create(statefulSet("web", 2, byClass(class.Name)))
	s.create(podWith("inline", objects.InlineVolume("listener", byClass(class.Name))))
	for _, name := range []string{"web-0", "web-1", "inline"} {
		p, _ := s.awaitReachable(name)
		if got := p.Annotations[constraintsOf]; got != "restricted-v2" && got != "restricted-v3" {
			t.Errorf("Pod %s runs under the constraints %q", p.Name, got)
		}
	}
	namespace := mustGet(s, &corev1.Namespace{}, client.ObjectKey{Name: s.namespace})
	if got := namespace.Labels[podSecurity]; got != "restricted" {
		t.Errorf("the project has the Pod security standard %q", got)
	}
}

// OpenShift labels a namespace by what its ServiceAccounts may use, so that the agents can run in a namespace without
// labels.
func TestThePodSecurityStandardFollowsTheAgentsConstraints(t *testing.T) {
	requireOpenShift(t)
	t.Parallel()
	s := newScenario(t)
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "agents"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: names.NodeAgent},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "default"}},
	})
	mustAwait(s, &corev1.Namespace{}, client.ObjectKey{Name: s.namespace}, func(n *corev1.Namespace) bool {
		return n.Labels[podSecurity] == "privileged"
	})
}

// Constraints that an administrator changes or deletes are restored.
func TestConstraintsAreRepaired(t *testing.T) {
	requireOpenShift(t)
	s := newScenario(t)
	constraints := mustGet(s, optionalObject(names.KindSecurityContextConstraints, "", names.NodeAgent), client.ObjectKey{Name: names.NodeAgent})
	s.patch(constraints, func() { _ = unstructured.SetNestedField(constraints.Object, true, "allowHostNetwork") })
	changed := time.Now()
	s.eventually(func(ctx context.Context) error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(constraints), constraints); err != nil {
			return err
		}
		if allowed, _, _ := unstructured.NestedBool(constraints.Object, "allowHostNetwork"); allowed {
			return fmt.Errorf("they allow the host's network")
		}
		return nil
	})
	t.Logf("repaired after %s", time.Since(changed).Round(time.Millisecond))
	s.remove(constraints.DeepCopy())
	removed, uid := time.Now(), constraints.GetUID()
	s.eventually(func(ctx context.Context) error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(constraints), constraints); err != nil {
			return err
		}
		if constraints.GetUID() == uid {
			return fmt.Errorf("they are not deleted")
		}
		return nil
	})
	t.Logf("created again after %s", time.Since(removed).Round(time.Millisecond))
}

// Agents may not use their constraints. The operator is degraded, the doctor names the missing permission, and the
// agents run again when it is granted.
func TestAMissingBindingIsNamed(t *testing.T) {
	requireOpenShift(t)
	s := newScenario(t)
	bin := t.TempDir()
	s.must(tools.BuildLocal(s.ctx, "cmd/kubectl-listener", bin, "."))
	binding := mustGet(s, &rbacv1.ClusterRoleBinding{}, client.ObjectKey{Name: names.NodeAgent})
	grant := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}, RoleRef: binding.RoleRef, Subjects: binding.Subjects,
	}
	s.remove(binding)
	t.Cleanup(func() {
		if err := client.IgnoreAlreadyExists(api.Create(context.Background(), grant)); err != nil {
			t.Errorf("restoring the binding: %v", err)
		}
	})
	pods, err := podsOf(s.ctx, "node-agent")
	s.must(err)
	s.remove(&pods[0])
	s.awaitDegraded(operatorv1alpha1.ReasonAgentsNotCreated)
	cmd := exec.CommandContext(s.timeoutContext(), bin+"/kubectl-listener", "doctor", "--kubeconfig", testbed.Kubeconfig())
	out, err := cmd.CombinedOutput()
	const words = "use securitycontextconstraints.security.openshift.io " + names.NodeAgent
	if err == nil || !strings.Contains(string(out), words) {
		t.Errorf("kubectl listener doctor: error is %v, want %q:\n%s", err, words, out)
	}
	s.create(grant.DeepCopy())
	s.awaitConfig(isAvailableOnAllNodes)
}

// OpenShift chooses the host, then the class does, then OpenShift again.
func TestARouteKeepsItsHostUntilTheClassChanges(t *testing.T) {
	requireOpenShift(t)
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	chosen := routed(listenersv1alpha1.RouteExposure{Termination: listenersv1alpha1.RouteTerminationEdge, Ports: []string{"http"}})
	own := routed(listenersv1alpha1.RouteExposure{
		Termination: listenersv1alpha1.RouteTerminationEdge, HostTemplate: "own-{hash}." + appsDomain, Ports: []string{"http"},
	})
	class := s.createClass(chosen)
	s.create(pod("web", byClass(class.Name)))
	s.awaitReady("web")
	generated := "web-listener-http-" + s.namespace + "." + appsDomain
	for i, host := range []string{generated, "own-" + hostHash(s.namespace+"/web-listener/http") + "." + appsDomain, generated} {
		if i > 0 {
			s.patch(class, func() { class.Spec = []listenersv1alpha1.ListenerClassSpec{chosen, own, chosen}[i] })
		}
		s.awaitHosts("web-listener", host)
		s.awaitAnswerAt(openshift.apps, "https://"+host+"/whoami", answer{Status: 200, Body: "web", Names: []string{"*." + appsDomain}})
		route := mustGet(s, &routev1.Route{}, s.key("web-listener-http"))
		if got := route.Annotations[platform.AnnotationGenerated]; (got == "true") != (host == generated) {
			t.Errorf("with the host %s, the annotation of the Route is %q", host, got)
		}
	}
}
