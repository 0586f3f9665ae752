package predicates_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/listener-operator/listener-operator/internal/predicates"
)

func TestOnlyTheInitialListIsDropped(t *testing.T) {
	p, service := predicates.NotInInitialList(), &corev1.Service{}
	if p.Create(event.CreateEvent{Object: service, IsInInitialList: true}) {
		t.Error("an object of the initial list is passed")
	}
	if !p.Create(event.CreateEvent{Object: service}) || !p.Update(event.UpdateEvent{ObjectOld: service, ObjectNew: service}) ||
		!p.Delete(event.DeleteEvent{Object: service}) || !p.Generic(event.GenericEvent{Object: service}) {
		t.Error("a later event is dropped")
	}
}
