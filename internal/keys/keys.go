// Package keys has one table of the labels, annotations and attributes of volumes below the domains of the operator:
// where each belongs, what it may be, and what else people write. What validates, explains, gathers and documents them
// reads the table, and tests compare the admission policies with it. The package is pure: it must never read the API.
package keys

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Place is a field of a kind of objects, or of volumes.
type Place struct{ Field, Kind string }

func (p Place) String() string { return p.Field + " of " + p.Kind }

// The places of what users write, except labels of claims and Listeners.
var (
	Pod       = Place{"annotation", "a Pod"}
	Claim     = Place{"annotation", "a claim"}
	Volume    = Place{"attribute", "an inline volume"}
	Namespace = Place{"label", "a Namespace"}
	Node      = Place{"annotation", "a Node"}
	Request   = Place{"userAnnotation", "a podCertificate volume"}
)

type Key struct {
	Name string
	On   []Place
	// Meaning is what the pages say. It is empty if only the operator writes the key.
	Meaning string
	// Values are the only ones, with " or " in between. Empty means that there are many.
	Values string
	// Since is the version of the operator that first knew the key. Empty means the first one.
	Since string
	// mistaken are names, without a domain, that people write instead.
	mistaken []string
}

func Table() []Key { return slices.Clone(table) }

var (
	onListener         = Place{"annotation", "a Listener"}
	onPersistentVolume = Place{"annotation", "a PersistentVolume"}
)

var table = []Key{
	{Name: names.AnnotationListenerClass, On: []Place{Claim, Volume}, mistaken: []string{"class", "inject"},
		Meaning: "the class of an own Listener"},
	{Name: names.AnnotationListenerName, On: []Place{Claim, Volume, {"label", "a PersistentVolume"}},
		mistaken: []string{"name", "listener", "inject-listener"}, Meaning: "or the Listener to share"},
	{Name: names.AnnotationInject, On: []Place{Pod}, mistaken: []string{"listener-class", "class"},
		Meaning: "the class of a volume to add"},
	{Name: names.AnnotationInjectListener, On: []Place{Pod}, mistaken: []string{"listener-name", "listener"},
		Meaning: "or its Listener"},
	{Name: names.AnnotationInjectVolume, On: []Place{Pod}, mistaken: []string{"volume", "volume-name"},
		Meaning: "its name; `listener` by default"},
	{Name: names.AnnotationInjectPath, On: []Place{Pod}, mistaken: []string{"path", "mount-path"},
		Meaning: "its path; `/listener` by default"},
	{Name: names.AnnotationInjectContainers, On: []Place{Pod}, mistaken: []string{"containers", "container"},
		Meaning: "the containers that mount it; by default all, with init containers"},
	{Name: names.AnnotationPorts, On: []Place{Claim, Volume, Pod}, mistaken: []string{"expose"},
		Meaning: "the ports to expose, the preferred one first; by default all"},
	{Name: names.AttributeKeep, On: []Place{Volume, Pod}, Values: "true or false", mistaken: []string{"keep-listener"},
		Meaning: "the Listener [stays for the next Pod](volumes.md#how-long-a-listener-is-kept) of the same name, " +
			"if the controller keeps names, as StatefulSets do"},
	{Name: names.LabelCertificate, On: []Place{{"label", "a Listener"}, {"label", "a claim"}, Volume, Pod},
		mistaken: []string{"cert", "tls"},
		Meaning:  "the [certificate](tls.md#certificates-of-cert-manager) that Listeners share"},
	{Name: names.LabelInjection, On: []Place{Namespace}, Values: "enabled or disabled",
		mistaken: []string{"inject", "enabled"},
		Meaning:  "Pods may ask for a volume [by an annotation](volumes.md#by-an-annotation)"},
	{Name: names.AnnotationRelease, On: []Place{Claim},
		Meaning: "[release](lost-nodes.md) of a pinned volume: a time, or `never`"},
	{Name: names.AnnotationAdvertisedAddress, On: []Place{Node},
		mistaken: []string{"address", "external-ip", "advertise"},
		Meaning:  "[addresses](choosing-a-class.md) to publish for the node"},
	{Name: names.AnnotationCertificateVolumes, On: []Place{Request},
		Meaning: "volumes whose addresses [the certificate](tls.md) is for; by default all"},
	{Name: names.AnnotationCertificateUsages, On: []Place{Request}, Meaning: "`server`, or `server,client`"},
	{Name: names.AnnotationAllowDeletion, On: []Place{{"annotation", "a CustomResourceDefinition"}},
		Meaning: "`true`: it [may be deleted](uninstall.md), with all its objects"},

	{Name: names.AnnotationClaim, On: []Place{onListener}},
	{Name: names.AnnotationKeptFor, On: []Place{onListener}},
	{Name: names.AnnotationNumbers, On: []Place{onListener}},
	{Name: names.LabelListenerNamespace, On: []Place{{"label", "a PersistentVolume"}}},
	{Name: names.AnnotationNode, On: []Place{onPersistentVolume}},
	{Name: names.AnnotationLostSince, On: []Place{onPersistentVolume}},
	{Name: names.AnnotationReminded, On: []Place{onPersistentVolume}},
	{Name: names.AnnotationReleasedFrom, On: []Place{onPersistentVolume}},
	{Name: names.TopologyKey, On: []Place{{"label", "a Node"}}},
	{Name: names.AnnotationPod, On: []Place{{"annotation", "a Service"}, {"annotation", "a Route"},
		{"annotation", "an Ingress"}}},
	{Name: names.AnnotationTouched, On: []Place{{"annotation", "a Route"}}},
	{Name: names.AnnotationServiceAccount, On: []Place{Pod}},
}

