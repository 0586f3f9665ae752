// Package host computes the host names of Listeners from the templates of classes. Backends share it.
//
// No two namespaces, Listeners or replicas get the same host by a template, whatever their names (decision 26).
package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// hashDigits is the number of hexadecimal digits of a hash in a host: 64 bits. Authors of Listeners and Pods choose the
// names that are hashed, and must not find one whose host is that of another namespace.
const hashDigits = 16

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	ofPod       = regexp.MustCompile(`\{(podName|podIndex)\}`)
	ordinal     = regexp.MustCompile(`-([0-9]+)$`)
	// endsLikeHash matches DNS labels that could be taken for labels with a hash.
	endsLikeHash = regexp.MustCompile(`-[0-9a-f]{16}$`)

	// A placeholder is unambiguous if its DNS label has no other one: no value contains a dot.
	endsWithHash    = regexp.MustCompile(`\{hash\}(\.|$)`)
	namespaceAlone  = regexp.MustCompile(`(^|\.)[^.{}]*\{namespace\}[^.{}]*(\.|$)`)
	identifiesAlone = regexp.MustCompile(`(^|\.)[^.{}]*\{(listener|podName)\}[^.{}]*(\.|$)`)
)

type Template struct {
	// Path is the path of the template in the class, such as spec.ingress.hostTemplate.
	Path string
	// Text is empty if the class has no template.
	Text string
	// WholeDomain states that not only the host is served, but the whole domain that it is in.
	WholeDomain bool
}

type Hosts struct {
	// ByPort has the host of each port, which is "" if the class has no template.
	ByPort map[string]string
	// Pod is the name of the Pod that the hosts are made from, or "" if the template does not refer to it.
	Pod string
}

// Annotations returns the annotations of an object with one of the hosts: those of the class, and the name of the Pod.
func (h Hosts) Annotations(class map[string]string) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, class)
	if h.Pod != "" {
		annotations[names.AnnotationPod] = h.Pod
	}
	return annotations
}

func (t Template) Of(l *exposure.Listener, ports []string) (Hosts, *exposure.Refusal) {
	pod, refusal := PodOf(l, t.Path, t.Text)
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
			return Hosts{}, exposure.Refuse(listenersv1alpha1.ReasonInvalidHost,
				"ports %s and %s would have the same host %s; add {port} to %s of ListenerClass %s, "+
					"or list only one of them in its spec.ports", other, port, host, t.Path, l.Class.Name)
		}
		portOf[host], hosts.ByPort[port] = port, host
	}
	return hosts, nil
}

// hostOf returns the host of a port, or "" without a template. It refuses a host that is invalid, or that may be that
// of another Listener, by the same rules as the API server.
func (t Template) hostOf(l *exposure.Listener, port, pod string) (string, *exposure.Refusal) {
	if t.Text == "" {
		return "", nil
	}
	refuse := func(reason, format string, args ...any) (string, *exposure.Refusal) {
		return "", exposure.Refuse(reason, "%s of ListenerClass %s %s", t.Path, l.Class.Name,
			fmt.Sprintf(format, args...))
	}
	host, unknown := ExpandHost(t.Text, l, port, pod)
	problems := validation.IsDNS1123Subdomain(host) // ExpandHost returns no label that is too long
	ofPort := " for port " + port
	if port == "" { // the host is that of a whole Listener
		ofPort = ""
	}
	_, domain, _ := strings.Cut(t.Text, ".")
	unambiguous := SeparatesNamespaces(t.Text) &&
		(endsWithHash.MatchString(t.Text) || identifiesAlone.MatchString(t.Text))
	switch {
	case len(unknown) > 0:
		return refuse(listenersv1alpha1.ReasonInvalidHost, "contains the unknown placeholder {%s}; the known ones are "+
			"{listener}, {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}", unknown[0])
	case len(problems) > 0:
		return refuse(listenersv1alpha1.ReasonInvalidHost, "results in %q%s, which is not a host name: %s", host,
			ofPort, strings.Join(problems, ", "))
	case t.WholeDomain && !endsWithHash.MatchString(domain) && !namespaceAlone.MatchString(domain):
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost,
			"the Routes of ListenerClass %s serve whole domains, which namespaces would share; use "+
				"{namespace} as the only placeholder between two dots, or {hash}, after the first dot of %s",
			l.Class.Name, t.Path)
	case !unambiguous:
		return refuse(listenersv1alpha1.ReasonInvalidHost,
			"may give Listeners of different namespaces or Pods the same host; "+
				"use {namespace}, and {listener} or {podName}, each as the only placeholder between two dots, as in "+
				"{podName}.{namespace}, or end a part between two dots with {hash}, as in {podName}-{namespace}-{hash}")
	}
	return host, nil
}

