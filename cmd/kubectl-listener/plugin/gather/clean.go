package gather

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// removed replaces what may be secret, so that readers see that there is something.
const removed = "(removed)"

var (
	// known are the domains of annotations whose meaning is known not to be secret.
	known = []string{"kubernetes.io", "k8s.io", "openshift.io", "stackable.tech", "listener-operator.dev", "metallb.io", "metallb.universe.tf"}
	// secretKey and secretValue are what nevertheless looks like a secret.
	secretKey   = regexp.MustCompile(`(?i)secret|token|passw|credential|auth|private|cert|snippet|apikey|api-key`)
	secretValue = regexp.MustCompile(`(?i)eyJ[a-z0-9_-]{8}|bearer |-----BEGIN|passw|secret|token`)
)

// fields are the fields that are removed wherever they are in an object of any kind: the value of an environment
// variable, what a container said when it ended, the key of a Route, what an InstallPlan creates, of which a Secret may
// be a part, and the parameters of a driver's StorageClass. Of a Pod of users, so is what it runs, and what it gives to
// drivers.
var fields = map[string][]string{
	"env":        {"value"},
	"terminated": {"message"},
	"tls":        {"key", "certificate", "caCertificate", "destinationCACertificate"},
	"resource":   {"manifest"},
	"":           {"parameters", "httpHeaders"},
	"users' Pod": {"parameters", "httpHeaders", "command", "args", "exec", "volumeAttributes", "options"},
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
			case name == "annotations" || strings.HasSuffix(name, "Annotations"):
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
	for key, value := range annotations {
		domain, name, _ := strings.Cut(key, "/")
		isKnown := slices.ContainsFunc(known, func(k string) bool { return domain == k || strings.HasSuffix(domain, "."+k) })
		if text, ok := value.(string); ok && (!isKnown || secretKey.MatchString(name) || secretValue.MatchString(text)) {
			annotations[key] = removed
		}
	}
}
