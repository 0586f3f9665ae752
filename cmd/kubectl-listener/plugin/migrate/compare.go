package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

// sharedDefinitions are the names of the CustomResourceDefinitions that both operators have.
var sharedDefinitions = []string{"listenerclasses.listeners.stackable.tech", "listeners.listeners.stackable.tech", "podlisteners.listeners.stackable.tech"}

// compareDefinitions finds the references to the other operator's conversion webhook.
func (m *migration) compareDefinitions(ctx context.Context) {
	for _, name := range sharedDefinitions {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		f := check.Finding{Kind: "CustomResourceDefinition", Name: name}
		if m.Follow(ctx, f, crd) != check.Present {
			continue
		}
		text := "stays, with all objects"
		if crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter {
			m.webhook = true
			text += "; its conversion webhook is removed"
		}
		m.Add(f.OK("%s", text))
	}
}

// compareStorage compares the StorageClass, whose binding mode cannot be changed.
func (m *migration) compareStorage(ctx context.Context) {
	class := &storagev1.StorageClass{}
	f := check.Finding{Kind: "StorageClass", Name: names.Driver}
	if m.Follow(ctx, f, class) == check.Present && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
		m.Add(f.OK("is replaced by one that binds claims at once; volumes stay"))
	}
}

// compareSettings compares the settings of the other operator with the configuration of this one or, as long as there
// is none, with what it finds when it starts for the first time.
func (m *migration) compareSettings(context.Context) {
	if !m.other.runs() {
		return
	}
	// Which domain the resolver of a Pod has, is not known here: a setting that names another one than the default is
	// carried over, even if the resolver has it, too.
	desired := stackable.Settings(m.classes, m.listeners, "")
	if m.config != nil {
		desired = m.config.Spec
	}
	f := check.Finding{Kind: "ListenerOperator", Name: operatorv1alpha1.ListenerOperatorName}
	for _, setting := range []struct{ path, other, carried string }{
		{"spec.preset", m.other.preset, string(cmp.Or(desired.Preset, operatorv1alpha1.PresetEphemeralNodes))},
		{"spec.clusterDomain", m.other.clusterDomain, (&operatorv1alpha1.ListenerOperator{Spec: desired}).ClusterDomain("")},
		{"spec.nodeAgent.kubeletDir", m.other.KubeletDir, cmp.Or(desired.NodeAgent.KubeletDir, components.DefaultKubeletDir)},
	} {
		switch {
		case setting.other == "":
		case setting.other == setting.carried && m.config != nil:
			m.Add(f.OK("%s is %s, as that of the other operator", setting.path, setting.other))
		case setting.other == setting.carried:
			m.Add(f.OK("%s will be %s, as that of the other operator", setting.path, setting.other))
		default:
			m.Add(f.Warning("", fmt.Sprintf(
				"%s is to be %s, as that of the other operator, and would be %s: one of the steps sets it", setting.path, setting.other, setting.carried)))
			m.Err = cmp.Or(m.Err, unstructured.SetNestedField(m.missing, setting.other, strings.Split(setting.path, ".")...))
		}
	}
	if restricted := m.other.placement(); restricted != "" {
		m.Add(f.Warning("", "agents run on all nodes, whatever their taints; those of the other operator have "+restricted+", which spec.nodeAgent can have, too"))
	}
}

// compareClasses finds the classes that go with the other operator's Helm release, and what of a class is ignored.
func (m *migration) compareClasses(context.Context) {
	for i := range m.classes {
		class := &m.classes[i]
		f := check.Finding{Kind: "ListenerClass", Name: class.Name}
		switch ignored := exposure.UnknownOverrides(class); {
		case m.deletedWithRelease(class):
			m.Add(f.Warning("", "is deleted with the Helm release; one of the steps creates it again"))
		case len(ignored) > 0:
			m.Add(f.Warning(listenersv1alpha1.ReasonSettingsIgnored, strings.Join(ignored, "; ")))
		default:
			m.Add(f.OK("stays as it is"))
		}
	}
}

// deletedWithRelease reports whether the uninstallation of the other operator's Helm release deletes a class.
func (m *migration) deletedWithRelease(class *listenersv1alpha1.ListenerClass) bool {
	release := types.NamespacedName{Namespace: class.Annotations[annotationHelmNamespace], Name: class.Annotations[annotationHelmRelease]}
	return slices.Contains(m.other.releases, release) && class.Annotations[annotationHelmPolicy] != "keep"
}

// compareListeners finds the Listeners that this operator does not accept.
func (m *migration) compareListeners(context.Context) {
	classes := map[string]*listenersv1alpha1.ListenerClass{}
	for i := range m.classes {
		classes[m.classes[i].Name] = &m.classes[i]
	}
	var findings []check.Finding
	for i := range m.listeners {
		l := &m.listeners[i]
		f := check.Finding{Kind: "Listener", Namespace: l.Namespace, Name: l.Name, State: check.OK}
		if class := classes[l.Class()]; class == nil {
			f = f.Warning("", fmt.Sprintf("its class %q does not exist, so it keeps the addresses that it has", l.Class()))
		} else if _, refusal := exposure.Service(class, l); refusal != nil {
			f = f.FailedBy(refusal.Reason, refusal.Message)
			f.Remedy += " Until then, its Service and its addresses stay as they are."
		}
		findings = append(findings, f)
	}
	m.AddAll(findings, "Listeners", "%d keep their Services, node ports and addresses")
}

// compareClaims finds the claims that this operator treats differently.
func (m *migration) compareClaims(ctx context.Context) {
	var claims corev1.PersistentVolumeClaimList
	m.FollowAll(ctx, check.Finding{Kind: "PersistentVolumeClaim"}, &claims)
	var findings []check.Finding
	for i := range claims.Items {
		pvc := &claims.Items[i]
		if !walk.RequestsListener(pvc) {
			continue
		}
		f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, State: check.OK}
		switch _, err := claim.ParseSelector(pvc.Annotations); {
		case !errors.Is(err, claim.ErrBothSelectors):
		case pvc.Spec.VolumeName == "":
			f = f.Failed(listenersv1alpha1.ReasonInvalidClaim, err.Error(), "Create the claim again, with one of the two annotations.")
		default:
			f = f.Warning(listenersv1alpha1.ReasonInvalidClaim, "has two annotations that contradict each other, and works because it has its volume; a new claim of the same template would not")
		}
		findings = append(findings, f)
	}
	m.AddAll(findings, "PersistentVolumeClaims", "%d keep their volumes")
}
