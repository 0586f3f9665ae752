package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Commands of the steps. Those to install are for plain manifests; docs/install.md has the others.
const (
	commandInstall = "kubectl apply --server-side --force-conflicts --field-manager=listener-operator --filename install.yaml"
	// withoutServerFields removes what the API server sets, so that objects can be created again.
	withoutServerFields = ` | sed '/^ *\(resourceVersion\|uid\):/d' > `
	titleInstall        = "Install this operator. The command is for plain manifests; docs/install.md has those for Helm and OLM."
)

// steps returns the steps of the move. There are none if the other operator does not run, and this one is installed.
func (m *migration) steps() []step {
	install := step{titleInstall, []string{commandInstall}}
	switch {
	case !m.other.present() && m.installed:
		return []step{}
	case !m.other.present():
		return append(m.removeWebhook(), install, checkStep)
	}
	steps := append([]step{{"Save the classes and the settings of the other operator.", m.other.save()}}, m.configure()...)
	if m.installed || len(m.missing) > 0 {
		install.Title = "Apply the manifests of this operator once more: the other one has written its own CustomResourceDefinitions, which lack fields."
	}
	steps = append(steps, step{"Uninstall the other operator, but keep its CustomResourceDefinitions. From now on, until the agents of this one run, Pods " +
		"with listener volumes neither start nor terminate; those that run keep running.", m.other.uninstall()})
	steps = append(steps, m.removeWebhook()...)
	steps = append(steps, install)
	if slices.ContainsFunc(m.classes, func(c listenersv1alpha1.ListenerClass) bool { return m.deletedWithRelease(&c) }) {
		steps = append(steps, step{"Create the classes again that were deleted; those that exist stay as they are.", []string{"kubectl create --filename classes.yaml"}})
	}
	return append(steps, checkStep)
}

// configure returns the steps that set what this operator does not find by itself, while it waits for the end of the
// other one.
func (m *migration) configure() []step {
	if len(m.missing) == 0 {
		return nil
	}
	patch, err := json.Marshal(m.missing)
	m.Err = cmp.Or(m.Err, err)
	set := step{"Set what this operator does not find by itself.", []string{fmt.Sprintf("kubectl patch listeneroperator cluster --type merge --patch '%s'", patch)}}
	if m.installed {
		return []step{set}
	}
	return []step{{
		"Install this operator beside the other one. It waits, and writes nothing but its configuration. The command is for plain manifests; " +
			"docs/install.md has those for Helm and OLM.", []string{commandInstall, "kubectl wait --for=create listeneroperator/cluster"},
	}, set}
}

// present reports whether there is something to uninstall.
func (o *other) present() bool { return o.runs() || len(o.subscriptions) > 0 || len(o.versions) > 0 }

// each returns a command for each object. The format has its name and its namespace.
func each(objects []types.NamespacedName, format string) []string {
	var commands []string
	for _, o := range objects {
		commands = append(commands, fmt.Sprintf(format, o.Name, o.Namespace))
	}
	return commands
}

// save returns the commands that save what is needed for the way back.
func (o *other) save() []string {
	return slices.Concat(
		[]string{"kubectl get listenerclasses --output yaml" + withoutServerFields + "classes.yaml"},
		each(o.releases, "helm get values %s --namespace %s --output yaml > values.yaml"),
		each(o.subscriptions, "kubectl get subscriptions.operators.coreos.com %s --namespace %s --output yaml"+withoutServerFields+"subscription.yaml"),
	)
}

// uninstall returns the commands that remove the other operator: with what has installed it or, if that is unknown, its
// workloads.
func (o *other) uninstall() []string {
	commands := slices.Concat(
		each(o.subscriptions, "kubectl delete subscriptions.operators.coreos.com %s --namespace %s"),
		each(o.versions, "kubectl delete clusterserviceversions.operators.coreos.com %s --namespace %s"),
		each(o.releases, "helm uninstall %s --namespace %s"),
	)
	if len(commands) > 0 {
		return commands
	}
	for _, w := range o.Workloads {
		commands = append(commands, fmt.Sprintf("kubectl delete %s %s --namespace %s", strings.ToLower(w.Kind), w.Name, w.Namespace))
	}
	return commands
}

// removeWebhook returns the step that removes the other operator's conversion webhook, if definitions refer to it.
func (m *migration) removeWebhook() []step {
	if !m.webhook {
		return nil
	}
	s := step{Title: "Remove its conversion webhook, which nothing serves any more. Each definition has one version, so there is nothing to convert."}
	for _, name := range sharedDefinitions {
		s.Commands = append(s.Commands,
			"kubectl patch customresourcedefinition "+name+` --type merge --patch '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'`)
	}
	return []step{s}
}

var checkStep = step{"Check.", []string{
	"kubectl wait --for=create listeneroperator/cluster",
	"kubectl wait --for=condition=Available --timeout=5m listeneroperator/cluster",
	"kubectl listener doctor",
	"kubectl get listeners --all-namespaces",
}}

// rollback returns the steps back.
func (m *migration) rollback() []step {
	return []step{
		{"Stop this operator, but keep the CustomResourceDefinitions, and with them all Listeners. Under OLM, delete its Subscription and ClusterServiceVersion " +
			"instead; with Helm, run helm uninstall.", []string{"kubectl delete deployment listener-operator --namespace listener-operator"}},
		{"Remove what it has installed. Pods keep running.", []string{
			`kubectl patch listeneroperator cluster --type merge --patch '{"metadata":{"finalizers":null}}'`,
			"kubectl delete listeneroperator cluster",
		}},
		{"Install the other operator as before. It takes over the CustomResourceDefinitions.", slices.Concat(
			each(m.other.releases, "helm install %s CHART --namespace %s --values values.yaml"),
			slices.Repeat([]string{"kubectl create --filename subscription.yaml"}, len(m.other.subscriptions)),
		)},
		{"Delete the definition of its configuration, with which its admission policies go.", []string{"kubectl delete customresourcedefinition listeneroperators.listener-operator.dev"}},
	}
}
