//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// Objects of optional APIs are installed once the cluster serves these APIs. With managementState Removed the operator
// deletes all that it has installed, and with Managed it installs it again.
func TestInstallationFollowsOptionalAPIsAndManagementState(t *testing.T) {
	s := newScenario(t)
	optional := slices.DeleteFunc(crds.All(), func(c crds.CRD) bool { // Routes, also those of Gateways, and Certificates and DNSEndpoints have tests of their own
		return c == crds.Routes || c == crds.DNSEndpoints || strings.HasSuffix(string(c), ".gateway.networking.k8s.io") || strings.HasSuffix(string(c), ".cert-manager.io") || slices.Contains(crds.Administrators(), c)
	})
	crds.Remove(t, api, optional...) // an earlier run may have left them
	crds.Install(t, api, optional...)
	defer crds.Remove(t, api, optional...)
	constraints := optionalObject(names.KindSecurityContextConstraints, "", names.NodeAgent)
	for _, o := range []client.Object{
		constraints,
		optionalObject(names.KindServiceMonitor, operatorNamespace, names.Operator),
		optionalObject(names.KindPrometheusRule, operatorNamespace, names.Operator),
		optionalObject(names.KindConsoleQuickStart, "", names.Operator),
		optionalObject(names.KindConsoleYAMLSample, "", "listener-operator-listenerclass"),
		optionalObject(names.KindConsoleYAMLSample, "", "listener-operator-listener"),
		optionalObject(names.KindConsoleYAMLSample, "", "listener-operator-statefulset"),
	} {
		s.eventually(s.getter(o))
	}

	s.setManagementState(operatorv1alpha1.Removed)
	defer s.setManagementState(operatorv1alpha1.Managed)
	s.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionProgressing)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == operatorv1alpha1.ReasonRemoved
	})
	for _, o := range []client.Object{
		constraints,
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: names.NodeAgent}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: names.PodListenersPolicy}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: names.PodListenersPolicy}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: names.PodsPolicy}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: names.PodsPolicy}},
	} {
		s.checkNotFound(o)
	}

	s.setManagementState(operatorv1alpha1.Managed)
	s.awaitConfig(isAvailableOnAllNodes)
	if err := s.getter(constraints)(s.ctx); err != nil {
		t.Error(err)
	}
	s.createReachablePod()
}

// optionalObject returns an object of an optional API, for reading.
func optionalObject(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// getter returns a function that reads an object.
func (s *scenario) getter(o client.Object) func(context.Context) error {
	return func(ctx context.Context) error { return api.Get(ctx, client.ObjectKeyFromObject(o), o) }
}

// configuration reads ListenerOperator/cluster.
func (s *scenario) configuration() *operatorv1alpha1.ListenerOperator {
	s.Helper()
	return mustGet(s, &operatorv1alpha1.ListenerOperator{}, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName})
}

// checkNotFound fails the test if an object exists.
func (s *scenario) checkNotFound(o client.Object) {
	s.Helper()
	if err := s.getter(o)(s.ctx); !apierrors.IsNotFound(err) {
		s.Errorf("reading %T %s: error is %v, want not found", o, o.GetName(), err)
	}
}

// setManagementState sets the managementState of ListenerOperator/cluster.
func (s *scenario) setManagementState(state operatorv1alpha1.ManagementState) {
	s.Helper()
	o := s.configuration()
	s.patch(o, func() { o.Spec.ManagementState = state })
}

// awaitConfig waits until the operator has observed the current generation of ListenerOperator/cluster, and it meets
// the condition.
func (s *scenario) awaitConfig(condition func(*operatorv1alpha1.ListenerOperator) bool) {
	s.Helper()
	last := &operatorv1alpha1.ListenerOperator{}
	_, err := await(s.timeoutContext(), last, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, func(o *operatorv1alpha1.ListenerOperator) bool {
		last = o
		return o.Status.ObservedGeneration == o.Generation && condition(o)
	})
	if err != nil {
		s.Fatal(errors.Join(err, fmt.Errorf("the last conditions are %+v", last.Status.Conditions)))
	}
}

// awaitDegraded waits until the condition Degraded has the reason, and returns its message.
func (s *scenario) awaitDegraded(reason string) (message string) {
	s.Helper()
	key := client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}
	mustAwait(s, &operatorv1alpha1.ListenerOperator{}, key, func(o *operatorv1alpha1.ListenerOperator) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionDegraded)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason {
			return false
		}
		message = c.Message
		return true
	})
	s.Logf("condition Degraded: %s", message)
	return message
}

// Installed objects that an administrator changes or deletes are restored, and volumes can be mounted afterwards.
func TestInstalledObjectsAreRepaired(t *testing.T) {
	s := newScenario(t)
	agents := mustGet(s, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.NodeAgent})
	s.patch(agents, func() { agents.Spec.Template.Spec.Containers[0].Args = []string{"--nonsense"} })
	mustAwait(s, &appsv1.DaemonSet{}, client.ObjectKeyFromObject(agents), func(d *appsv1.DaemonSet) bool {
		return !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--nonsense") && isRolledOut(d)
	})
	driver, storage := &storagev1.CSIDriver{}, &storagev1.StorageClass{}
	for _, o := range []client.Object{driver, storage} {
		s.get(o, client.ObjectKey{Name: names.Driver})
		s.remove(o)
	}
	mustAwait(s, &storagev1.CSIDriver{}, client.ObjectKeyFromObject(driver), func(d *storagev1.CSIDriver) bool { return d.UID != driver.UID })
	mustAwait(s, &storagev1.StorageClass{}, client.ObjectKeyFromObject(storage), func(c *storagev1.StorageClass) bool { return c.UID != storage.UID })
	s.createReachablePod()
}
