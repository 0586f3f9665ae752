package names_test

import (
	"testing"

	"github.com/listener-operator/listener-operator/internal/names"
)

// Consumers and the objects in existing clusters contain these names (contract: names and constants), so they must
// never change.
func TestNamesAreThoseOfTheContract(t *testing.T) {
	for want, got := range map[string]string{
		"listeners.stackable.tech":                                     names.Driver,
		"listeners.stackable.tech/listener-class":                      names.AnnotationListenerClass,
		"listeners.stackable.tech/listener-name":                       names.AnnotationListenerName,
		"listeners.stackable.tech/listener-namespace":                  names.LabelListenerNamespace,
		"listeners.stackable.tech/hostname":                            names.TopologyKey,
		"listener":                                                     names.ServiceAppName,
		"listeners.stackable.tech_listener":                            names.ServiceManagedBy,
		"listener.listeners.stackable.tech":                            names.EventReporter,
		"listeners.stackable.tech/volume":                              names.FieldManagerVolume,
		"listeners.stackable.tech/listeners.stackable.tech_listener":   names.FieldManagerService,
		"listeners.stackable.tech/listener":                            names.FieldManagerListenerStatus,
		"listener-operator":                                            names.FieldManagerOperator,
		"listener.stackable.tech/mnt.0123abcd00004000800000000000beef": names.PodMountLabel("0123abcd-0000-4000-8000-00000000beef"),
	} {
		if got != want {
			t.Errorf("got %q, the contract has %q", got, want)
		}
	}
	// Not part of the contract, but in the objects of existing clusters as well.
	if names.AnnotationNode != "listeners.stackable.tech/node" {
		t.Errorf("got %q", names.AnnotationNode)
	}
	// Part of the contract, too. Another name that has the same value is a key of the map.
	if names.LabelListenerName != "listeners.stackable.tech/listener-name" || names.FieldManagerDefault != "listeners.stackable.tech" {
		t.Errorf("got %q and %q", names.LabelListenerName, names.FieldManagerDefault)
	}
}
