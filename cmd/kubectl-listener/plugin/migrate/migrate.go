// Package migrate has the command `kubectl listener migrate`, which finds what the move from Stackable's listener
// operator changes in a cluster. docs/moving-over.md has the steps.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

func NewCommand(e *command.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Find what would change if this operator replaced Stackable's",
		Long: `Find what would change if this operator replaced Stackable's listener operator.

The command compares the settings of both operators, and shows each Listener, class and claim that this operator treats
differently. The exit status is 1 if something blocks the move. The command only reads; the
steps are in docs/moving-over.md.

It needs the permissions of a cluster administrator. What you may not read is marked with ?.`,
		Example: `  # What would change?
  kubectl listener migrate

  # Only what blocks the move, for programs
  kubectl listener migrate --output json | jq '.findings[] | select(.state == "Failed")'`,
		RunE: e.Examine(func(out io.Writer, r *check.Report) {
			command.WriteChecksOr(out, r, "Nothing blocks the move. The steps: docs/moving-over.md")
		}, func(ctx context.Context, x *check.Examination, _ []string) error {
			(&migration{Walk: walk.New(x)}).compare(ctx)
			return nil
		}),
	}
	e.AddOutputFlag(cmd)
	return cmd
}

// migration compares two operators. The fields are what was found.
type migration struct {
	*walk.Walk
	classes   listenersv1alpha1.ListenerClassList
	listeners listenersv1alpha1.ListenerList
	// other is Stackable's listener operator. preset and clusterDomain are its settings, or empty for the default.
	other                 stackable.Installation
	preset, clusterDomain string
	// agents is the Pod template of its node driver, or empty if it is unknown.
	agents corev1.PodSpec
}

func (m *migration) compare(ctx context.Context) {
	m.All(ctx, &m.classes, &m.listeners)
	m.observeOther(ctx)
	m.compareSettings(ctx)
	m.compareClasses()
	m.compareListeners()
	m.compareClaims(ctx)
}

func (m *migration) observeOther(ctx context.Context) {
	var pods corev1.PodList
	read := m.All(ctx, &pods)
	m.Readable(check.Finding{Kind: "SubjectAccessReview"},
		m.Request("looking for Stackable's listener operator", func() (err error) {
			m.other, err = new(stackable.Finder).Among(ctx, m.Client, pods.Items, time.Now())
			return err
		}))
	for _, w := range m.other.Workloads {
		m.observeWorkload(ctx, w)
	}
	if read && len(m.other.Workloads) == 0 {
		m.Add(check.Finding{Kind: "Deployment"}.OK("Stackable's listener operator does not run"))
	}
}

func (m *migration) observeWorkload(ctx context.Context, w stackable.Workload) {
	f := check.Finding{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
	deployment, daemonSet := &appsv1.Deployment{}, &appsv1.DaemonSet{}
	o, known := map[string]client.Object{"Deployment": deployment, "DaemonSet": daemonSet}[w.Kind]
	if !known {
		m.Add(f.Warning("", "runs Stackable's listener operator"))
		return
	}
	if m.Read(ctx, f, o) == check.Forbidden {
		return
	}
	template := deployment.Spec.Template.Spec
	if w.Kind == "DaemonSet" {
		template = daemonSet.Spec.Template.Spec
		m.agents = template
	}
	for _, c := range template.Containers {
		for _, v := range c.Env {
			switch v.Name { // contract: takeover
			case "LISTENER_CLASS_PRESET":
				m.preset = v.Value
			case "KUBERNETES_CLUSTER_DOMAIN":
				m.clusterDomain = v.Value
			}
		}
	}
	m.Add(f.OK("runs Stackable's listener operator, and has to be uninstalled"))
}

// placement returns which settings of the other operator restrict the nodes that its agents run on, for a message.
func (m *migration) placement() string {
	var set []string
	if len(m.agents.NodeSelector) > 0 {
		set = append(set, "nodeSelector "+labels.FormatLabels(m.agents.NodeSelector))
	}
	if m.agents.Affinity != nil {
		set = append(set, "affinity")
	}
	return strings.Join(set, ", ")
}

// compareSettings compares the settings of the other operator with the configuration of this one or, as long as there
// is none, with what it finds when it starts for the first time.
func (m *migration) compareSettings(ctx context.Context) {
	if len(m.other.Workloads) == 0 {
		return
	}
	config := &operatorv1alpha1.ListenerOperator{}
	configured := m.Get(ctx, types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName}, config) == check.Present
	// The domain of the Pods' resolver is not known here, so a setting other than the default is carried over.
	if !configured {
		config.Spec = stackable.Settings(m.classes.Items, m.listeners.Items, "")
	}
	f := check.Finding{Kind: "ListenerOperator", Name: operatorv1alpha1.ListenerOperatorName}
	for _, setting := range []struct{ path, other, carried string }{
		{"spec.preset", m.preset, string(cmp.Or(config.Spec.Preset, operatorv1alpha1.PresetEphemeralNodes))},
		{"spec.clusterDomain", m.clusterDomain, config.ClusterDomain("")},
		{"spec.nodeAgent.kubeletDir", m.other.KubeletDir,
			cmp.Or(config.Spec.NodeAgent.KubeletDir, components.DefaultKubeletDir)},
	} {
		switch {
		case setting.other == "":
		case setting.other == setting.carried && configured:
			m.Add(f.OK("%s is %s, as in the other operator", setting.path, setting.other))
		case setting.other == setting.carried:
			m.Add(f.OK("%s will be %s, as in the other operator", setting.path, setting.other))
		default:
			m.Add(f.Warning("", fmt.Sprintf("%s is %s in the other operator, and would be %s: set it before the move",
				setting.path, setting.other, setting.carried)))
		}
	}
	if restricted := m.placement(); restricted != "" {
		m.Add(f.Warning("", "agents run on all nodes, whatever their taints; the agents of the other operator have "+
			restricted+", which you can set in spec.nodeAgent"))
	}
}

