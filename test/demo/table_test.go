package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// pod returns a Pod of etcd.
func pod(name, uid, node, ip string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{PodIP: ip},
	}
}

func TestTableShowsMembersBeforeAndAfter(t *testing.T) {
	places := []member{{ID: 0x8e9e05c52164694d, Name: "etcd-0", Address: "10.89.0.11:31001"}, {ID: 2, Name: "etcd-1", Address: "10.89.0.12:31002"}}
	before := []corev1.Pod{pod("etcd-0", "a", "node-1", "10.244.1.3"), pod("etcd-1", "b", "node-2", "10.244.2.3")}
	after := []corev1.Pod{pod("etcd-0", "c", "node-1", "10.244.1.4"), before[1]}
	starts := map[types.UID]string{"a": "1.20s", "b": "-", "c": "0.80s"}

	got := table(rows(places, places, before, after, func(uid types.UID) string { return starts[uid] }))
	want := `MEMBER             POD      WHEN     NODE     POD IP       ADDRESS FOR CLIENTS   CREATED TO RUNNING
8e9e05c52164694d   etcd-0   before   node-1   10.244.1.3   10.89.0.11:31001      1.20s
                            after    node-1   10.244.1.4   10.89.0.11:31001      0.80s
2                  etcd-1   before   node-2   10.244.2.3   10.89.0.12:31002      -
                            after    node-2   10.244.2.3   10.89.0.12:31002      -
`
	check.Equal(t, "table", want, got)
}

func TestTableShowsMissingMember(t *testing.T) {
	places := []member{{ID: 1, Name: "etcd-0", Address: "10.89.0.11:31001"}}
	pods := []corev1.Pod{pod("etcd-0", "a", "node-1", "10.244.1.3")}

	got := rows(places, nil, pods, pods, func(types.UID) string { return "1s" })
	if want := (placement{node: "-", podIP: "-", address: "-", start: "-"}); got[0].after != want {
		t.Errorf("after: %v, want %v", got[0].after, want)
	}
}

func TestStartIsTimeFromCreationToRunning(t *testing.T) {
	times := &podTimes{created: map[types.UID]time.Time{}, running: map[types.UID]time.Time{}}
	second := func(s float64) time.Time { return time.Time{}.Add(time.Duration(s * float64(time.Second))) }
	fresh := pod("etcd-0", "fresh", "", "")
	times.observe(watch.Added, &fresh, second(1))
	times.observe(watch.Modified, &fresh, second(1.5))
	fresh.Status.Phase = corev1.PodRunning
	times.observe(watch.Modified, &fresh, second(2.25))
	times.observe(watch.Modified, &fresh, second(3))
	old := pod("etcd-1", "old", "node-1", "")
	old.Status.Phase = corev1.PodRunning
	times.observe(watch.Modified, &old, second(4))

	got := map[types.UID]string{}
	for _, uid := range []types.UID{"fresh", "old", "unknown"} {
		got[uid] = times.start(uid)
	}
	check.Equal(t, "times", map[types.UID]string{"fresh": "1.25s", "old": "-", "unknown": "-"}, got)
}
