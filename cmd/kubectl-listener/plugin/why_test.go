package plugin_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestWhyFollowsTheWholePathIfNothingIsWrong(t *testing.T) {
	w := newWorld(t)
	for argument, want := range map[string][]string{
		"web-0": {"Pod", "Node", "Node", "PersistentVolumeClaim", "PersistentVolume", "Listener", "ListenerClass", "Service", "Endpoints", "PodListeners", "Volume"},
		"claim/web": {
			"PersistentVolumeClaim", "PersistentVolume", "Listener", "ListenerClass", "Service", "Endpoints", "Pod", "Node", "Node", "PodListeners", "Volume",
		},
		"lsn/web": {"Listener", "ListenerClass", "Service", "Endpoints", "PersistentVolume", "Pod", "Node", "Node", "PodListeners", "Volume"},
	} {
		t.Run(argument, func(t *testing.T) {
			var kinds []string
			for _, f := range whyOf(t, w.namespace, argument).Findings {
				kinds = append(kinds, f.Kind)
				if f.State != "OK" {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(kinds, want) {
				t.Errorf("steps %q, want %q", kinds, want)
			}
		})
	}
	out, err := run(t, apiserver.Config(t), "why", "pod", "web-0", "-n", w.namespace)
	if err != nil || !strings.Contains(out, "✓ Pod "+w.namespace+"/web-0") || !strings.Contains(out, "203.0.113.7:31337") || !strings.Contains(out, allRight) {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// mistake breaks what belongs to a Pod.
type mistake struct {
	breakIt func(*testing.T, *world)
	// from is the argument of the command, or "" for the Pod.
	from string
	// kind and reason are those of the problem, and text is in its message or remedy.
	kind, reason, text string
}

func TestWhyNamesTheFirstThingThatIsWrong(t *testing.T) {
	for _, mistakes := range []map[string]mistake{wrongClaims, wrongVolumes, wrongListeners, wrongPods} {
		for name, tc := range mistakes {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				tc.breakIt(t, w)
				r := whyOf(t, w.namespace, cmp.Or(tc.from, "web-0"))
				p := r.Problem
				if p == nil || p.Kind != tc.kind || p.Reason != tc.reason || p.Remedy == "" || !strings.Contains(p.Message+p.Remedy, tc.text) ||
					strings.Contains(p.Remedy, "kubectl listener why") {
					t.Errorf("problem %+v in\n%+v", p, r.Findings)
				}
			})
		}
	}
}

// The operator creates the Listener of a claim when the Pod is bound to a node, so a missing one is not the cause, and
// neither is an annotation that was changed.
func TestWhyNamesWhyAPodIsPending(t *testing.T) {
	w := newWorld(t)
	w.remove(t, w.listener)
	w.claim.Annotations[names.AnnotationListenerClass] = "another"
	w.update(t, w.claim)
	for _, tc := range []struct{ reason, message, kind string }{
		{"Unschedulable", "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: 0/3 nodes are available.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 Insufficient memory.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) had untolerated taint(s).", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) were unschedulable.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 Too many pods.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 listeners.stackable.tech CSI driver is not installed on the node.", "Pod"},
		{"SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", "Pod"},
		{"SchedulerError", "running PreBind plugin: timed out", "Pod"},
		{"Unschedulable", "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "PersistentVolumeClaim"},
		{"Unschedulable", `0/3 nodes are available: persistentvolumeclaim "waiting" not found.`, "PersistentVolumeClaim"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) had volume node affinity conflict.", "PersistentVolumeClaim"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).", "PersistentVolumeClaim"},
	} {
		t.Run(tc.message, func(t *testing.T) {
			claimName := w.claim.Name
			if tc.kind != "Pod" {
				claimName = "waiting"
			}
			pod := w.newPod("", claimName)
			pod.GenerateName = "pending-"
			w.create(t, pod)
			w.notScheduled(t, pod, tc.reason, tc.message)
			r := whyOf(t, w.namespace, pod.Name)
			if slices.ContainsFunc(r.Findings, func(f found) bool { return f.Kind == "Listener" && f.State == "Failed" }) {
				t.Errorf("the Listener is wrong in\n%+v", r.Findings)
			}
			p := r.Problem
			if p == nil || p.Kind != tc.kind || tc.kind == "Pod" && (p.Reason != tc.reason || p.Message != tc.message) {
				t.Errorf("problem %+v in\n%+v", p, r.Findings)
			}
		})
	}
}

// allRight is the end of what why says if it has seen every step, and each is right. It cannot see programs.
const allRight = "\nNo step is wrong. This command does not test whether the program responds. Run, from where the clients are: kubectl listener connect pod/web-0 --namespace "

func TestWhySaysThatNoStepIsWrongOnlyIfEverythingWasSeenAndIsRight(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, *world)
		want   string
	}{
		"everything is right":                    {func(*testing.T, *world) {}, allRight},
		"a container was restarted a moment ago": {func(t *testing.T, w *world) { w.restarted(t) }, "See what is marked with ! at Pod"},
		"a shared Listener whose port leads elsewhere than the Pod's own": {func(t *testing.T, w *world) {
			w.sameTarget(t)
			other := addresses()
			other[0].Ports = map[string]int32{"http": 31338}
			w.podListeners.Spec.Listeners["shared"] = listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: other, ListenerName: "shared"}
			w.update(t, w.podListeners)
		}, "and clients of Listener shared at another port: the program has to listen on both"},
		"node ports that the program listens on": {func(t *testing.T, w *world) { w.sameTarget(t) }, allRight},
		"a port that no container declares": {func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonPortNotDeclared))
		}, "See what is marked with ! at Listener"},
		"a Listener without Pods": {func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonReserved))
			w.endpoints.Endpoints = []discoveryv1.Endpoint{}
			w.update(t, w.endpoints)
		}, "there are none, because no Pod mounts the Listener"},
		"a class that no longer allows the namespace": {func(t *testing.T, w *world) {
			w.class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"elsewhere"}}
			w.update(t, w.class)
			w.listener.Status.KeptClassName = w.class.Name
			w.updateStatus(t, w.listener)
		}, "See what is marked with ! at ListenerClass"},
		"a NetworkPolicy that may deny clients": {func(t *testing.T, w *world) {
			w.create(t, w.policy("deny", networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}))
		}, "See what is marked with ! at NetworkPolicy"},
		"a NetworkPolicy that admits every client": {func(t *testing.T, w *world) {
			w.create(t, w.policy("clients", networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("http"))}}}))
			w.create(t, w.policy("deny"))
		}, allRight},
		"a NetworkPolicy of allowed clients": {func(t *testing.T, w *world) {
			w.create(t, w.clientPolicy())
		}, allRight},
		"a NetworkPolicy of allowed clients, and one that admits every client": {func(t *testing.T, w *world) {
			w.create(t, w.clientPolicy())
			w.create(t, w.policy("clients", networkingv1.NetworkPolicyIngressRule{}))
		}, "has no effect, because other policies admit every client"},
		"a NetworkPolicy for other Pods": {func(t *testing.T, w *world) {
			policy := w.policy("others")
			policy.Spec.PodSelector.MatchLabels = map[string]string{"app": "other"}
			w.create(t, policy)
		}, allRight},
		"a NetworkPolicy for requests of the Pod": {func(t *testing.T, w *world) {
			policy := w.policy("egress")
			policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
			w.create(t, policy)
		}, allRight},
		"the only Pod is being deleted": {func(t *testing.T, w *world) {
			w.withoutEndpoints(t)
			w.beginToDelete(t, w.pod)
		}, "no Pod belongs to the Service, because Pod web-0 is being deleted"},
		"a Pod is no endpoint, because it is being deleted": {func(t *testing.T, w *world) {
			w.endpoints.Endpoints[0].TargetRef.UID = "another"
			w.update(t, w.endpoints)
			w.beginToDelete(t, w.pod)
		}, "Pod web-0 is not among them, because it is being deleted"},
		"endpoints that are also published while they are not ready": {func(t *testing.T, w *world) {
			w.publishNotReady(t)
		}, allRight},
		"two Pods mount the claim": {func(t *testing.T, w *world) {
			pod := w.newPod("web-1", "web")
			w.createRunning(t, pod)
		}, "its address leads to each of the Pods that mount it, web-0,web-1"},
		"two Pods mount the claim, and one is about to end": {func(t *testing.T, w *world) {
			pod := w.newPod("web-1", "web")
			w.createRunning(t, pod)
			w.beginToDelete(t, pod)
		}, allRight},
		"a volume that Kubernetes could not delete": {func(t *testing.T, w *world) {
			w.volume.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeFailed, Reason: "VolumeFailedDelete", Message: "no plugin"}
			w.updateStatus(t, w.volume)
		}, "has failed: VolumeFailedDelete: no plugin"},
		"the class is being deleted": {func(t *testing.T, w *world) { w.beginToDelete(t, w.class) }, "is being deleted, and kept by its finalizers: example.com/keep"},
		"the Service is being deleted": {func(t *testing.T, w *world) {
			w.beginToDelete(t, w.service)
		}, "See what is marked with ! at Service"},
		"a Pod that is not ready gets requests": {func(t *testing.T, w *world) {
			w.publishNotReady(t)
			w.endpoints.Endpoints = append(w.endpoints.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{"10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)},
			})
			w.update(t, w.endpoints)
		}, "See what is marked with ! at Endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(t, w)
			out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
			if err != nil || !strings.Contains(out, tc.want) || strings.Contains(out, allRight) != (tc.want == allRight) || strings.Contains(out, "Nothing is wrong") {
				t.Errorf("error %v, output:\n%s", err, out)
			}
		})
	}
}

