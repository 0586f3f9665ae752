package host

import (
	"maps"
	"slices"
	"strings"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// WithAnnotations returns a copy of the Service with the annotations that the class has templates for. They take
// precedence over others: an author of a Listener must not choose the name of another one.
func WithAnnotations(l *exposure.Listener, service *corev1ac.ServiceApplyConfiguration) (*corev1ac.ServiceApplyConfiguration, *exposure.Refusal) {
	class := l.Class.Spec
	if class.Hostname == nil && len(class.ServiceAnnotationTemplates) == 0 {
		return service, nil
	}
	annotations, pod, refusal := annotationsOf(l)
	if refusal != nil {
		return nil, refusal
	}
	if class.Hostname != nil {
		hosts, refusal := OfService(l)
		if refusal != nil {
			return nil, refusal
		}
		annotations[names.AnnotationHostname] = hosts.ByPort[""]
		pod = max(pod, hosts.Pod) // they are the same, or one is empty
	}
	if pod != "" {
		annotations[names.AnnotationPod] = pod
	}
	copied, metadata := *service, *service.ObjectMetaApplyConfiguration
	metadata.Annotations = maps.Clone(metadata.Annotations)
	copied.ObjectMetaApplyConfiguration = &metadata
	return copied.WithAnnotations(annotations), nil
}

// OfService returns the name of the Service by the template of the class, which has one, under an empty port.
func OfService(l *exposure.Listener) (Hosts, *exposure.Refusal) {
	return Template{Exposure: "spec.hostname", Field: "template", Text: string(l.Class.Spec.Hostname.Template)}.Of(l, []string{""})
}

// NameOfService returns the name of the observed Service, or "" if the class has no names, or if another client has
// changed the annotation: certificates are issued for names that are published. One that is published already stays
// while the template cannot be used, for example because there is no Pod.
func NameOfService(l *exposure.Listener) string {
	name := l.Service.Annotations[names.AnnotationHostname]
	if l.Class.Spec.Hostname == nil || name == "" {
		return ""
	}
	if hosts, refusal := OfService(l); refusal == nil && hosts.ByPort[""] == name || l.Publishes(name) {
		return name
	}
	return ""
}

// annotationsOf returns the annotations by the templates of the class, and the name of the Pod if they refer to it.
func annotationsOf(l *exposure.Listener) (annotations map[string]string, pod string, _ *exposure.Refusal) {
	templates := l.Class.Spec.ServiceAnnotationTemplates
	annotations = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		path, text := "spec.serviceAnnotationTemplates["+name+"]", string(templates[name])
		if strings.Contains(text, "{"+podName+"}") || strings.Contains(text, "{"+podIndex+"}") {
			var refusal *exposure.Refusal
			if pod, refusal = podOf(l, path); refusal != nil {
				return nil, "", refusal
			}
		}
		unknown := ""
		annotations[name] = Replace(text, func(placeholder string) string {
			value, ok := Value(l, "", pod, placeholder)
			if !ok || placeholder == "port" {
				unknown = placeholder
			}
			return value
		})
		if unknown != "" {
			return nil, "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s has the placeholder {%s}, which has no value for Listener %s/%s; "+
				"the name of a Pod has an index only if it ends with a hyphen and a number, as in a StatefulSet", path, l.Class.Name, unknown, l.Namespace, l.Name)
		}
	}
	return annotations, pod, nil
}
