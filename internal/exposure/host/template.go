// Package host computes the host names of Listeners from the templates of classes. Backends share it.
//
// No two namespaces, Listeners or replicas get the same host by a template, whatever their names (decision 26).
package host

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// The placeholders that the code refers to.
const (
	podName  = "podName"
	podIndex = "podIndex"
	hash     = "hash"
)

// maxLabel is the maximum length of a DNS label.
const maxLabel = 63

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

// Template is the template for host names of a class.
type Template struct {
	// Exposure is the path of the field of the class that the template belongs to, such as spec.ingress, and Field is
	// the name of the template in it.
	Exposure, Field string
	// Text is empty if the class has no template.
	Text string
	// WholeDomain states that not only the host is served, but the whole domain that it is in.
	WholeDomain bool
}

// path returns the path of the template in the class.
func (t Template) path() string { return t.Exposure + "." + t.Field }

// has reports whether the template has a placeholder.
func (t Template) has(name string) bool { return strings.Contains(t.Text, "{"+name+"}") }

// unambiguous reports whether two Listeners, or Listeners of two Pods, never get the same host by the template,
// whatever their names. The rule for classes that are written is the same.
func (t Template) unambiguous() bool {
	return endsWithHash.MatchString(t.Text) || namespaceAlone.MatchString(t.Text) && identifiesAlone.MatchString(t.Text)
}

// Hosts are the hosts of a Listener's ports.
type Hosts struct {
	// ByPort has the host of each port, which is "" if the class has no template.
	ByPort map[string]string
	// Pod is the name of the Pod that the hosts are made from, or "" if the template does not refer to it.
	Pod string
}

// Of returns the hosts of ports of a Listener.
func (t Template) Of(l *exposure.Listener, ports []string) (Hosts, *exposure.Refusal) {
	pod, refusal := t.podOf(l)
	if refusal != nil {
		return Hosts{}, refusal
	}
	hosts, portOf := Hosts{ByPort: map[string]string{}, Pod: pod}, map[string]string{}
	for _, port := range ports {
		host, refusal := t.hostOf(l, port, pod)
		if refusal != nil {
			return Hosts{}, refusal
		}
		if other, taken := portOf[host]; taken && host != "" {
			return Hosts{}, exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "ports %s and %s would have the same host %s; add {port} to %s of ListenerClass %s, "+
				"or list only one of them in its spec.ports", other, port, host, t.path(), l.Class.Name)
		}
		portOf[host], hosts.ByPort[port] = port, host
	}
	return hosts, nil
}

// Value returns what a placeholder stands for. ok is false if it is unknown, or {podIndex} and the name of the Pod has
// no ordinal.
func Value(l *exposure.Listener, port, pod, name string) (value string, ok bool) {
	values := map[string]string{
		"listener": l.Name, "port": port, "namespace": l.Namespace, "className": l.Class.Name, podName: pod,
		hash: digest(l.Namespace + "/" + l.Name + "/" + port),
	}
	if index := ordinal.FindStringSubmatch(pod); index != nil {
		values[podIndex] = index[1]
	}
	value, ok = values[name]
	return value, ok
}

// Replace returns the text with its placeholders replaced by what the function returns for their names.
func Replace(text string, value func(name string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string { return value(strings.Trim(p, "{}")) })
}

// hostOf returns the host of a port, or "" without a template.
func (t Template) hostOf(l *exposure.Listener, port, pod string) (string, *exposure.Refusal) {
	if t.Text == "" {
		return "", nil
	}
	host, unknown := t.expand(func(name string) (string, bool) { return Value(l, port, pod, name) })
	switch {
	case slices.Contains(unknown, podIndex):
		return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod, "%s of ListenerClass %s contains {podIndex}, but the name of Pod %s does not end with a "+
			"hyphen and a number as in a StatefulSet; use {podName}, or another class", t.path(), l.Class.Name, pod)
	case len(unknown) > 0:
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s contains the unknown placeholder {%s}; the known ones are "+
			"{listener}, {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}", t.path(), l.Class.Name, unknown[0])
	}
	return host, t.check(l, port, host)
}

// check returns a refusal if the host is invalid, or may be that of another Listener.
func (t Template) check(l *exposure.Listener, port, host string) *exposure.Refusal {
	if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 { // expand returns no label that is too long
		return exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s results in %q%s, which is not a host name: %s",
			t.path(), l.Class.Name, host, ofPort(port), strings.Join(problems, ", "))
	}
	if _, domain, _ := strings.Cut(t.Text, "."); t.WholeDomain && !endsWithHash.MatchString(domain) && !namespaceAlone.MatchString(domain) {
		return exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "the Routes of ListenerClass %s serve whole domains, which namespaces would share; use "+
			"{namespace} as the only placeholder between two dots, or {hash}, after the first dot of %s", l.Class.Name, t.path())
	}
	if !t.unambiguous() {
		return exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s may give Listeners of different namespaces or Pods the same host; "+
			"use {namespace}, and {listener} or {podName}, each as the only placeholder between two dots, as in {podName}.{namespace}, or end a part between "+
			"two dots with {hash}, as in {podName}-{namespace}-{hash}", t.path(), l.Class.Name)
	}
	return nil
}

// ofPort describes a port in a message, or is "" for the host of a whole Listener.
func ofPort(port string) string {
	if port == "" {
		return ""
	}
	return " for port " + port
}

// expand replaces the placeholders of the template by values. unknown are the placeholders without a value.
//
// A value has no dots in the host, so that each placeholder stays in its DNS label. Labels that had dots or got too
// long end with a hash of what they stand for, and so do those that look as if they did. So two labels of the same
// part of the template differ if their values do.
func (t Template) expand(value func(name string) (string, bool)) (host string, unknown []string) {
	labels := strings.Split(t.Text, ".")
	for i, label := range labels {
		expanded := Replace(label, func(name string) string {
			v, ok := value(name)
			if !ok {
				unknown = append(unknown, name)
			}
			return v
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