// compareClasses finds the classes that go with the other operator's Helm release, and what of a class is ignored.
func (m *migration) compareClasses() {
	for class := range check.Each(m.classes.Items) {
		f, release := check.Finding{Kind: "ListenerClass", Name: class.Name},
			class.Annotations["meta.helm.sh/release-name"]
		switch ignored := exposure.UnknownOverrides(class); {
		case release != "" && class.Annotations["helm.sh/resource-policy"] != "keep":
			m.Add(f.Warning("", "is deleted with the Helm release "+release+", so save it first"))
		case len(ignored) > 0:
			m.Add(f.Warning(listenersv1alpha1.ReasonSettingsIgnored, strings.Join(ignored, "; ")))
		default:
			m.Add(f.OK("stays as it is"))
		}
	}
}

func (m *migration) compareListeners() {
	classes := map[string]*listenersv1alpha1.ListenerClass{}
	for class := range check.Each(m.classes.Items) {
		classes[class.Name] = class
	}
	var findings []check.Finding
	for l := range check.Each(m.listeners.Items) {
		f := check.Finding{Kind: "Listener", Namespace: l.Namespace, Name: l.Name, State: check.OK}
		if class := classes[l.Class()]; class == nil {
			f = f.Warning("", fmt.Sprintf("its class %q does not exist, so it keeps the addresses that it has",
				l.Class()))
		} else if _, refusal := m.Backends.Of(class).Service(class, l); refusal != nil {
			f = f.FailedBy(refusal.Reason, refusal.Message)
			f.Remedy += " Until then, its Service and its addresses stay as they are."
		}
		findings = append(findings, f)
	}
	m.AddAll(findings, "Listeners", "%d keep their Services, node ports and addresses")
}

func (m *migration) compareClaims(ctx context.Context) {
	var claims corev1.PersistentVolumeClaimList
	m.All(ctx, &claims)
	listeners := map[client.ObjectKey]*listenersv1alpha1.Listener{}
	for l := range check.Each(m.listeners.Items) {
		listeners[client.ObjectKeyFromObject(l)] = l
	}
	var findings []check.Finding
	for pvc := range check.Each(claims.Items) {
		if !walk.RequestsListener(pvc) {
			continue
		}
		f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, State: check.OK}
		own := listeners[client.ObjectKeyFromObject(pvc)]
		switch selector, err := claim.ParseSelector(pvc.Annotations); {
		case own != nil && claim.OwnsListener(own) && selector.Class != "" && selector.Class != own.Class():
			f = f.Warning(listenersv1alpha1.ReasonClassOfClaim,
				fmt.Sprintf("names class %s, and its Listener has class %s: this operator gives the Listener the "+
					"class of the claim, and other addresses with it", selector.Class, own.Class()))
		case !errors.Is(err, claim.ErrBothSelectors):
		case pvc.Spec.VolumeName == "":
			f = f.Failed(listenersv1alpha1.ReasonInvalidClaim, err.Error(),
				"Create the claim again, with one of the two annotations.")
		default:
			f = f.Warning(listenersv1alpha1.ReasonInvalidClaim,
				"has two annotations that contradict each other, and works because it has its volume; a new claim of "+
					"the same template would not")
		}
		findings = append(findings, f)
	}
	m.AddAll(findings, "PersistentVolumeClaims", "%d keep their volumes")
}
