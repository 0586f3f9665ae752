package predicates_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/listener-operator/listener-operator/internal/predicates"
)

func TestAfterTheStartEverythingIsPassed(t *testing.T) {
	p, service := predicates.AfterStart(), &corev1.Service{}
	if p.Create(event.CreateEvent{Object: service, IsInInitialList: true}) {
		t.Error("what was there at the start is passed")
	}
	if !p.Create(event.CreateEvent{Object: service}) || !p.Update(event.UpdateEvent{ObjectOld: service, ObjectNew: service}) ||
		!p.Delete(event.DeleteEvent{Object: service}) || !p.Generic(event.GenericEvent{Object: service}) {
		t.Error("what changes later is left out")
	}
}