// SeparatesNamespaces reports whether a template gives no two namespaces the same host, whatever the names of objects.
func SeparatesNamespaces(template string) bool {
	return endsWithHash.MatchString(template) || namespaceAlone.MatchString(template)
}

// ExpandHost is Expand for the template of a host.
//
// A value has no dots in the host, so that each placeholder stays in its DNS label. Labels that had dots or got too
// long end with a hash of what they stand for, and so do those that look as if they did. So two labels of the same
// part of the template differ if their values do.
func ExpandHost(text string, l *exposure.Listener, port, pod string) (host string, unknown []string) {
	labels := strings.Split(text, ".")
	for i, label := range labels {
		expanded, without := Expand(label, l, port, pod)
		unknown = append(unknown, without...)
		hashed := strings.HasSuffix(label, "{hash}")
		if len(expanded) > validation.DNS1123LabelMaxLength || strings.Contains(expanded, ".") ||
			!hashed && expanded != label && endsLikeHash.MatchString(expanded) {
			beginning := strings.ReplaceAll(expanded[:min(len(expanded),
				validation.DNS1123LabelMaxLength-hashDigits-1)], ".", "-")
			expanded = strings.TrimRight(beginning, "-") + "-" + digest(expanded)
		}
		labels[i] = expanded
	}
	return strings.Join(labels, "."), unknown
}

// Expand returns a text with its placeholders replaced by what they stand for, and the placeholders without a value:
// unknown ones, and those of a port or Pod that is "".
func Expand(text string, l *exposure.Listener, port, pod string) (expanded string, unknown []string) {
	values := map[string]string{
		"listener": l.Name, "port": port, "namespace": l.Namespace, "className": l.Class.Name, "podName": pod,
		"podIndex": PodIndex(pod), "hash": digest(l.Namespace + "/" + l.Name + "/" + port),
	}
	expanded = placeholder.ReplaceAllStringFunc(text, func(p string) string {
		name := strings.Trim(p, "{}")
		if values[name] == "" {
			unknown = append(unknown, name)
		}
		return values[name]
	})
	return expanded, unknown
}

// PodIndex returns the number at the end of the name of a Pod, as in a StatefulSet, or "" if it has none.
func PodIndex(pod string) string {
	if index := ordinal.FindStringSubmatch(pod); index != nil {
		return index[1]
	}
	return ""
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:hashDigits]
}

// PodOf returns the name of the only Pod of the Listener, with an index if the template at the path in the class needs
// it, or "" if the template does not refer to the Pod. While there is none, the Listener's objects record it.
func PodOf(l *exposure.Listener, path, template string) (string, *exposure.Refusal) {
	if !ofPod.MatchString(template) {
		return "", nil
	}
	pods := l.Pods
	if len(pods) == 0 {
		pods = recordedPods(l)
	}
	problem := fmt.Sprintf("Listener %s/%s was not created for a claim; use another class", l.Namespace, l.Name)
	switch {
	case len(pods) == 1 && strings.Contains(template, "{podIndex}") && PodIndex(pods[0]) == "":
		return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod,
			"%s of ListenerClass %s contains {podIndex}, but the name of Pod %s does not end with a "+
				"hyphen and a number as in a StatefulSet; use another placeholder, or another class", path,
			l.Class.Name, pods[0])
	case len(pods) == 1:
		return pods[0], nil
	case len(pods) > 1:
		problem = fmt.Sprintf("several Pods (%s) mount claim %s/%s; give each Pod a claim of its own, or use another "+
			"class", strings.Join(pods, ", "), l.Namespace, l.Name)
	case claim.OwnsListener(l.Listener):
		problem = fmt.Sprintf("no Pod mounts claim %s/%s", l.Namespace, l.Name)
	}
	return "", exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod,
		"%s of ListenerClass %s refers to the Pod, which requires a claim with a single Pod: %s",
		path, l.Class.Name, problem)
}

