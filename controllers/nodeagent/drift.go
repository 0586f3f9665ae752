package nodeagent

import (
	"fmt"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// driftRepairs counts since the operator started. What others did while it was away is repaired as well, but cannot be told from what a
// new version of the operator changes.
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

// repaired takes note of an apply, and tells and counts whether it undid what somebody else had done since the one before it. before is nil if
// there was no object.
func (d *drift) repaired(c component, asked *unstructured.Unstructured, before, after client.Object) (bool, error) {
	if *d == nil {
		*d = drift{}
	}
	key := [2]string{c.kind, c.name}
	last, known := (*d)[key]
	(*d)[key] = applied{asked: asked, resourceVersion: after.GetResourceVersion()}
	if !known || !reflect.DeepEqual(last.asked, asked) || last.resourceVersion == after.GetResourceVersion() {
		return false, nil
	}
	if before != nil {
		// Others write as well what is theirs, such as the status.
		same, err := sameContent(before, after)
		if same || err != nil {
			return false, err
		}
	}
	driftRepairs.WithLabelValues(c.kind, c.name).Inc()
	return true, nil
}

// forget drops what is remembered of a component that is taken away.
func (d *drift) forget(c component) { delete(*d, [2]string{c.kind, c.name}) }

// sameContent compares all that can be asked for.
func sameContent(a, b client.Object) (bool, error) {
	contentOfA, err := content(a)
	if err != nil {
		return false, err
	}
	contentOfB, err := content(b)
	return equality.Semantic.DeepEqual(contentOfA, contentOfB), err
}

func content(o client.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("converting %T: %w", o, err)
	}
	fields["metadata"] = map[string]any{"labels": o.GetLabels(), "annotations": o.GetAnnotations(), "ownerReferences": o.GetOwnerReferences()}
	for _, field := range []string{"apiVersion", "kind", "status"} {
		delete(fields, field)
	}
	return fields, nil
}
