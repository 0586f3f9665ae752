package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNotReadyNamesEachMemberAndReason(t *testing.T) {
	ready := func(name, uid string) corev1.Pod {
		p := pod(name, uid, "node-1", "10.244.1.3")
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return p
	}
	pending := pod("etcd-1", "b", "", "")
	pending.Status.Phase = corev1.PodPending
	unschedulable := *pending.DeepCopy()
	unschedulable.Status.Conditions = []corev1.PodCondition{{
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
	terminating := ready("etcd-1", "b")
	terminating.DeletionTimestamp = &metav1.Time{}

	for name, tc := range map[string]struct {
		pods    []corev1.Pod
		deleted types.UID
		want    string
	}{
		"all are ready":           {pods: []corev1.Pod{ready("etcd-0", "a"), ready("etcd-1", "b"), ready("etcd-2", "c")}},
		"no Pod exists":           {want: "etcd-0 missing, etcd-1 missing, etcd-2 missing"},
		"one cannot be scheduled": {pods: []corev1.Pod{ready("etcd-0", "a"), unschedulable, ready("etcd-2", "c")}, want: "etcd-1 is not scheduled: 0/3 nodes are available"},
		"one is pending":          {pods: []corev1.Pod{ready("etcd-0", "a"), pending, ready("etcd-2", "c")}, want: "etcd-1 Pending"},
		"one is being created":    {pods: []corev1.Pod{ready("etcd-0", "a"), starting, ready("etcd-2", "c")}, want: "etcd-1 ContainerCreating"},
		"one is not ready":        {pods: []corev1.Pod{ready("etcd-0", "a"), running, ready("etcd-2", "c")}, want: "etcd-1 is running, but not ready"},
		"one was restarted":       {pods: []corev1.Pod{ready("etcd-0", "a"), restarted, ready("etcd-2", "c")}, want: "etcd-1 was restarted 2 times"},
		"one is terminating":      {pods: []corev1.Pod{ready("etcd-0", "a"), terminating, ready("etcd-2", "c")}, want: "etcd-1 is terminating"},
		"one was just deleted":    {pods: []corev1.Pod{ready("etcd-0", "a"), ready("etcd-1", "b"), ready("etcd-2", "c")}, deleted: "b", want: "etcd-1 missing"},
		"the new Pod is ready":    {pods: []corev1.Pod{ready("etcd-0", "a"), ready("etcd-1", "d"), ready("etcd-2", "c")}, deleted: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			var deleted *corev1.Pod
			if tc.deleted != "" {
				deleted = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tc.deleted}}
			}
			wantText(t, notReady(tc.pods, deleted), tc.want)
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
