package host

import (
	"maps"
	"slices"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// WithAnnotations returns a copy of the Service with the annotations that the class has templates for. They take
// precedence over others: an author of a Listener must not choose the name of another one.
func WithAnnotations(l *exposure.Listener, service *corev1ac.ServiceApplyConfiguration) (*corev1ac.ServiceApplyConfiguration, *exposure.Refusal) {
	templates, annotations, recorded := l.Class.Spec.ServiceAnnotationTemplates, map[string]string{}, ""
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		path, text := "spec.serviceAnnotationTemplates["+name+"]", string(templates[name])
		pod, refusal := PodOf(l, path, text)
		if refusal != nil {
			return nil, refusal
		}
		value, unknown := Expand(text, l, "", pod)
		if len(unknown) > 0 {
			return nil, exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s has the placeholder {%s}, which has no value for Listener %s/%s",
				path, l.Class.Name, unknown[0], l.Namespace, l.Name)
		}
		annotations[name], recorded = value, max(recorded, pod) // they are the same, or one is empty
	}
	pod, refusal := PodOfAdvertised(l)
	if refusal != nil {
		return nil, refusal
	}
	recorded = max(recorded, pod)
	if l.Class.Spec.Hostname != nil {
		hosts, refusal := ofService(l)
		if refusal != nil {
			return nil, refusal
		}
		name := hosts.ByPort[""]
		annotations[names.AnnotationHostname], annotations[names.AnnotationHostname022], recorded = name, name, max(recorded, hosts.Pod)
	}
	if recorded != "" {
		annotations[names.AnnotationPod] = recorded
	}
	copied, metadata := *service, *service.ObjectMetaApplyConfiguration
	metadata.Annotations = maps.Clone(metadata.Annotations)
	copied.ObjectMetaApplyConfiguration = &metadata
	return copied.WithAnnotations(annotations), nil
}

// PodOfAdvertised returns the name of the only Pod of the Listener, or "" if the addresses that the class advertises do
// not refer to it.
func PodOfAdvertised(l *exposure.Listener) (string, *exposure.Refusal) {
	advertise := l.Class.Spec.Advertise
	if advertise == nil {
		return "", nil
	}
	ofAddress, refusal := PodOf(l, "spec.advertise.addressTemplate", string(advertise.AddressTemplate))
	if refusal != nil {
		return "", refusal
	}
	ofPort, refusal := PodOf(l, "spec.advertise.portTemplate", string(advertise.PortTemplate))
	return max(ofAddress, ofPort), refusal // they are the same, or one is empty
}

// ofService returns the name of the Service by the template of the class, which has one, under an empty port.
func ofService(l *exposure.Listener) (Hosts, *exposure.Refusal) {
	return Template{Path: "spec.hostname.template", Text: string(l.Class.Spec.Hostname.Template)}.Of(l, []string{""})
}

// NameOfService returns the name of the observed Service, or "" if the class has no names, or if another client has
// changed the annotation: certificates are issued for names that are published. One that is published already stays
// while the template cannot be used, for example because there is no Pod.
func NameOfService(l *exposure.Listener) string {
	name := l.Service.Annotations[names.AnnotationHostname]
	if l.Class.Spec.Hostname == nil || name == "" {
		return ""
	}
	if hosts, refusal := ofService(l); refusal == nil && hosts.ByPort[""] == name || l.Publishes(name) {
		return name
	}
	return ""
}
