package podlisteners

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/listener-operator/listener-operator/internal/names"
)

// A label that was removed is added again at once, unless that happens to the Pod again and again: then once in this
// time, so that two writers cannot keep the API server busy.
const (
	repairInterval = time.Second
	repairsAtOnce  = 10
)

// repairs are the labels that a Pod was given, and how often some of them had to be added again.
type repairs struct {
	given []string // keys
	count int
	limit flowcontrol.PassiveRateLimiter // nil until the first repair
}

// permit reports whether labels may be added now. Those that the Pod was never given always may.
func (r *repairs) permit(labels map[string]any, now clock.PassiveClock) bool {
	if !r.repair(labels) {
		return true
	}
	if r.limit == nil {
		r.limit = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(time.Second)/float32(repairInterval),
			repairsAtOnce, now)
	}
	return r.limit.TryAccept()
}

// done records labels that were added, and reports whether to warn that something removes them.
func (r *repairs) done(labels map[string]any) (warn bool) {
	if r.repair(labels) {
		repairedPods.Inc()
		r.count++
		warn = r.count > 1 && r.count&(r.count-1) == 0 // the second time, the fourth, the eighth and so on
	}
	for key, value := range labels {
		if value != nil && !slices.Contains(r.given, key) {
			r.given = append(r.given, key)
		}
	}
	return warn
}

// repair reports whether the Pod was given one of the labels before.
func (r *repairs) repair(labels map[string]any) bool {
	return slices.ContainsFunc(r.given, func(key string) bool { return labels[key] != nil })
}

// labelManagers returns the field managers that have written labels of the Pod, other than the operator.
func labelManagers(pod *corev1.Pod) (managers []string) {
	for _, e := range pod.ManagedFields {
		var fields struct {
			Metadata struct {
				Labels map[string]any `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil ||
			len(fields.Metadata.Labels) == 0 {
			continue
		}
		if e.Manager != names.FieldManagerDefault && !slices.Contains(managers, e.Manager) {
			managers = append(managers, e.Manager)
		}
	}
	return managers
}
