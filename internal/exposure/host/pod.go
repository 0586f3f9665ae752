package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Annotations returns the annotations of an object with one of the hosts: those of the class, and the name of the Pod.
// It is nil if there are none.
func (h Hosts) Annotations(class map[string]string) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, class)
	if h.Pod != "" {
		annotations[names.AnnotationPod] = h.Pod
	}
	if len(annotations) == 0 {
		return nil
	}
	return annotations
}

// podOf returns the name of the only Pod of the Listener, or "" if the template has no placeholder for it. While there
// is no Pod, for example because it is being replaced, it is the Pod that the Listener's objects were created for.
func (t Template) podOf(l *exposure.Listener) (string, *exposure.Refusal) {
	if !t.has(podName) && !t.has(podIndex) {
		return "", nil
	}
	return podOf(l, t.path())
}

// podOf returns the name of the only Pod of the Listener, to which the field of its class refers.
func podOf(l *exposure.Listener, path string) (string, *exposure.Refusal) {
	pods := l.Pods
	if len(pods) == 0 {
		pods = recordedPods(l)
	}
	if len(pods) == 1 {
		return pods[0], nil
	}
	problem := fmt.Sprintf("Listener %s/%s was not created for a claim; use another class", l.Namespace, l.Name)
	switch {
	case len(pods) > 1:
		problem = fmt.Sprintf("several Pods (%s) mount claim %s/%s; give each Pod a claim of its own, or use another class",
			strings.Join(pods, ", "), l.Namespace, l.Name)
	case claim.OwnsListener(l.Listener):
		problem = fmt.Sprintf("no Pod mounts claim %s/%s", l.Namespace, l.Name)
	}
	return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s refers to the Pod, which requires a claim with a single Pod: %s",
		path, l.Class.Name, problem)
}

// recordedPods returns the names of the Pods that the Listener's objects were created for. What no Pod can be called is
// left out: users of the namespace may change the annotation, and the values of annotations have other separators.
func recordedPods(l *exposure.Listener) []string {
	objects := slices.Clone(l.Objects)
	if l.Service != nil {
		objects = append(objects, l.Service)
	}
	var pods []string
	for _, o := range objects {
		if pod := o.GetAnnotations()[names.AnnotationPod]; len(validation.IsDNS1123Subdomain(pod)) == 0 {
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}