// recordedPods returns the names of the Pods that the Listener's objects were created for. What no Pod can be called is
// left out: users of the namespace may change the annotation, and the values of annotations have other separators.
func recordedPods(l *exposure.Listener) []string {
	objects := slices.Clone(l.Objects)
	if l.Service != nil {
		objects = append(objects, l.Service)
	}
	pods := sets.New[string]()
	for _, o := range objects {
		if pod := o.GetAnnotations()[names.AnnotationPod]; len(validation.IsDNS1123Subdomain(pod)) == 0 {
			pods.Insert(pod)
		}
	}
	return sets.List(pods)
}

// WithAnnotations returns a copy of the Service with the annotations that the class has templates for. They take
// precedence over others: an author of a Listener must not choose the name of another one.
func WithAnnotations(l *exposure.Listener, service *corev1ac.ServiceApplyConfiguration) (
	*corev1ac.ServiceApplyConfiguration, *exposure.Refusal) {
	templates, annotations := l.Class.Spec.ServiceAnnotationTemplates, map[string]string{}
	recorded, refusal := PodOfAdvertised(l)
	if refusal != nil {
		return nil, refusal
	}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		path, text := "spec.serviceAnnotationTemplates["+name+"]", string(templates[name])
		pod, refusal := PodOf(l, path, text)
		if refusal != nil {
			return nil, refusal
		}
		value, unknown := Expand(text, l, "", pod)
		if len(unknown) > 0 {
			return nil, exposure.Refuse(listenersv1alpha1.ReasonNoSinglePod,
				"%s of ListenerClass %s has the placeholder {%s}, which has no value for Listener %s/%s",
				path, l.Class.Name, unknown[0], l.Namespace, l.Name)
		}
		annotations[name], recorded = value, max(recorded, pod) // they are the same, or one is empty
	}
	if l.Class.Spec.Hostname != nil {
		hosts, refusal := named(l)
		if refusal != nil {
			return nil, refusal
		}
		recorded = max(recorded, hosts.Pod)
		if name := hosts.ByPort[""]; l.Class.Spec.Hostname.Annotated() {
			annotations[names.AnnotationHostname], annotations[names.AnnotationHostname022] = name, name
		}
	}
	if recorded != "" {
		annotations[names.AnnotationPod] = recorded
	}
	copied, metadata := *service, *service.ObjectMetaApplyConfiguration
	metadata.Annotations = maps.Clone(metadata.Annotations)
	copied.ObjectMetaApplyConfiguration = &metadata
	return copied.WithAnnotations(annotations), nil
}

// PodOfAdvertised is PodOf for the addresses that the class advertises.
func PodOfAdvertised(l *exposure.Listener) (string, *exposure.Refusal) {
	advertise, path := l.Class.Advertised()
	if advertise == nil {
		return "", nil
	}
	ofAddress, refusal := PodOf(l, path, string(advertise.AddressTemplate))
	if refusal != nil {
		return "", refusal
	}
	ofPort, refusal := PodOf(l, "spec.advertise.portTemplate", string(advertise.PortTemplate))
	return max(ofAddress, ofPort), refusal // they are the same, or one is empty
}

// named returns the name of a Listener by the template of the class, which has one, under an empty port.
func named(l *exposure.Listener) (Hosts, *exposure.Refusal) {
	const path = "spec.hostname.template"
	hosts, refusal := Template{Path: path, Text: string(l.Class.Spec.Hostname.Template)}.Of(l, []string{""})
	name := hosts.ByPort[""]
	if problem := address.Inside(name, l.ClusterDomain); refusal == nil && problem != "" &&
		!l.Class.Spec.Hostname.Annotated() {
		return Hosts{}, exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "%s of ListenerClass %s results in %q, "+
			"which is %s; use a domain that clients outside the cluster resolve", path, l.Class.Name, name, problem)
	}
	return hosts, refusal
}

// NameOf returns the name of a Listener by the template of its class, or "" if there is none, or no name by it.
func NameOf(l *exposure.Listener) string {
	if l.Class.Spec.Hostname == nil {
		return ""
	}
	hosts, _ := named(l)
	return hosts.ByPort[""]
}

// NameOfService returns the name in the annotations of the observed Service, or "" if the class has no such names, or
// if another client has changed the annotation: certificates are issued for names that are published. One that is
// published already stays while the template cannot be used, for example because there is no Pod.
func NameOfService(l *exposure.Listener) string {
	name := l.Service.Annotations[names.AnnotationHostname]
	if !l.Class.Spec.Hostname.Annotated() || name == "" {
		return ""
	}
	if hosts, refusal := named(l); refusal == nil && hosts.ByPort[""] == name || l.Publishes(name) {
		return name
	}
	return ""
}
