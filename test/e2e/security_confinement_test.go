//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
)

// With a token of the operator, neither the node agents nor the API server's Service can be changed, also after an
// administrator has deleted the policies, which the operator creates again.
func TestAStolenOperatorTokenCannotRunAnythingOnNodes(t *testing.T) {
	s := newScenario(t)
	thief := s.withTokenOf(operatorNamespace, names.Operator)
	agents := &appsv1.DaemonSet{}
	agents.Namespace, agents.Name = operatorNamespace, names.NodeAgent
	service := &corev1.Service{}
	service.Namespace, service.Name = "default", "kubernetes"
	attempts := map[client.Object]string{
		agents:  `{"spec":{"template":{"spec":{"hostPID":true}}}}`,
		service: `{"spec":{"externalIPs":["192.0.2.1"]}}`,
	}
	denied := func(ctx context.Context) error {
		var errs []error
		for o, patch := range attempts {
			err := thief.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "the listener operator may") {
				errs = append(errs, fmt.Errorf("patching %T %s: error is %w", o, o.GetName(), err))
			}
		}
		return errors.Join(errs...)
	}
	s.eventually(denied)
	for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}} {
		o.SetName(names.Operator + ".daemonsets")
		s.remove(o)
		s.eventually(s.getter(o))
	}
	s.eventually(denied)
}

// withTokenOf returns a client that has nothing but a token of a ServiceAccount.
func (s *scenario) withTokenOf(namespace, account string) client.Client {
	s.Helper()
	admin, err := testbed.RESTConfig()
	s.must(err)
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = s.tokenOf(namespace, account)
	c, err := client.New(config, client.Options{Scheme: api.Scheme()})
	s.must(err)
	return c
}
