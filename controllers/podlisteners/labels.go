package podlisteners

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

// labels returns the labels of a Pod, also those that the cache does not have yet.
func (r *Reconciler) labels(pod *corev1.Pod) map[string]string {
	w := r.writtenFor(listenersv1alpha1.PodListenersName(pod.UID))
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, w.version); err == nil && order < 0 {
		return w.labels // there is an event of that version, so it does not matter if the Pod has lost them since
	}
	w.labels, w.version = nil, ""
	return pod.Labels
}

// labelPod adds the labels of Listeners that a Pod lacks, and keeps those of its other mounts (contract: the labels),
// but removes the labels, which are nil, that it has as the copy of another Pod.
func (r *Reconciler) labelPod(ctx context.Context, p *pass, labels map[string]any) error {
	w, has := r.writtenFor(listenersv1alpha1.PodListenersName(p.pod.UID)), r.labels(p.pod)
	mounts := maps.Clone(labels)
	maps.DeleteFunc(labels, func(key string, value any) bool {
		label, _ := value.(string)
		return has[key] == label
	})
	if len(labels) == 0 {
		return nil
	}
	if !w.repairs.permit(labels, r.Clock) {
		p.again.Add(repairInterval, "something removes labels of the Pod again and again")
		return nil
	}
	labelled := p.pod.DeepCopy() // the client decodes the response into it
	if err := apply.PatchMetadata(ctx, r.Client, labelled, names.FieldManagerDefault,
		map[string]any{"labels": labels}); err != nil {
		return client.IgnoreNotFound(err)
	}
	if w.repairs.done(labels) {
		p.warnLabels(labelled)
	}
	maps.DeleteFunc(labelled.Labels, func(key, _ string) bool { // others may have set any number
		_, own := mounts[key]
		return !own
	})
	w.labels, w.version = labelled.Labels, labelled.ResourceVersion
	return nil
}

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
