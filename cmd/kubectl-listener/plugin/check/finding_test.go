package check_test

import (
	"testing"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

// Whoever acts follows from fields: what a message or a remedy says does not matter.
func TestAFindingSaysWhoActs(t *testing.T) {
	const quota, noClass = listenersv1alpha1.ReasonQuotaExceeded, listenersv1alpha1.ReasonClassNotFound
	f := check.Finding{Kind: "Listener"}
	const inMessage = "Do what the message says."
	ofClass := reasons.Of(noClass)
	for name, tc := range map[string]struct {
		got    check.Finding
		actor  reasons.Actor
		remedy string
	}{
		"the operator":               {f.LeftToOperator("", "does not exist"), reasons.Operator, check.RemedyOperator},
		"the operator, for a reason": {f.LeftToOperator(noClass, "does not exist"), reasons.Operator, check.RemedyOperator},
		"a user, with its words": {
			f.Failed("", "does not exist", check.RemedyOperator),
			reasons.User, check.RemedyOperator,
		},
		"by the message": {f.FailedBy(quota, "exceeded quota"), reasons.Either, inMessage},
		"by the table":   {f.FailedBy(noClass, "ask an administrator"), reasons.Either, ofClass.For("", "")},
		"the last one": {
			f.LeftToOperator("", "waits").FailedBy(quota, "exceeded quota"),
			reasons.Either, inMessage,
		},
	} {
		if tc.got.Actor != tc.actor || tc.got.Remedy != tc.remedy || tc.got.State != check.Failed {
			t.Errorf("%s: %+v", name, tc.got)
		}
	}
}
