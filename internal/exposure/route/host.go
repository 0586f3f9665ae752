package route

import (
	"crypto/sha256"
	"encoding/hex"
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

// The placeholders that the code refers to.
const (
	podName  = "podName"
	podIndex = "podIndex"
	hash     = "hash"
)

// hashDigits is the number of hexadecimal digits of a hash in a host: 64 bits. Authors of Listeners and Pods choose the
// names that are hashed, and must not find one whose host is that of another namespace.
const hashDigits = 16

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	ordinal     = regexp.MustCompile(`-([0-9]+)$`)
	// endsLikeHash matches DNS labels that could be taken for labels with a hash.
	endsLikeHash = regexp.MustCompile(`-[0-9a-f]{16}$`)

	// A placeholder is unambiguous if its DNS label has no other one: no value contains a dot.
	endsWithHash    = regexp.MustCompile(`\{hash\}(\.|$)`)
	namespaceAlone  = regexp.MustCompile(`(^|\.)[^.{}]*\{namespace\}[^.{}]*(\.|$)`)
	identifiesAlone = regexp.MustCompile(`(^|\.)[^.{}]*\{(listener|podName)\}[^.{}]*(\.|$)`)
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

// unambiguous reports whether two Listeners, or Listeners of two Pods, never get the same host by the template,
// whatever their names. The rule for classes that are written is the same.
func (t template) unambiguous() bool {
	return endsWithHash.MatchString(t.text) || namespaceAlone.MatchString(t.text) && identifiesAlone.MatchString(t.text)
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
		hash: digest(l.Namespace + "/" + l.Name + "/" + port),
	}
	if index := ordinal.FindStringSubmatch(pod); index != nil {
		values[podIndex] = index[1]
	}
	host, unknown := t.expand(values)
	switch {
	case slices.Contains(unknown, podIndex):
		return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s contains {podIndex}, but the name of Pod %s does not end with a "+
			"hyphen and a number as in a StatefulSet; use {podName}, or another class", t.classField, l.Class.Name, pod)
	case len(unknown) > 0:
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s contains the unknown placeholder {%s}; the known ones are "+
			"{listener}, {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}", t.classField, l.Class.Name, unknown[0])
	}
	if published := t.publishedBefore(l, port, values); published != "" {
		return published, nil
	}
	if problems := checkHost(host); len(problems) > 0 {
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s results in %q for port %s, which is not a host name: %s",
			t.classField, l.Class.Name, host, port, strings.Join(problems, ", "))
	}
	if _, domain, _ := strings.Cut(t.text, "."); l.Class.Spec.Route.WildcardPolicy == listenersv1alpha1.RouteWildcardPolicySubdomain &&
		!endsWithHash.MatchString(domain) && !namespaceAlone.MatchString(domain) {
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "the Routes of ListenerClass %s serve whole domains, which namespaces would share; use "+
			"{namespace} as the only placeholder between two dots, or {hash}, after the first dot of %s", l.Class.Name, t.classField)
	}
	if !t.unambiguous() {
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s may give Listeners of different namespaces or Pods the same host; "+
			"use {namespace}, and {listener} or {podName}, each as the only placeholder between two dots, as in {podName}.{namespace}, or end a part between "+
			"two dots with {hash}, as in {podName}-{namespace}-{hash}", t.classField, l.Class.Name)
	}
	return host, nil
}

// publishedBefore returns the host that the port's Route has by the rules of earlier versions, which allowed ambiguous
// templates and had hashes of 32 bits, or "". Clients know that host, so it stays until the template changes or the
// Route is deleted.
func (t template) publishedBefore(l *exposure.Listener, port string, values map[string]string) string {
	existing := find(l, nameOf(l, port))
	if existing == nil || strings.Contains(t.text, "{"+hash+"}") {
		return ""
	}
	labels := strings.Split(placeholder.ReplaceAllStringFunc(t.text, func(p string) string {
		return exposure.Label(values[strings.Trim(p, "{}")])
	}), ".")
	for i := range labels {
		labels[i] = exposure.Shorten(labels[i], maxLabel)
	}
	host := strings.Join(labels, ".")
	if current := map[string]string{"host": existing.Spec.Host, "subdomain": existing.Spec.Subdomain}; current[t.routeField] != host {
		return ""
	}
	return host
}

// expand replaces the placeholders of the template by values. unknown are the placeholders without a value.
//
// A value has no dots in the host, so that each placeholder stays in its DNS label. Labels that had dots or got too
// long end with a hash of what they stand for, and so do those that look as if they did. So two labels of the same
// part of the template differ if their values do.
func (t template) expand(values map[string]string) (host string, unknown []string) {
	labels := strings.Split(t.text, ".")
	for i, label := range labels {
		expanded := placeholder.ReplaceAllStringFunc(label, func(p string) string {
			value, ok := values[strings.Trim(p, "{}")]
			if !ok {
				unknown = append(unknown, strings.Trim(p, "{}"))
			}
			return value
		})
		hashed := strings.HasSuffix(label, "{"+hash+"}")
		if len(expanded) > maxLabel || strings.Contains(expanded, ".") || !hashed && expanded != label && endsLikeHash.MatchString(expanded) {
			beginning := strings.ReplaceAll(expanded[:min(len(expanded), maxLabel-hashDigits-1)], ".", "-")
			expanded = strings.TrimRight(beginning, "-") + "-" + digest(expanded)
		}
		labels[i] = expanded
	}
	return strings.Join(labels, "."), unknown
}

// digest returns a hash of 64 bits.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:hashDigits]
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