// An endpoint is always ready if the Service publishes those that are not.
func TestWhyCountsThePodsThatAreReady(t *testing.T) {
	w := newWorld(t)
	w.publishNotReady(t)
	w.unready(t)
	out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
	if !errors.Is(err, command.ErrProblem) || !strings.Contains(out, "1 of 1 published, 0 of 1 Pods ready") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// Neither its agent nor the files can be seen.
func TestWhySaysNothingAboutWhatIsOnANodeThatDoesNotRespond(t *testing.T) {
	w := newWorld(t)
	w.stopNode(t)
	out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
	if !errors.Is(err, command.ErrProblem) || strings.Contains(out, "has its files") || strings.Contains(out, "has a node agent") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestWhyPrintsTheProblemAndItsRemedy(t *testing.T) {
	w := newWorld(t)
	w.remove(t, w.class)
	out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
	if !errors.Is(err, command.ErrProblem) {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		"✗ ListenerClass " + w.class.Name + " ", "\n✗ ListenerClass " + w.class.Name + "\n  ClassNotFound: does not exist\n  What to do: Name one of the classes",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func TestWhySaysWhatTheUserMayNotRead(t *testing.T) {
	w := newWorld(t)
	config := w.user(t,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"listeners"}, Verbs: []string{"get"}},
	)
	r := resultOf(t, config, "why", "web-0", "-n", w.namespace)
	var unknown []string
	for _, f := range r.Findings {
		if f.State == "Unknown" {
			unknown = append(unknown, f.Kind)
		}
	}
	if want := []string{"Node", "CSINode", "PersistentVolume", "ListenerClass", "Service", "PodListeners"}; r.Problem != nil || !slices.Equal(unknown, want) {
		t.Errorf("problem %+v, unknown %q, want %q", r.Problem, unknown, want)
	}
	out, err := run(t, config, "why", "web-0", "-n", w.namespace)
	if err != nil || strings.Contains(out, "is wrong") || !strings.Contains(out, "You may not read Node "+w.node.Name) {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// One of them may deny clients.
func TestWhySaysThatTheUserMayNotListNetworkPolicies(t *testing.T) {
	w := newWorld(t)
	config := w.clusterUser(t, apiserver.Config(t), rbacv1.PolicyRule{
		APIGroups: []string{"", listenersv1alpha1.GroupVersion.Group, "storage.k8s.io", "discovery.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"},
	})
	out, err := run(t, config, "why", "web-0", "-n", w.namespace)
	if err != nil || strings.Contains(out, "is wrong") || !strings.Contains(out, "\nYou may not read NetworkPolicy, so ") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestWhyRefusesArgumentsThatNameNothing(t *testing.T) {
	namespace := apiserver.Namespace(t)
	for argument, want := range map[string]string{
		"absent":             "has no pod, claim, listener, statefulset, deployment, daemonset, replicaset, job \"absent\"",
		"listener/absent":    "has no listener \"absent\"",
		"deploy/absent":      "has no deployment \"absent\"",
		"configmap/absent":   "but for: pod, claim, listener",
		"gizmo/absent":       "this command is not for the kind",
		"web --output=table": "--output is \"table\"",
	} {
		_, err := run(t, apiserver.Config(t), append([]string{"why", "-n", namespace}, strings.Fields(argument)...)...)
		if err == nil || errors.Is(err, command.ErrProblem) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", argument, err, want)
		}
	}
}

func TestNamesAreCompleted(t *testing.T) {
	w := newWorld(t)
	for begin, want := range map[string][]string{
		"":         {"pod/web-0", "claim/web", "listener/web"},
		"listener": {"listener/web"},
		"we":       {"web-0", "web"},
		"x":        nil,
	} {
		out, err := run(t, apiserver.Config(t), "__complete", "why", "-n", w.namespace, begin)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := lines[:len(lines)-1]; err != nil || !slices.Equal(got, want) && len(got)+len(want) > 0 { // the last line is a directive
			t.Errorf("%q: error %v, completions %q, want %q", begin, err, got, want)
		}
	}
}
