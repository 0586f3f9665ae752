package installation

import (
	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/config/samples"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Samples and a quick start for OpenShift's console are not in the bundle for OLM, because an installation there fails
// where the cluster does not serve one of the kinds.

// yamlSamples returns the examples of config/samples, as samples of OpenShift's console.
func yamlSamples() []Component {
	return []Component{
		yamlSample("listener-operator-listenerclass", "listeners.stackable.tech/v1alpha1", "ListenerClass", "A class for Pods that keep their node",
			"Each Pod stays on the node that it is first scheduled to, at a port that stays the same.", samples.ListenerClass()),
		yamlSample("listener-operator-listener", "listeners.stackable.tech/v1alpha1", "Listener", "An address that several Pods share",
			"Any of its addresses leads to any of the Pods that mount it by name.", samples.Listener()),
		yamlSample("listener-operator-statefulset", "apps/v1", "StatefulSet", "Pods with an address each",
			"Each Pod reads its own outside address from a volume, and in a second volume the one that they share.", samples.StatefulSet()),
	}
}

// yamlSample returns a sample that OpenShift's console shows to a user who creates an object of this kind.
func yamlSample(name, apiVersion, kind, title, description, yaml string) Component {
	return optional(names.KindConsoleYAMLSample, Component{Name: name, Extra: true, build: func(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
		return unstructuredObject(names.KindConsoleYAMLSample, "", name, map[string]any{
			"targetResource": map[string]any{"apiVersion": apiVersion, "kind": kind},
			"title":          title, "description": description, "yaml": yaml,
		}), nil
	}})
}

// quickStart is a guide to the first listener volume, in OpenShift's console.
func quickStart(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	task := func(title, description, check, help string) map[string]any {
		return map[string]any{
			"title": title, "description": description,
			"review": map[string]any{"instructions": check, "failedTaskHelp": help},
		}
	}
	return unstructuredObject(names.KindConsoleQuickStart, "", names.Operator, map[string]any{
		"displayName":     "Give Pods an address outside of the cluster",
		"durationMinutes": int64(10),
		"description":     "Give each replica of a StatefulSet the address at which clients outside of the cluster reach it.",
		"introduction": "The listener operator gives Pods stable addresses that clients outside of the cluster can use, and writes the " +
			"addresses of each Pod to files in a volume.",
		"tasks": []any{
			task("Check the operator", "Open **ListenerOperator** `cluster`, which the operator created, and see its conditions.",
				"Is the condition **Available** true?", "The condition **Degraded** names the problem and how to resolve it."),
			task("Choose a class", "A **ListenerClass** is the policy of the cluster's administrators. Three exist by default: `cluster-internal`, "+
				"`external-unstable` and `external-stable`. To add one, create a ListenerClass from the sample.",
				"Is there a suitable class?", "Ask an administrator of the cluster: only administrators may create classes."),
			task("Create a StatefulSet", "Create a **StatefulSet** from the sample *Pods with an address each*, in a project of your own. Its claims "+
				"name the class in the annotation `listeners.stackable.tech/listener-class`.",
				"Are all three Pods running?", "See the events of the claims and Pods, which name what is missing."),
			task("Read the address", "In the terminal of a Pod, run `cat /listener/default-address/address /listener/default-address/ports/http`.",
				"Does a client outside of the cluster reach the Pod at that address and port?",
				"See the **Listener** of the Pod's claim: its condition Ready names what it waits for."),
		},
		"conclusion": "Each Pod has its address in a file, and keeps the address. The documentation explains all fields and files.",
	}), nil
}
