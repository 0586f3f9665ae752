package doctor

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

func TestFindingsAboutTheConfiguration(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) func(*operatorv1alpha1.ListenerOperator) {
		return func(o *operatorv1alpha1.ListenerOperator) {
			o.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "message"}}
		}
	}
	for name, tc := range map[string]struct {
		change         func(*operatorv1alpha1.ListenerOperator)
		state          check.State
		reason, remedy string
	}{
		"available":        {condition(operatorv1alpha1.ConditionAvailable, metav1.ConditionTrue, "AsExpected"), check.OK, "", ""},
		"not available":    {condition(operatorv1alpha1.ConditionAvailable, metav1.ConditionFalse, "Down"), check.Failed, "Down", "Follow the message. The log of the operator has more: kubectl logs --namespace operators deployment/listener-operator"},
		"another operator": {condition(operatorv1alpha1.ConditionDegraded, metav1.ConditionTrue, operatorv1alpha1.ReasonOtherOperatorRunning), check.Failed, "OtherOperatorRunning", "See what would change, and the steps: kubectl listener migrate --dry-run"},
		"another domain":   {condition(operatorv1alpha1.ConditionDegraded, metav1.ConditionFalse, operatorv1alpha1.ReasonOtherClusterDomain), check.Warning, "OtherClusterDomain", ""},
		"progressing":      {condition(operatorv1alpha1.ConditionProgressing, metav1.ConditionTrue, "RollingOut"), check.Warning, "RollingOut", ""},
		"not observed":     {func(o *operatorv1alpha1.ListenerOperator) { o.Status.Conditions = nil }, check.Failed, "", check.RemedyOperator},
		"changed":          {func(o *operatorv1alpha1.ListenerOperator) { o.Generation = 2 }, check.Failed, "", check.RemedyOperator},
		"unmanaged":        {func(o *operatorv1alpha1.ListenerOperator) { o.Spec.ManagementState = operatorv1alpha1.Unmanaged }, check.Warning, "Unmanaged", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			condition(operatorv1alpha1.ConditionAvailable, metav1.ConditionTrue, "AsExpected")(o)
			o.Status.ObservedGeneration = 1
			tc.change(o)
			f := (&doctor{namespace: "operators"}).configurationFinding(check.Finding{}, o)
			if f.State != tc.state || f.Reason != tc.reason || f.Remedy != tc.remedy {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestDifference(t *testing.T) {
	list := func(values ...any) map[string]any { return map[string]any{"spec": map[string]any{"modes": values}} }
	for name, tc := range map[string]struct {
		desired, observed map[string]any
		want              string
	}{
		"equal":                   {list("a", "b"), list("a", "b"), ""},
		"another order":           {list("a", "b"), list("b", "a"), ""},
		"a value is missing":      {list("a", "b"), list("a"), ".spec.modes"},
		"there is another value":  {list("a"), list("a", "b"), ".spec.modes"},
		"a value differs":         {list("a", "b"), list("a", "c"), ".spec.modes"},
		"a field of the observed": {map[string]any{}, list("a"), ""},
		"any value":               {map[string]any{"spec": nil}, list("a"), ""},
	} {
		if got := difference("", tc.desired, tc.observed); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
