package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
)

// template returns a Pod template with one container.
func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
}

func TestRollingOut(t *testing.T) {
	done := func(change func(*appsv1.Deployment)) []appsv1.Deployment {
		d := appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Generation: 2},
			Spec:       appsv1.DeploymentSpec{Template: template("new")},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
		}
		change(&d)
		return []appsv1.Deployment{d}
	}
	for name, tc := range map[string]struct {
		deployments []appsv1.Deployment
		want        string
	}{
		"done":      {deployments: done(func(*appsv1.Deployment) {})},
		"none":      {want: "no Deployment yet"},
		"old image": {deployments: done(func(d *appsv1.Deployment) { d.Spec.Template = template("old") }), want: "the Deployment does not have the image yet"},
		"not seen":  {deployments: done(func(d *appsv1.Deployment) { d.Generation = 3 }), want: "the Deployment has just changed"},
		"old Pod":   {deployments: done(func(d *appsv1.Deployment) { d.Status.Replicas = 2 }), want: "2 Pods, 1 of them updated, 1 available, wanted 1"},
		"not ready": {deployments: done(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 0 }), want: "1 Pods, 1 of them updated, 0 available, wanted 1"},
	} {
		t.Run(name, func(t *testing.T) { wantText(t, rollingOut(tc.deployments, "new"), tc.want) })
	}
}

func TestAgentsRollingOut(t *testing.T) {
	done := func(change func(*appsv1.DaemonSet)) []appsv1.DaemonSet {
		d := appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Generation: 2},
			Spec:       appsv1.DaemonSetSpec{Template: template("new")},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: 2, UpdatedNumberScheduled: nodes, NumberAvailable: nodes},
		}
		change(&d)
		return []appsv1.DaemonSet{d}
	}
	for name, tc := range map[string]struct {
		daemonSets []appsv1.DaemonSet
		want       string
	}{
		"done":      {daemonSets: done(func(*appsv1.DaemonSet) {})},
		"none":      {want: "no DaemonSet yet"},
		"old image": {daemonSets: done(func(d *appsv1.DaemonSet) { d.Spec.Template = template("old") }), want: "the DaemonSet does not have the image yet"},
		"not seen":  {daemonSets: done(func(d *appsv1.DaemonSet) { d.Generation = 3 }), want: "the DaemonSet has just changed"},
		"old agent": {daemonSets: done(func(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 1 }), want: "1 updated, 3 available, wanted 3"},
		"not ready": {daemonSets: done(func(d *appsv1.DaemonSet) { d.Status.NumberAvailable = 2 }), want: "3 updated, 2 available, wanted 3"},
	} {
		t.Run(name, func(t *testing.T) { wantText(t, agentsRollingOut(tc.daemonSets, "new"), tc.want) })
	}
}

func TestUnavailable(t *testing.T) {
	done := func(change func(*operatorv1alpha1.ListenerOperator)) []operatorv1alpha1.ListenerOperator {
		o := operatorv1alpha1.ListenerOperator{
			ObjectMeta: metav1.ObjectMeta{Generation: 1},
			Status: operatorv1alpha1.ListenerOperatorStatus{
				ObservedGeneration: 1,
				NodeAgent:          operatorv1alpha1.NodeAgentStatus{Desired: nodes, Ready: nodes, Updated: nodes},
				Conditions:         []metav1.Condition{{Type: operatorv1alpha1.ConditionAvailable, Status: metav1.ConditionTrue}},
			},
		}
		change(&o)
		return []operatorv1alpha1.ListenerOperator{o}
	}
	for name, tc := range map[string]struct {
		operators []operatorv1alpha1.ListenerOperator
		want      string
	}{
		"available": {operators: done(func(*operatorv1alpha1.ListenerOperator) {})},
		"none":      {want: "not created yet"},
		"no status": {operators: done(func(o *operatorv1alpha1.ListenerOperator) { o.Status = operatorv1alpha1.ListenerOperatorStatus{} }), want: "no status yet"},
		"not available": {
			operators: done(func(o *operatorv1alpha1.ListenerOperator) {
				o.Status.Conditions[0] = metav1.Condition{
					Type: operatorv1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: "ApplyFailed", Message: "No right to do it",
				}
			}),
			want: "not Available: ApplyFailed: No right to do it",
		},
		"an agent is missing": {
			operators: done(func(o *operatorv1alpha1.ListenerOperator) { o.Status.NodeAgent.Ready = 2 }),
			want:      "2 of 3 agents are ready",
		},
	} {
		t.Run(name, func(t *testing.T) { wantText(t, unavailable(tc.operators), tc.want) })
	}
}

func TestNotReady(t *testing.T) {
	ready := func(name, uid string) corev1.Pod {
		p := pod(name, uid, "node-1", "10.244.1.3")
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return p
	}
	pending := pod("etcd-1", "b", "", "")
	pending.Status.Phase = corev1.PodPending
	refused := *pending.DeepCopy()
	refused.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available",
	}}
	starting := pod("etcd-1", "b", "node-2", "")
	starting.Status.Phase = corev1.PodPending
	starting.Status.ContainerStatuses = []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}}
	running := pod("etcd-1", "b", "node-2", "10.244.2.3")
	running.Status.Phase = corev1.PodRunning
	restarted := *running.DeepCopy()
	restarted.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 2}}
	leaving := ready("etcd-1", "b")
	leaving.DeletionTimestamp = &metav1.Time{}

	for name, tc := range map[string]struct {
		pods []corev1.Pod
		gone types.UID
		want string
	}{
		"all are ready":          {pods: []corev1.Pod{ready("etcd-0", "a"), ready("etcd-1", "b"), ready("etcd-2", "c")}},
		"none is there":          {want: "etcd-0 missing, etcd-1 missing, etcd-2 missing"},
		"one fits no node":       {pods: []corev1.Pod{ready("etcd-0", "a"), refused, ready("etcd-2", "c")}, want: "etcd-1 is not scheduled: 0/3 nodes are available"},
		"one is not scheduled":   {pods: []corev1.Pod{ready("etcd-0", "a"), pending, ready("etcd-2", "c")}, want: "etcd-1 Pending"},
		"one is being created":   {pods: []corev1.Pod{ready("etcd-0", "a"), starting, ready("etcd-2", "c")}, want: "etcd-1 ContainerCreating"},
		"one is not ready":       {pods: []corev1.Pod{ready("etcd-0", "a"), running, ready("etcd-2", "c")}, want: "etcd-1 runs, but is not ready"},
		"one has failed":         {pods: []corev1.Pod{ready("etcd-0", "a"), restarted, ready("etcd-2", "c")}, want: "etcd-1 restarted 2 times"},
		"one ends":               {pods: []corev1.Pod{ready("etcd-0", "a"), leaving, ready("etcd-2", "c")}, want: "etcd-1 terminates"},
		"one was just deleted":   {pods: []corev1.Pod{ready("etcd-0", "a"), ready("etcd-1", "b"), ready("etcd-2", "c")}, gone: "b", want: "etcd-1 missing"},
		"the successor is ready": {pods: []corev1.Pod{ready("etcd-0", "a"), ready("etcd-1", "d"), ready("etcd-2", "c")}, gone: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			var gone *corev1.Pod
			if tc.gone != "" {
				gone = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tc.gone}}
			}
			wantText(t, notReady(tc.pods, gone), tc.want)
		})
	}
}

// wantText compares two texts.
func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
