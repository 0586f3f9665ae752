package listener

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var policyKey = client.ObjectKey{Namespace: key.Namespace, Name: "web-allowed-clients"}

// newRestrictedState returns a Listener whose class restricts the clients of its node ports, before the first
// reconciliation.
func newRestrictedState() *state {
	return newState(nodePort).change(func(s *state) {
		s.service = nil
		s.class.Spec.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
		s.class.Spec.AllowedClients = []listenersv1alpha1.CIDR{"198.51.100.0/24"}
	})
}

// withMountingPod adds a Pod that mounts the Listener.
func withMountingPod(change func(*corev1.Pod)) func(*state) {
	return func(s *state) {
		pod := newLabelledPod("0", "a", "pvc-0", corev1.PodRunning)
		pod.Labels["app"] = "web"
		change(pod)
		s.with(pod, newMount("0", "a", "pv"))
	}
}

// newPolicy returns a NetworkPolicy for Pods with the label app.
func newPolicy(name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
}

// ownPolicy returns the NetworkPolicy of an earlier reconciliation.
func ownPolicy() *networkingv1.NetworkPolicy {
	policy := newPolicy(policyKey.Name)
	policy.OwnerReferences = ofListener()
	return policy
}

func TestClientsAreRestrictedBeforeTheyReachPods(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "networkpolicies"}, policyKey.Name, nil)
	given := func(change func(*state)) *state { return newRestrictedState().change(change) }
	inHostNetwork := withMountingPod(func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })
	const notEnforceable = listenersv1alpha1.ReasonAllowedClientsNotEnforceable
	status, service, policy := "apply status", "apply Service", "apply NetworkPolicy"
	for name, tc := range map[string]struct {
		state   *state
		failure error // of the first write
		writes  []string
		reason  string
		message string
	}{
		"by a policy before the Service": {newRestrictedState(), nil, []string{policy, service, status}, "Accepted", ""},
		"no Service without the policy":  {newRestrictedState(), forbidden, []string{policy, status, policy, service, status}, "Accepted", ""},
		"nor beside a foreign one": {
			newRestrictedState().with(newPolicy(policyKey.Name)), nil, []string{status}, "ForeignNetworkPolicy", "NetworkPolicy shop/web-allowed-clients already exists and has no controller",
		},
		"nor with other Pods":               {given(inHostNetwork), nil, []string{status}, notEnforceable, "do not apply to Pod web-0"},
		"nor if Pods do not see clients":    {given(func(s *state) { s.class.Spec.ServiceExternalTrafficPolicy = nil }), nil, []string{status}, notEnforceable, "externalTrafficPolicy Local"},
		"a load balancer restricts clients": {given(func(s *state) { s.class.Spec.ServiceType = loadBalancer }), nil, []string{service, status}, "Accepted", ""},
		"a policy that is not needed any more is removed after the Service": {
			given(func(s *state) { s.class.Spec.AllowedClients = nil }).with(ownPolicy()), nil, []string{service, "delete " + policyKey.Name, status}, "Accepted", "",
		},
		"a foreign one is left alone": {newState(nodePort).with(newPolicy(policyKey.Name)), nil, []string{service, status}, "Accepted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			failed := -1
			if tc.failure != nil {
				failed = 0
			}
			counting, writes := countWrites(failed, tc.failure)
			o := tc.state.operator(t, counting)
			for range 2 {
				_, _ = o.try(key)
			}
			policy := find[networkingv1.NetworkPolicy](o, policyKey.Name)
			check.Equal(t, "writes", tc.writes, *writes)
			wantCondition(t, observe.Condition(o.listener(), listenersv1alpha1.ListenerAccepted), tc.reason, tc.message)
			wantsPolicy := strings.Contains(strings.Join(*writes, " "), "apply NetworkPolicy")
			check.Equal(t, "the policy has a controller", wantsPolicy, policy != nil && metav1.GetControllerOf(policy) != nil)
		})
	}
}

func TestPolicyFollowsOthersThatSelectThePods(t *testing.T) {
	for name, tc := range map[string]struct {
		others []client.Object
		rules  int
	}{
		"alone":          {nil, 2},
		"beside another": {[]client.Object{newPolicy("of-a-user")}, 1},
	} {
		o := newRestrictedState().change(withMountingPod(func(*corev1.Pod) {})).with(tc.others...).operator(t, interceptor.Funcs{})
		o.reconcile(key.Name)
		o.reconcile(key.Name)
		if policy := get[networkingv1.NetworkPolicy](o, policyKey.Name); len(policy.Spec.Ingress) != tc.rules {
			t.Errorf("%s: %+v", name, policy)
		}
	}
}

func TestPoliciesConcernListenersWithRestrictedClients(t *testing.T) {
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: key.Namespace, Name: name}}
	}
	named := func(name string, change func(*listenersv1alpha1.Listener)) client.Object {
		l := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}}
		change(l)
		return l
	}
	both := newMount("0", "a", "pv")
	both.Spec.Listeners["other"] = listenersv1alpha1.PodListener{ListenerName: "bootstrap"}
	s := newRestrictedState().with(
		both, named("open", func(*listenersv1alpha1.Listener) {}),
		named("restricted", func(l *listenersv1alpha1.Listener) {
			l.Spec.AllowedClients = []listenersv1alpha1.CIDR{"198.51.100.0/24"}
		}),
	)
	r := s.operator(t, interceptor.Funcs{})
	for name, tc := range map[string]struct {
		policy *networkingv1.NetworkPolicy
		want   []reconcile.Request
	}{
		"its own":                        {ownPolicy(), []reconcile.Request{request("web"), request("bootstrap"), request("web")}},
		"a foreign one":                  {newPolicy("of-a-user"), []reconcile.Request{request("restricted"), request("web")}},
		"a foreign one of a needed name": {newPolicy("open-allowed-clients"), []reconcile.Request{request("open"), request("restricted"), request("web")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.policyToListeners(t.Context(), tc.policy)
			less := func(a, b reconcile.Request) bool { return a.Name < b.Name }
			check.Equal(t, "requests", tc.want, got, cmpopts.SortSlices(less))
		})
	}
}
