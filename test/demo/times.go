package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podTimes measures how long Pods take from creation to Running. It uses the times of the watch events, because
// timestamps in a Pod's status are whole seconds.
type podTimes struct {
	stop    func()
	mutex   sync.Mutex
	created map[types.UID]time.Time
	running map[types.UID]time.Time
}

// timePods measures the Pods that are created in etcd's namespace from now on, until its stop function is called.
func (d *demo) timePods(ctx context.Context) (*podTimes, error) {
	var pods corev1.PodList
	if err := d.client.List(ctx, &pods, client.InNamespace(etcdNamespace)); err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	watcher, err := d.client.Watch(ctx, &pods, client.InNamespace(etcdNamespace), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: pods.ResourceVersion},
	})
	if err != nil {
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	t := &podTimes{stop: watcher.Stop, created: map[types.UID]time.Time{}, running: map[types.UID]time.Time{}}
	go func() {
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				t.observe(event.Type, pod, time.Now())
			}
		}
	}()
	return t, nil
}

// observe records the time of an event.
func (t *podTimes) observe(event watch.EventType, pod *corev1.Pod, now time.Time) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if event == watch.Added {
		t.created[pod.UID] = now
	}
	if _, known := t.running[pod.UID]; !known && pod.Status.Phase == corev1.PodRunning {
		t.running[pod.UID] = now
	}
}

// start returns how long a Pod took from creation to Running, or "-" if it was created before the measurement.
func (t *podTimes) start(pod types.UID) string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	created, seen := t.created[pod]
	running, runs := t.running[pod]
	if !seen || !runs {
		return "-"
	}
	return fmt.Sprintf("%.2fs", running.Sub(created).Seconds())
}
