package walk

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

func TestWhatIsSaidAboutNodesIsQuoted(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: "Because", Message: "of this"}
	}
	ready := condition(corev1.NodeReady, corev1.ConditionTrue)
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		state      check.State
		message    string
	}{
		"nothing is known":      {nil, check.OK, "is ready"},
		"ready":                 {[]corev1.NodeCondition{ready, condition(corev1.NodeNetworkUnavailable, corev1.ConditionFalse)}, check.OK, "is ready"},
		"not ready":             {[]corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse)}, check.Failed, "is not ready, so its addresses may not respond: Because: of this"},
		"nothing to quote":      {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}, check.Failed, "is not ready, so its addresses may not respond"},
		"ready without network": {[]corev1.NodeCondition{condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue), ready}, check.Warning, "its network is not available: Because: of this"},
		"neither":               {[]corev1.NodeCondition{condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue), condition(corev1.NodeReady, corev1.ConditionFalse)}, check.Failed, "is not ready, so its addresses may not respond: Because: of this"},
	} {
		t.Run(name, func(t *testing.T) {
			got := nodeFinding(&corev1.Node{Status: corev1.NodeStatus{Conditions: tc.conditions}})
			if got.State != tc.state || got.Message != tc.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}
