package nodeagent

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// driftRepairs counts since the operator started. What others did while it was away is repaired as well, but cannot be
// told from what a new version of the operator changes.
var driftRepairs = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "listener_operator_drift_repairs_total",
	Help: "How often an object that the operator installed was put right after somebody else had changed or deleted it.",
}, []string{"kind", "name"})

func init() { metrics.Registry.MustRegister(driftRepairs) }

// drift tells repairs from other writes. It remembers what each component was last applied as, by kind and name.
type drift map[[2]string]applied

// applied is what was last asked for, and the version that the API server answered with.
type applied struct {
	asked           *unstructured.Unstructured
	resourceVersion string
}

// repaired takes note of an apply, and tells and counts whether it undid what somebody else had done since the one
// before it. before is nil if there was no object.
func (d *drift) repaired(c component, asked *unstructured.Unstructured, before, after client.Object) (bool, error) {
	if *d == nil {
		*d = drift{}
	}
	key := [2]string{c.kind, c.name}
	last := (*d)[key]
	(*d)[key] = applied{asked: asked, resourceVersion: after.GetResourceVersion()}
	// Before the first apply, nothing was asked for.
	if !reflect.DeepEqual(last.asked, asked) || last.resourceVersion == after.GetResourceVersion() {
		return false, nil
	}
	if before != nil {
		differ, err := differ(asked, before, after)
		if !differ || err != nil {
			return false, err
		}
	}
	driftRepairs.WithLabelValues(c.kind, c.name).Inc()
	return true, nil
}

// forget drops what is remembered of a component that is taken away.
func (d *drift) forget(c component) { delete(*d, [2]string{c.kind, c.name}) }

// differ tells whether two versions of an object differ in what was asked for. Others may write what is theirs, such as
// the status, in between.
func differ(asked *unstructured.Unstructured, before, after client.Object) (bool, error) {
	contents := make([]map[string]any, 2)
	for i, o := range []client.Object{before, after} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return false, fmt.Errorf("converting %T: %w", o, err)
		}
		contents[i] = content
	}
	fields := maps.Clone(asked.Object)
	delete(fields, "apiVersion") // which typed objects need not have
	delete(fields, "kind")
	return differIn(fields, contents[0], contents[1]), nil
}

func differIn(asked, before, after any) bool {
	fields, ok := asked.(map[string]any)
	if !ok {
		return !reflect.DeepEqual(before, after)
	}
	was, _ := before.(map[string]any)
	is, _ := after.(map[string]any)
	for name, field := range fields {
		if differIn(field, was[name], is[name]) {
			return true
		}
	}
	return false
}
