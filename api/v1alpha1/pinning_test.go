package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestPinningOfAClass(t *testing.T) {
	released := &listenersv1alpha1.Pinning{
		Policy: listenersv1alpha1.PinningPolicyRequired, ReleaseAfter: &metav1.Duration{Duration: time.Minute},
	}
	for name, tc := range map[string]struct {
		spec listenersv1alpha1.ListenerClassSpec
		want *listenersv1alpha1.Pinning
	}{
		"neither field":                      {listenersv1alpha1.ListenerClassSpec{ServiceType: "NodePort"}, nil},
		"pinnedNodePorts":                    {listenersv1alpha1.ListenerClassSpec{ServiceType: "NodePort", PinnedNodePorts: true}, &listenersv1alpha1.Pinning{Policy: "Required"}},
		"pinning":                            {listenersv1alpha1.ListenerClassSpec{ServiceType: "NodePort", Pinning: released}, released},
		"both fields":                        {listenersv1alpha1.ListenerClassSpec{ServiceType: "NodePort", PinnedNodePorts: true, Pinning: released}, released},
		"pinnedNodePorts without node ports": {listenersv1alpha1.ListenerClassSpec{ServiceType: "LoadBalancer", PinnedNodePorts: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "pinning", tc.want, (&listenersv1alpha1.ListenerClass{Spec: tc.spec}).Pinning())
		})
	}
}

// A client fails to decode a list with a duration that Go does not parse, so the API server must not accept one.
func TestInvalidPinningIsRejectedWithTheCause(t *testing.T) {
	c := apiserver.Client(t)
	for name, tc := range map[string]struct {
		spec string // in addition to serviceType NodePort
		want string // part of the message; "" means that the class is valid
	}{
		"Required":                          {"pinning: {policy: Required}", ""},
		"Preferred":                         {"pinning: {policy: Preferred}", ""},
		"Required with pinnedNodePorts":     {"pinning: {policy: Required, releaseAfter: 10m}, pinnedNodePorts: true", ""},
		"shortest time":                     {"pinning: {policy: Required, releaseAfter: 10s}", ""},
		"longest time":                      {"pinning: {policy: Required, releaseAfter: 8760h}", ""},
		"time of several units":             {"pinning: {policy: Required, releaseAfter: 1h30m5.5s}", ""},
		"Preferred with pinnedNodePorts":    {"pinning: {policy: Preferred}, pinnedNodePorts: true", "contradicts the policy Preferred: remove pinnedNodePorts"},
		"Preferred with releaseAfter":       {"pinning: {policy: Preferred, releaseAfter: 10m}", "releaseAfter needs policy Required"},
		"without a policy":                  {"pinning: {releaseAfter: 10m}", "policy: Required value"},
		"unknown policy":                    {"pinning: {policy: Always}", "Unsupported value"},
		"too short":                         {"pinning: {policy: Required, releaseAfter: 9s}", "a duration from 10s to 8760h"},
		"negative":                          {"pinning: {policy: Required, releaseAfter: -10m}", "a duration from 10s to 8760h"},
		"too long":                          {"pinning: {policy: Required, releaseAfter: 8761h}", "a duration from 10s to 8760h"},
		"more than a number of nanoseconds": {"pinning: {policy: Required, releaseAfter: 99999999999999999999h}", "releaseAfter"},
		"without a unit":                    {`pinning: {policy: Required, releaseAfter: "600"}`, "a duration from 10s to 8760h"},
		"days":                              {"pinning: {policy: Required, releaseAfter: 1d}", "a duration from 10s to 8760h"},
		"empty":                             {`pinning: {policy: Required, releaseAfter: ""}`, "a duration from 10s to 8760h"},
		"number":                            {"pinning: {policy: Required, releaseAfter: 600}", "must be of type string"},
		"host ports":                        {"pinning: {policy: Preferred}, hostPort: {}, serviceType: ClusterIP", ""},
		"keepFor":                           {"keepFor: 1h30m", ""},
		"keepFor, too short":                {"keepFor: 59s", "keepFor must be a duration from 1m to 87600h"},
		"keepFor, too long":                 {"keepFor: 87601h", "keepFor must be a duration from 1m to 87600h"},
		"keepFor, days":                     {"keepFor: 1d", "keepFor must be a duration from 1m to 87600h"},
		"with another service type":         {"pinning: {policy: Required}, serviceType: LoadBalancer", "pinning needs serviceType NodePort, or hostPort"},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{kind: ListenerClass, spec: {` + tc.spec + `, serviceType: NodePort}}`
			if strings.Contains(tc.spec, "serviceType") {
				text = `{kind: ListenerClass, spec: {` + tc.spec + `}}`
			}
			o := object(t, "", text)
			err := c.Create(t.Context(), o)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("rejected: %v", err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want an Invalid error with %q", err, tc.want)
			case tc.want == "":
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), &listenersv1alpha1.ListenerClass{}); err != nil {
					t.Errorf("decoding: %v", err)
				}
			}
		})
	}
}
