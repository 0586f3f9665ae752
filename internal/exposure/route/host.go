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

// The placeholders that need the Pod.
const (
	podName  = "podName"
	podIndex = "podIndex"
)

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	ordinal     = regexp.MustCompile(`-([0-9]+)$`)
)

// templated is the template of a class.
type templated struct {
	// field is its name in the class's spec.
	field string
	// of is the field of a Route's spec that it makes.
	of string
	// text is empty if there is none.
	text string
}

func template(class *listenersv1alpha1.ListenerClass) templated {
	if class.Spec.Route.SubdomainTemplate != "" {
		return templated{field: "spec.route.subdomainTemplate", of: "subdomain", text: class.Spec.Route.SubdomainTemplate}
	}
	return templated{field: "spec.route.hostTemplate", of: "host", text: class.Spec.Route.HostTemplate}
}

// hostOf returns the host or subdomain of a port's Route, or "" if the cluster is to choose the host. pod is the Pod's
// name, if the template needs it.
func hostOf(l *exposure.Listener, port, pod string) (string, error) {
	t := template(l.Class)
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
		return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s has {podIndex}, and the name of Pod %s does not end with a "+
			"hyphen and a number, as those of a StatefulSet do; use {podName}, or another class", t.field, l.Class.Name, pod)
	case len(unknown) > 0:
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s has the unknown placeholder {%s}; there are {listener}, "+
			"{port}, {namespace}, {className}, {podName} and {podIndex}", t.field, l.Class.Name, unknown[0])
	}
	if problems := checkHost(host); len(problems) > 0 {
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s makes %q of port %s, which is no host name: %s",
			t.field, l.Class.Name, host, port, strings.Join(problems, ", "))
	}
	return host, nil
}

// expand puts the values into a template, and shortens what is too long between two dots. unknown are the placeholders
// without a value.
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

// podOf returns the name of the one Pod that the Listener belongs to, or "" if the template has no placeholder that
// needs it. While there is none, for example because it is being replaced, it is the one that the Routes were made for.
func podOf(l *exposure.Listener) (string, error) {
	t := template(l.Class)
	if !strings.Contains(t.text, "{"+podName+"}") && !strings.Contains(t.text, "{"+podIndex+"}") {
		return "", nil
	}
	pods := l.Pods
	if len(pods) == 0 {
		pods = recorded(l)
	}
	if len(pods) == 1 {
		return pods[0], nil
	}
	why := fmt.Sprintf("Listener %s/%s was not made for one; name another class", l.Namespace, l.Name)
	switch {
	case len(pods) > 1:
		why = fmt.Sprintf("claim %s/%s is mounted by several (%s); give each Pod a claim of its own, or name another class",
			l.Namespace, l.Name, strings.Join(pods, ", "))
	case claim.OwnsListener(l.Listener):
		why = fmt.Sprintf("no Pod mounts claim %s/%s at the moment", l.Namespace, l.Name)
	}
	return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s names the Pod, which is for Listeners of a Pod's own claim: %s",
		t.field, l.Class.Name, why)
}

// recorded returns the Pods that the Listener's Routes were made for.
func recorded(l *exposure.Listener) []string {
	var pods []string
	for _, o := range l.Objects {
		if route, ok := o.(*routev1.Route); ok && route.Annotations[annotationPod] != "" {
			pods = append(pods, route.Annotations[annotationPod])
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}
