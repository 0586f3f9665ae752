package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// x-descriptors, which consoles use to display and edit a field.
const (
	uiPrefix     = "urn:alm:descriptor:com.tectonic.ui:"
	uiConditions = "urn:alm:descriptor:io.kubernetes.conditions"
)

// kubernetesTypes are fields whose types are Kubernetes' own. Their nested fields get no descriptors.
var kubernetesTypes = []string{"affinity", "conditions", "resources", "tolerations"}

// field is a field of a resource, at a path like "nodeAgent.kubeletDir" or, for the items of a list, "ports[0].name".
type field struct {
	path, displayName, description string
	xDescriptors                   []string
}

// describe adds a descriptor of each field to the owned CRDs.
func describe(csv *operatorsv1alpha1.ClusterServiceVersion, crds []*apiextensionsv1.CustomResourceDefinition) error {
	owned := csv.Spec.CustomResourceDefinitions.Owned
	for i := range owned {
		schema, err := schemaOf(owned[i], crds)
		if err != nil {
			return err
		}
		for _, f := range fields("", schema.Properties["spec"]) {
			owned[i].SpecDescriptors = append(owned[i].SpecDescriptors, operatorsv1alpha1.SpecDescriptor{
				Path: f.path, DisplayName: f.displayName, Description: f.description, XDescriptors: f.xDescriptors,
			})
		}
		for _, f := range fields("", schema.Properties["status"]) {
			descriptor := operatorsv1alpha1.StatusDescriptor{Path: f.path, DisplayName: f.displayName, Description: f.description}
			if f.path == "conditions" {
				descriptor.XDescriptors = []string{uiConditions}
			}
			owned[i].StatusDescriptors = append(owned[i].StatusDescriptors, descriptor)
		}
	}
	return nil
}

// schemaOf returns the schema of an owned CRD.
func schemaOf(owned operatorsv1alpha1.CRDDescription, crds []*apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.JSONSchemaProps, error) {
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			if crd.Name == owned.Name && crd.Spec.Names.Kind == owned.Kind && v.Name == owned.Version {
				return v.Schema.OpenAPIV3Schema, nil
			}
		}
	}
	return nil, fmt.Errorf("no CustomResourceDefinition %s has kind %s and version %s", owned.Name, owned.Kind, owned.Version)
}

// fields returns all fields of an object schema, sorted by path.
func fields(prefix string, object apiextensionsv1.JSONSchemaProps) []field {
	var all []field
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		schema := object.Properties[name]
		all = append(all, field{
			path:         prefix + name,
			displayName:  title(name),
			description:  strings.Join(strings.Fields(schema.Description), " "),
			xDescriptors: xDescriptors(name, schema),
		})
		if slices.Contains(kubernetesTypes, name) {
			continue
		}
		all = append(all, fields(prefix+name+".", schema)...)
		if schema.Items != nil && schema.Items.Schema != nil {
			all = append(all, fields(prefix+name+"[0].", *schema.Items.Schema)...)
		}
	}
	return all
}

// xDescriptors returns the x-descriptors of a field of the spec.
func xDescriptors(name string, schema apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	for _, value := range schema.Enum {
		var s string
		if json.Unmarshal(value.Raw, &s) == nil {
			all = append(all, uiPrefix+"select:"+s)
		}
	}
	switch {
	case len(all) > 0:
		return all
	case name == "resources":
		return []string{uiPrefix + "resourceRequirements"}
	case schema.Type == "boolean":
		return []string{uiPrefix + "booleanSwitch"}
	case schema.Type == "integer":
		return []string{uiPrefix + "number"}
	case schema.Type == "string":
		return []string{uiPrefix + "text"}
	}
	return nil
}

// title returns the display name of a field: "Node Agent" for "nodeAgent".
func title(name string) string {
	var b strings.Builder
	previous := ' '
	for i, r := range name {
		switch {
		case i == 0:
			r = unicode.ToUpper(r)
		case unicode.IsUpper(r) && !unicode.IsUpper(previous):
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		previous = r
	}
	return b.String()
}
