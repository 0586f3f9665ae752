package listener

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// outcome is what the status of a Listener follows from, apart from the snapshot.
type outcome struct {
	*written
	addresses
	idle
	placement exposure.Placement
	now       metav1.Time
}

// refused returns why the Listener is not accepted, or nil.
func (o *outcome) refused() *exposure.Refusal { return cmp.Or(o.refusal, o.taken) }

// undecided reports whether the API server has neither accepted nor rejected the plan.
func (o *outcome) undecided() bool { return o.err != nil && o.refusal == nil }
