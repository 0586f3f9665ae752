package main

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

func TestDeploymentIsRolledOutWhenAvailable(t *testing.T) {
	deployment := func(generation int64, available int32) appsv1.Deployment {
		return appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Generation: generation},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, AvailableReplicas: available},
		}
	}
	for name, tc := range map[string]struct {
		deployments []appsv1.Deployment
		want        string
	}{
		"none":          {nil, "not found in any namespace"},
		"unavailable":   {[]appsv1.Deployment{deployment(2, 0)}, "not available in namespace x"},
		"just changed":  {[]appsv1.Deployment{deployment(3, 1)}, "not available in namespace x"},
		"available":     {[]appsv1.Deployment{deployment(2, 1)}, ""},
		"one available": {[]appsv1.Deployment{deployment(2, 0), deployment(2, 1)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := notRolledOut(&appsv1.DeploymentList{Items: tc.deployments}); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOperatorIsInstalledWhenAllAgentsAreReady(t *testing.T) {
	good := operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Status: operatorv1alpha1.ListenerOperatorStatus{
			ObservedGeneration: 2,
			NodeAgent:          operatorv1alpha1.NodeAgentStatus{Desired: 2, Ready: 2},
			Conditions: []metav1.Condition{{
				Type: operatorv1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: operatorv1alpha1.ReasonAsExpected, Message: "fine",
			}},
		},
	}
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.ListenerOperator)
		want   string
	}{
		"all ready":          {func(*operatorv1alpha1.ListenerOperator) {}, ""},
		"no status":          {func(o *operatorv1alpha1.ListenerOperator) { o.Status.Conditions = nil }, "no current status"},
		"an older status":    {func(o *operatorv1alpha1.ListenerOperator) { o.Generation = 3 }, "no current status"},
		"not available":      {func(o *operatorv1alpha1.ListenerOperator) { o.Status.Conditions[0].Status = metav1.ConditionFalse }, "AsExpected: fine"},
		"no node":            {func(o *operatorv1alpha1.ListenerOperator) { o.Status.NodeAgent.Desired = 0 }, "no node"},
		"an agent not ready": {func(o *operatorv1alpha1.ListenerOperator) { o.Status.NodeAgent.Ready = 1 }, "1 of 2 agents"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good.DeepCopy()
			tc.change(o)
			got := notInstalled(&operatorv1alpha1.ListenerOperatorList{Items: []operatorv1alpha1.ListenerOperator{*o}})
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := notInstalled(&operatorv1alpha1.ListenerOperatorList{}); got == "" {
		t.Error("a missing configuration counts as installed")
	}
}

func TestOtherManagersOfTheConfiguration(t *testing.T) {
	config := &operatorv1alpha1.ListenerOperator{}
	for _, manager := range []string{"listener-operator", "listener-operator-scorecard"} {
		config.ManagedFields = append(config.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager})
	}
	if got := otherManagers(config); len(got) > 0 {
		t.Errorf("got %v for the operator and its tests", got)
	}
	config.ManagedFields = append(config.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl"}, metav1.ManagedFieldsEntry{Manager: "kubectl"})
	check.Equal(t, "field managers", []string{"kubectl"}, otherManagers(config))
}

func TestAwaitSeesChanges(t *testing.T) {
	c := fakeclient.New(t, interceptor.Funcs{
		// The object is created after the first list.
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
			if err := c.List(ctx, l, options...); err != nil {
				return err
			}
			return client.IgnoreAlreadyExists(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}}))
		},
	})
	e := &environment{client: c}
	got, err := await(t.Context(), e, "config map", &corev1.ConfigMapList{}, func(l *corev1.ConfigMapList) string {
		if len(l.Items) == 0 {
			return "not found"
		}
		return ""
	}, client.InNamespace("x"))
	if err != nil || len(got.Items) != 1 {
		t.Errorf("got %v, %v", got.Items, err)
	}
	for _, want := range []string{"config map: not found", "config map: done"} {
		if !strings.Contains(e.log.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, e.log.String())
		}
	}
}

func TestAwaitReportsWhatIsMissing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := &environment{client: fakeclient.New(t, interceptor.Funcs{})}
	_, err := await(ctx, e, "config map", &corev1.ConfigMapList{}, func(*corev1.ConfigMapList) string { return "not found" })
	if got := result("x", e, err).Results[0]; got.State != "fail" || got.Errors[0] != "config map: context canceled: not found" {
		t.Errorf("got %+v", got)
	}
}
