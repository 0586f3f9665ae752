package gather

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/listener-operator/listener-operator/internal/names"
)

// removed replaces what may be secret, so that readers see that there is something.
const removed = "(removed)"

// known are the domains of annotations, and other annotations, whose values are kept: those that the operator and the
// plugin write or read. Anybody may write anything into others.
var known = []string{names.Driver, "listener-operator.dev", names.AnnotationProvisioner, names.AnnotationHostname, names.AnnotationHostname022}

// fields are the fields that are removed wherever they are in an object of any kind: the value of an environment
// variable, what a container said when it ended, what a probe requests, the key of a Route, the password of a keystore
// of a Certificate, what an InstallPlan creates, which may include a Secret, and the parameters of a driver's
// StorageClass. From a Pod of users, what it runs is removed, too.
var fields = map[string][]string{
	"env":        {"value"},
	"terminated": {"message"},
	"httpGet":    {"path"},
	"jks":        {"password"},
	"pkcs12":     {"password"},
	"tls":        {"key", "certificate", "caCertificate", "destinationCACertificate"},
	"resource":   {"manifest"},
	"":           {"parameters", "httpHeaders"},
	"users' Pod": {"parameters", "httpHeaders", "command", "args", "exec", "options"},
}

// clean removes from an object what is of no use to readers, and what may be secret.
func (g *gatherer) clean(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	unstructured.RemoveNestedField(o.Object, "status", "images") // of Nodes, and long
	unstructured.RemoveNestedField(o.Object, "spec", "icon")     // of ClusterServiceVersions
	everywhere := fields[""]
	switch {
	case o.GetKind() == "CustomResourceDefinition":
		cleanAnnotations(o.Object["metadata"].(map[string]any)["annotations"])
		return // its schema has such fields
	case o.GetKind() == "Pod" && !g.isOwn(o):
		everywhere = fields["users' Pod"]
	}
	cleanFields(o.Object, everywhere, "")
}

// cleanFields removes fields of an object or a list below a field.
func cleanFields(value any, everywhere []string, below string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			cleanFields(item, everywhere, below)
		}
	case map[string]any:
		for name, field := range value {
			switch {
			case slices.Contains(everywhere, name):
				delete(value, name)
			case below != "" && slices.Contains(fields[below], name):
				value[name] = removed
			case name == "annotations" || strings.HasSuffix(name, "Annotations"), name == "volumeAttributes": // those of a claim
				cleanAnnotations(field)
			default:
				cleanFields(field, everywhere, name)
			}
		}
	}
}

// cleanAnnotations removes the values of annotations that may be secret.
func cleanAnnotations(value any) {
	annotations, _ := value.(map[string]any)
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	for key := range annotations {
		if domain, _, _ := strings.Cut(key, "/"); !slices.Contains(known, domain) && !slices.Contains(known, key) {
			annotations[key] = removed
		}
	}
}
