package podlisteners_test

import "testing"

// The hint is created in the name that the peer used for it (contract 1.2), so that the object has one field owner over
// a takeover.
func TestAHintIsCreatedInTheNameOfItsFieldOwner(t *testing.T) {
	w := newWorld(t)
	w.startAgent()
	w.ask(t.Context(), "pvc-1")
	fields := w.waitForHint().ManagedFields
	if len(fields) != 1 || fields[0].Manager != "listeners.stackable.tech" {
		t.Errorf("field owners of the hint: %+v", fields)
	}
}
