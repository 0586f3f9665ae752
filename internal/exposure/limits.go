package exposure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Limits of what the author of a Listener writes. They are no limits of the schema, which would be an incompatible
// change of the CRD: the API server would reject updates of objects that exceed them. They are far above what is
// useful, and low enough for algorithms of libraries that compare each entry of a list with each other one.
const (
	// maxListedPorts is the number of entries in spec.ports. The class limits how many of them are exposed.
	maxListedPorts = 1024
	// maxLabels is the number of labels of a Listener. Each of the objects that are generated for it has them, too.
	maxLabels = 128
	// maxSelectorLabels is the number of spec.extraPodSelectorLabels.
	maxSelectorLabels = 64
	// maxListedOverrides is the number of entries in spec.objectOverrides. Most of them may be written for objects of
	// product operators, and cost no more than being read.
	maxListedOverrides = 1024
	// maxOverrides is the number of those that apply to the Service.
	maxOverrides = 16
	// maxOverrideBytes is the size of all that apply.
	maxOverrideBytes = 64 << 10
	// maxOverridePorts is the number of ports in an override: the largest value of spec.maxPorts of a class.
	maxOverridePorts = 1024
	// maxOverrideEntries is the number of entries of any other list in an override.
	maxOverrideEntries = 128
	// maxProblems is the number of invalid names that a message contains.
	maxProblems = 5
)

// checkSize returns a refusal if a Listener has more of something than is worked on.
func checkSize(listener *listenersv1alpha1.Listener) *Refusal {
	for _, list := range []struct {
		reason, name, entries string
		number, limit         int
	}{
		{listenersv1alpha1.ReasonInvalidPorts, "spec.ports", "entries", len(listener.Spec.Ports), maxListedPorts},
		{listenersv1alpha1.ReasonServiceRejected, "spec.extraPodSelectorLabels", "labels", len(listener.Spec.ExtraPodSelectorLabels), maxSelectorLabels},
		{listenersv1alpha1.ReasonServiceRejected, "metadata.labels", "labels", len(listener.Labels), maxLabels},
		{listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides", "entries", len(listener.Spec.ObjectOverrides), maxListedOverrides},
	} {
		if list.number > list.limit {
			return Refuse(list.reason, "%s has %d %s, of at most %d; remove some", list.name, list.number, list.entries, list.limit)
		}
	}
	return nil
}

// checkLists returns an error if a list in an override has too many entries. path is that of the value.
func checkLists(path string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := checkLists(strings.TrimPrefix(path+"."+key, "."), v[key]); err != nil {
				return err
			}
		}
	case []any:
		limit := maxOverrideEntries
		if path == "spec.ports" {
			limit = maxOverridePorts
		}
		if len(v) > limit {
			return fmt.Errorf("%s has %d entries, of at most %d; remove some", path, len(v), limit)
		}
		for _, entry := range v {
			if err := checkLists(path+"[]", entry); err != nil {
				return err
			}
		}
	}
	return nil
}
