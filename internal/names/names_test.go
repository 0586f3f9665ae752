package names_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

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

// A Service must keep its name, so none of these may ever change.
func TestAServiceHasTheNameOfItsListenerOrOneThatIsDerivedFromIt(t *testing.T) {
	long := strings.Repeat("a", 63)
	for listener, want := range map[string]string{
		"web": "web", "listener-web-0": "listener-web-0", long: long,
		"7days-data": "l-7days-data-HASH", "web.one": "web-one-HASH", "web-one": "web-one", "1.web": "l-1-web-HASH",
		long + "b": long[:54] + "-HASH", "7" + long: "l-7" + long[:51] + "-HASH",
	} {
		got := names.Service(listener)
		sum := sha256.Sum256([]byte(listener))
		if want = strings.ReplaceAll(want, "HASH", hex.EncodeToString(sum[:])[:8]); got != want {
			t.Errorf("%s: got %q, want %q", listener, got, want)
		}
		if problems := validation.IsDNS1035Label(got); len(problems) > 0 {
			t.Errorf("%s: %q: %s", listener, got, problems)
		}
		if problems := validation.IsValidLabelValue(names.ListenerLabel(listener)); len(problems) > 0 {
			t.Errorf("%s: %q: %s", listener, names.ListenerLabel(listener), problems)
		}
	}
	if got := names.Service("7days-data"); got != "l-7days-data-4fa8314e" {
		t.Errorf("got %q", got)
	}
	if a, b := names.Service(long+"b"), names.Service(long+"c"); a == b {
		t.Errorf("two Listeners have Service %s", a)
	}
	if got := names.ListenerLabel("7days-data"); got != "7days-data" {
		t.Errorf("the label is %q", got)
	}
}
