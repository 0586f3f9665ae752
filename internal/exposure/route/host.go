package route

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// The placeholders that stand for the Pod.
const (
	podName  = "podName"
	podIndex = "podIndex"
)

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	ordinal     = regexp.MustCompile(`-([0-9]+)$`)
)

// template is the template for host names of a class.
type template struct {
	// classField is the path of the template in the class.
	classField string
	// routeField is the field of a Route's spec that the template is for: host or subdomain.
	routeField string
	// text is empty if the class has no template.
	text string
}

func templateOf(class *listenersv1alpha1.ListenerClass) template {
	if class.Spec.Route.SubdomainTemplate != "" {
		return template{classField: "spec.route.subdomainTemplate", routeField: "subdomain", text: class.Spec.Route.SubdomainTemplate}
	}
	return template{classField: "spec.route.hostTemplate", routeField: "host", text: class.Spec.Route.HostTemplate}
}

// hostOf returns the host or subdomain of a port's Route, or "" if the cluster chooses the host. pod is the name of the
// Pod, or "" if the template does not refer to it.
func hostOf(l *exposure.Listener, port, pod string) (string, error) {
	t := templateOf(l.Class)
	if t.text == "" {
		return "", nil
	}
	values := map[string]string{
		"listener": l.Name, "port": port, "namespace": l.Namespace, "className": l.Class.Name, podName: pod,
	}
	if index := ordinal.FindStringSubmatch(pod); index != nil {
		values[podIndex] = index[1]
	}
	host, unknown := expand(t.text, values)
	switch {
	case slices.Contains(unknown, podIndex):
		return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s contains {podIndex}, but the name of Pod %s does not end with a "+
			"hyphen and a number as in a StatefulSet; use {podName}, or another class", t.classField, l.Class.Name, pod)
	case len(unknown) > 0:
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s contains the unknown placeholder {%s}; the known ones are "+
			"{listener}, {port}, {namespace}, {className}, {podName} and {podIndex}", t.classField, l.Class.Name, unknown[0])
	}
	if problems := checkHost(host); len(problems) > 0 {
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s results in %q for port %s, which is not a host name: %s",
			t.classField, l.Class.Name, host, port, strings.Join(problems, ", "))
	}
	return host, nil
}

// expand replaces the placeholders of a template by values, and shortens DNS labels that get too long. unknown are the
// placeholders without a value.
func expand(template string, values map[string]string) (host string, unknown []string) {
	host = placeholder.ReplaceAllStringFunc(template, func(p string) string {
		name := strings.Trim(p, "{}")
		value, ok := values[name]
		if !ok {
			unknown = append(unknown, name)
		}
		return exposure.Label(value)
	})
	labels := strings.Split(host, ".")
	for i := range labels {
		labels[i] = exposure.Shorten(labels[i], maxLabel)
	}
	return strings.Join(labels, "."), unknown
}

// checkHost returns why a host name is invalid, or nothing.
func checkHost(host string) []string {
	if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 {
		return problems
	}
	for label := range strings.SplitSeq(host, ".") {
		if problems := validation.IsDNS1123Label(label); len(problems) > 0 {
			return problems
		}
	}
	return nil
}

// podOf returns the name of the only Pod of the Listener, or "" if the template has no placeholder for it. While there
// is no Pod, for example because it is being replaced, it is the Pod that the Routes were created for.
func podOf(l *exposure.Listener) (string, error) {
	t := templateOf(l.Class)
	if !strings.Contains(t.text, "{"+podName+"}") && !strings.Contains(t.text, "{"+podIndex+"}") {
		return "", nil
	}
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
		t.classField, l.Class.Name, problem)
}

// recordedPods returns the names of the Pods that the Listener's Routes were created for.
func recordedPods(l *exposure.Listener) []string {
	var pods []string
	for _, o := range l.Objects {
		if route, ok := o.(*routev1.Route); ok && route.Annotations[annotationPod] != "" {
			pods = append(pods, route.Annotations[annotationPod])
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}