func Known(key string) bool {
	return slices.ContainsFunc(table, func(k Key) bool { return k.Name == key })
}

func Belongs(place Place, key string) bool {
	return slices.ContainsFunc(table, func(k Key) bool { return k.Name == key && slices.Contains(k.On, place) })
}

// Words is the regular expression of the elements of a list, as in the admission policy for annotated Pods.
const Words = `[^,\s]+`

var words = regexp.MustCompile(Words)

func List(value string) []string { return words.FindAllString(value, -1) }

// maxText is how much of a key or a value is in a message: as much as a name of Kubernetes may have.
const maxText = 253

// Problem returns what is wrong with a key at a place, or "". What has nothing to do with the operator is right.
func Problem(place Place, key, value string) string {
	i := slices.IndexFunc(table, func(k Key) bool { return k.Name == key })
	switch {
	case i < 0 && !ours(place, key) && (!strings.Contains(strings.ToLower(key), "listener") ||
		nearest(place, key) == ""):
		return ""
	case i < 0:
		text := fmt.Sprintf("the %s %s is unknown", place.Field, message.Printable(key, maxText))
		return text + cmp.Or(question(nearest(place, key)), ": docs/api.md#labels-annotations-and-attributes")
	}
	switch k := table[i]; {
	case !slices.Contains(k.On, place):
		var places []string
		for _, p := range k.On {
			places = append(places, "the "+p.String())
		}
		where := strings.Join(places, ", or ") + question(nearest(place, key))
		return fmt.Sprintf("the %s %s has no effect on %s: it must be %s", place.Field, key, place.Kind, where)
	case k.Values != "" && value != "" && !slices.Contains(strings.Split(k.Values, " or "), value):
		return fmt.Sprintf("the %s %s is %q, and must be %s", place.Field, key, message.Printable(value, maxText),
			k.Values)
	}
	return ""
}

func question(meant string) string {
	if meant == "" {
		return ""
	}
	return ": did you mean " + meant + "?"
}

// ours reports whether an unknown key is below a domain of the operator, or below a similar one. Unlike
// annotations, which others may add, attributes without a domain are the driver's.
func ours(place Place, key string) bool {
	domain, _, qualified := strings.Cut(strings.ToLower(key), "/")
	switch {
	case !qualified:
		return place == Volume
	case strings.HasPrefix(key, names.PodMountLabelPrefix):
		return false
	case strings.HasPrefix(domain, "listener"):
		return place == Volume || strings.Contains(domain, "stackable") || strings.Contains(domain, "operator")
	}
	return message.Differing(domain, names.Driver) <= 2 || message.Differing(domain, names.Domain) <= 2
}

// nearest returns the key at a place that the author of another one probably meant, or "".
func nearest(place Place, key string) (meant string) {
	letters := strings.NewReplacer("-", "", "_", "", ".", "")
	withoutDomain := func(key string) string {
		return letters.Replace(strings.ToLower(key[strings.IndexByte(key, '/')+1:]))
	}
	name := withoutDomain(key)
	distance := len(name)/4 + 2
	for _, k := range table {
		for _, candidate := range append(k.mistaken, k.Name) {
			d := message.Differing(name, withoutDomain(candidate))
			if d < distance && slices.Contains(k.On, place) {
				meant, distance = k.Name, d
			}
		}
	}
	return meant
}

// Problems returns what is wrong with the annotations and labels of an object. kind is as in Place.
func Problems(kind string, o metav1.Object) (problems []string) {
	for field, all := range map[string]map[string]string{"annotation": o.GetAnnotations(), "label": o.GetLabels()} {
		for key, value := range all {
			if problem := Problem(Place{field, kind}, key, value); problem != "" {
				problems = append(problems, problem)
			}
		}
	}
	slices.Sort(problems)
	return problems
}
