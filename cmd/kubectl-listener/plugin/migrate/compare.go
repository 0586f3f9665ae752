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
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
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
		switch found := m.Follow(ctx, f, crd); {
		case found == check.Present && crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter:
			m.webhook = true
			m.Add(f.OK("stays, with all objects; its conversion webhook is removed"))
		case found == check.Present:
			m.Add(f.OK("stays, with all objects"))
		}
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

// setting is a setting of the other operator that this one has, too.
type setting struct {
	// path is that of the field in the configuration of this operator.
	path []string
	// other is the value of the other operator, carried the one that this operator has or finds.
	other, carried string
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
	if m.own.config != nil {
		desired = m.own.config.Spec
	}
	for _, s := range []setting{
		{[]string{"preset"}, m.other.preset, string(cmp.Or(desired.Preset, operatorv1alpha1.PresetEphemeralNodes))},
		{[]string{"clusterDomain"}, m.other.clusterDomain, (&operatorv1alpha1.ListenerOperator{Spec: desired}).ClusterDomain("")},
		{[]string{"nodeAgent", "kubeletDir"}, m.other.KubeletDir, cmp.Or(desired.NodeAgent.KubeletDir, components.DefaultKubeletDir)},
	} {
		if s.other != "" {
			m.compareSetting(s)
		}
	}
	if restricted := m.other.placement(); restricted != "" {
		m.Add(check.Finding{Kind: "ListenerOperator", Name: operatorv1alpha1.ListenerOperatorName}.Warning("",
			"agents run on all nodes, whatever their taints; those of the other operator have "+restricted+", which spec.nodeAgent can have, too"))
	}
}

func (m *migration) compareSetting(s setting) {
	f := check.Finding{Kind: "ListenerOperator", Name: operatorv1alpha1.ListenerOperatorName}
	path := "spec." + strings.Join(s.path, ".")
	switch {
	case s.other == s.carried && m.own.config != nil:
		m.Add(f.OK("%s is %s, as that of the other operator", path, s.other))
		return
	case s.other == s.carried:
		m.Add(f.OK("%s will be %s, as that of the other operator", path, s.other))
		return
	}
	m.Add(f.Warning("", fmt.Sprintf("%s is to be %s, as that of the other operator, and would be %s: one of the steps sets it", path, s.other, s.carried)))
	if m.missing == nil {
		m.missing = map[string]any{}
	}
	fields := m.missing
	for _, name := range s.path[:len(s.path)-1] {
		inner, _ := fields[name].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
		}
		fields[name] = inner
		fields = inner
	}
	fields[s.path[len(s.path)-1]] = s.other
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
	accepted := 0
	for i := range m.listeners {
		l := &m.listeners[i]
		f := check.Finding{Kind: "Listener", Namespace: l.Namespace, Name: l.Name}
		class := classes[l.Class()]
		if class == nil {
			m.Add(f.Warning("", fmt.Sprintf("its class %q does not exist, so it keeps the addresses that it has", l.Class())))
			continue
		}
		if _, refusal := exposure.Service(class, l); refusal != nil {
			m.Add(f.Failed(refusal.Reason, refusal.Message, check.Remedy(refusal.Reason)+" Until then, its Service and its addresses stay as they are."))
			continue
		}
		accepted++
	}
	if accepted > 0 {
		m.Add(check.Finding{Kind: "Listeners"}.OK("%d keep their Services, node ports and addresses", accepted))
	}
}

// compareClaims finds the claims that this operator treats differently.
func (m *migration) compareClaims(ctx context.Context) {
	var claims corev1.PersistentVolumeClaimList
	if m.FollowAll(ctx, check.Finding{Kind: "PersistentVolumeClaim"}, &claims) == check.Forbidden {
		return
	}
	same := 0
	for i := range claims.Items {
		pvc := &claims.Items[i]
		if !check.RequestsListener(pvc) {
			continue
		}
		f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
		if _, err := claim.ParseSelector(pvc.Annotations); !errors.Is(err, claim.ErrBothSelectors) {
			same++
			continue
		}
		if pvc.Spec.VolumeName == "" {
			m.Add(f.Failed(listenersv1alpha1.ReasonInvalidClaim, claim.ErrBothSelectors.Error(), "Create the claim again, with one of the two annotations."))
			continue
		}
		m.Add(f.Warning(listenersv1alpha1.ReasonInvalidClaim, "has two annotations that contradict each other, and works because it has its volume; a new claim of the same template would not"))
	}
	if same > 0 {
		m.Add(check.Finding{Kind: "PersistentVolumeClaims"}.OK("%d keep their volumes", same))
	}
}
