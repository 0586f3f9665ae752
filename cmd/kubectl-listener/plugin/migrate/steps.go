package migrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Commands of the steps. Those to install are for plain manifests; docs/install.md has the others.
const (
	commandInstall     = "kubectl apply --server-side --force-conflicts --field-manager=listener-operator --filename install.yaml"
	commandSaveClasses = "kubectl get listenerclasses --output yaml" + withoutServerFields + "classes.yaml"
	// withoutServerFields removes what the API server sets, so that objects can be created again.
	withoutServerFields = ` | sed '/^ *\(resourceVersion\|uid\):/d' > `
	titleInstall        = "Install this operator. The command is for plain manifests; docs/install.md has those for Helm and OLM."
)

// steps returns the steps of the move. There are none if the other operator does not run, and this one is installed.
func (m *migration) steps() []step {
	steps := []step{}
	if !m.other.present() {
		if m.own.installed {
			return steps
		}
		steps = append(steps, m.removeWebhook()...)
		return append(steps, step{titleInstall, []string{commandInstall}}, m.check())
	}
	steps = append(steps, step{"Save the classes and the settings of the other operator.", m.save()})
	steps = append(steps, m.configure()...)
	install := step{titleInstall, []string{commandInstall}}
	if m.own.installed || len(m.missing) > 0 {
		install.Title = "Apply the manifests of this operator once more: the other one has written its own CustomResourceDefinitions, which lack fields."
	}
	steps = append(steps, step{"Uninstall the other operator, but keep its CustomResourceDefinitions. From now on, until the agents of this one run, Pods " +
		"with listener volumes neither start nor terminate; those that run keep running.", m.other.uninstall()})
	steps = append(steps, m.removeWebhook()...)
	steps = append(steps, install)
	if slices.ContainsFunc(m.classes, func(c listenersv1alpha1.ListenerClass) bool { return m.deletedWithRelease(&c) }) {
		steps = append(steps, step{"Create the classes again that were deleted; those that exist stay as they are.", []string{"kubectl create --filename classes.yaml"}})
	}
	return append(steps, m.check())
}

// configure returns the steps that set what this operator does not find by itself, while it waits for the end of the
// other one.
func (m *migration) configure() []step {
	if len(m.missing) == 0 {
		return nil
	}
	set := step{"Set what this operator does not find by itself.", []string{patchOf(m.missing)}}
	if m.own.installed {
		return []step{set}
	}
	return []step{{
		"Install this operator beside the other one. It waits, and writes nothing but its configuration. The command is for plain manifests; " +
			"docs/install.md has those for Helm and OLM.", []string{commandInstall, "kubectl wait --for=create listeneroperator/cluster"},
	}, set}
}

// present reports whether there is something to uninstall.
func (o *other) present() bool { return o.runs() || len(o.subscriptions) > 0 || len(o.versions) > 0 }

// save returns the commands that save what is needed for the way back.
func (m *migration) save() []string {
	commands := []string{commandSaveClasses}
	for _, r := range m.other.releases {
		commands = append(commands, fmt.Sprintf("helm get values %s --namespace %s --output yaml > values.yaml", r.Name, r.Namespace))
	}
	for _, s := range m.other.subscriptions {
		commands = append(commands, fmt.Sprintf("kubectl get subscriptions.operators.coreos.com %s --namespace %s --output yaml%ssubscription.yaml", s.Name, s.Namespace, withoutServerFields))
	}
	return commands
}

// uninstall returns the commands that remove the other operator: with what has installed it or, if that is unknown, its
// workloads.
func (o *other) uninstall() []string {
	var commands []string
	for _, s := range o.subscriptions {
		commands = append(commands, fmt.Sprintf("kubectl delete subscriptions.operators.coreos.com %s --namespace %s", s.Name, s.Namespace))
	}
	for _, v := range o.versions {
		commands = append(commands, fmt.Sprintf("kubectl delete clusterserviceversions.operators.coreos.com %s --namespace %s", v.Name, v.Namespace))
	}
	for _, r := range o.releases {
		commands = append(commands, fmt.Sprintf("helm uninstall %s --namespace %s", r.Name, r.Namespace))
	}
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

// patchOf returns the command that sets fields of the operator's configuration.
func patchOf(fields map[string]any) string {
	patch, err := json.Marshal(map[string]any{"spec": fields})
	if err != nil {
		panic(err) // maps of strings can be encoded
	}
	return fmt.Sprintf("kubectl patch listeneroperator cluster --type merge --patch '%s'", patch)
}

func (*migration) check() step {
	return step{"Check.", []string{
		"kubectl wait --for=create listeneroperator/cluster",
		"kubectl wait --for=condition=Available --timeout=5m listeneroperator/cluster",
		"kubectl listener doctor",
		"kubectl get listeners --all-namespaces",
	}}
}

// rollback returns the steps back.
func (m *migration) rollback() []step {
	reinstall := step{Title: "Install the other operator as before. It takes over the CustomResourceDefinitions."}
	for _, r := range m.other.releases {
		reinstall.Commands = append(reinstall.Commands, fmt.Sprintf("helm install %s CHART --namespace %s --values values.yaml", r.Name, r.Namespace))
	}
	for range m.other.subscriptions {
		reinstall.Commands = append(reinstall.Commands, "kubectl create --filename subscription.yaml")
	}
	return []step{
		{"Stop this operator, but keep the CustomResourceDefinitions, and with them all Listeners. Under OLM, delete its Subscription and ClusterServiceVersion " +
			"instead; with Helm, run helm uninstall.", []string{"kubectl delete deployment listener-operator --namespace listener-operator"}},
		{"Remove what it has installed. Pods keep running.", []string{
			`kubectl patch listeneroperator cluster --type merge --patch '{"metadata":{"finalizers":null}}'`,
			"kubectl delete listeneroperator cluster",
		}},
		reinstall,
		{"Delete the definition of its configuration, with which its admission policies go.", []string{"kubectl delete customresourcedefinition listeneroperators.listener-operator.dev"}},
	}
}
