package bundle

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"
	"sigs.k8s.io/crdify/pkg/validations/property"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestCRDsAreCompatibleWithTheLastRelease(t *testing.T) {
	released, current := crds(t, "released"), crds(t, root+"config/crd/bases")
	if len(released) == 0 {
		t.Fatal("no CRDs of the last release in test/bundle/released")
	}
	for _, name := range slices.Sorted(maps.Keys(released)) {
		if current[name] == nil {
			t.Errorf("CRD %s was removed", name)
			continue
		}
		for _, b := range incompatibilities(t, released[name], current[name]) {
			t.Errorf("%s: %s\nThe change breaks objects or clients of the last release, and OLM may reject the upgrade. Only add optional fields; a rule for "+
				"whole objects must begin with `!has(self.newField) ||`.", name, b)
		}
	}
}

// crds returns the CRDs in a directory by name.
func crds(t *testing.T, dir string) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.yaml")
	check.Must(t, err)
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, path := range paths {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		read(t, path, crd)
		all[crd.Name] = crd
	}
	return all
}

// incompatibilities returns the changes that break objects or clients of the old CRD. The rules are those by which OLM
// v1 rejects an upgrade, in its own library, and a few more. Changes that the rules do not support are incompatible.
func incompatibilities(t *testing.T, old, updated *apiextensionsv1.CustomResourceDefinition) []string {
	t.Helper()
	old, updated = old.DeepCopy(), updated.DeepCopy()
	all := unserved(old, updated)
	for _, v := range old.Spec.Versions {
		// A cluster may have stored objects of any version.
		old.Status.StoredVersions = append(old.Status.StoredVersions, v.Name)
		if n := validations.GetCRDVersionByName(updated, v.Name); n != nil {
			dropCompatible(v.Schema.OpenAPIV3Schema, n.Schema.OpenAPIV3Schema)
		}
	}
	rules, err := runner.New(&config.Config{
		Conversion:           config.ConversionPolicyNone,
		UnhandledEnforcement: config.EnforcementPolicyError,
		Validations: []config.ValidationConfig{{
			Name: "enum", Enforcement: config.EnforcementPolicyError,
			Configuration: map[string]any{"additionPolicy": property.AdditionPolicyAllow},
		}},
	}, runner.DefaultRegistry())
	check.Must(t, err)
	results := rules.Run(old, updated)
	for _, r := range results.CRDValidation {
		for _, e := range r.Errors {
			all = append(all, fmt.Sprintf("%s: %s", r.Name, e))
		}
	}
	for _, version := range slices.Concat(results.SameVersionValidation, results.ServedVersionValidation) {
		for _, p := range version.PropertyComparisons {
			for _, r := range p.ComparisonResults {
				for _, e := range r.Errors {
					all = append(all, fmt.Sprintf("%s %s: %s: %s", version.Version, p.Property, r.Name, e))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// unserved returns what the old CRD serves and the new one does not.
func unserved(old, updated *apiextensionsv1.CustomResourceDefinition) []string {
	var all []string
	if old.Spec.Group != updated.Spec.Group || old.Spec.Names.Kind != updated.Spec.Names.Kind || old.Spec.Names.Plural != updated.Spec.Names.Plural {
		all = append(all, "the name changed")
	}
	for _, v := range old.Spec.Versions {
		n := validations.GetCRDVersionByName(updated, v.Name)
		if n == nil {
			continue // the rules reject its removal
		}
		if v.Served && !n.Served {
			all = append(all, v.Name+" is no longer served")
		}
		if status(v) && !status(*n) {
			all = append(all, v.Name+" no longer has the status subresource")
		}
		for _, f := range v.SelectableFields {
			if !slices.Contains(n.SelectableFields, f) {
				all = append(all, fmt.Sprintf("%s can no longer be selected by %s", v.Name, f.JSONPath))
			}
		}
	}
	return all
}

// status reports whether the version has the status subresource.
func status(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return v.Subresources != nil && v.Subresources.Status != nil
}

var (
	// guard matches rules that are true for every object without a certain field.
	guard = regexp.MustCompile(`^!has\(self\.(\w+)\) \|\| [^?]*$`)
	// exclusive matches rules that are true for every object with at most one of some fields.
	exclusive = regexp.MustCompile(`^\[has\(self\.\w+\)(, has\(self\.\w+\))*\]\.filter\(set, set\)\.size\(\) < 2$`)
	fields    = regexp.MustCompile(`has\(self\.(\w+)\)`)
)

// concernsNew reports whether a rule is true for every object that has only fields of the old schema.
func concernsNew(rule string, old *apiextensionsv1.JSONSchemaProps) bool {
	isKnown := func(match []string) bool {
		_, known := old.Properties[match[1]]
		return known
	}
	if match := guard.FindStringSubmatch(rule); match != nil {
		return !isKnown(match)
	}
	all := fields.FindAllStringSubmatch(rule, -1)
	return exclusive.MatchString(rule) && slices.IndexFunc(all, isKnown) == -1
}

// dropCompatible removes what does not affect compatibility: descriptions and, from the new schema, rules that only
// apply to objects with a new field.
func dropCompatible(old, updated *apiextensionsv1.JSONSchemaProps) {
	if old == nil || updated == nil {
		return
	}
	old.Description, updated.Description = "", ""
	updated.XValidations = slices.DeleteFunc(updated.XValidations, func(r apiextensionsv1.ValidationRule) bool {
		return concernsNew(r.Rule, old)
	})
	for name, p := range old.Properties {
		if n, ok := updated.Properties[name]; ok {
			dropCompatible(&p, &n)
			old.Properties[name], updated.Properties[name] = p, n
		}
	}
	if old.Items != nil && updated.Items != nil {
		dropCompatible(old.Items.Schema, updated.Items.Schema)
	}
	if old.AdditionalProperties != nil && updated.AdditionalProperties != nil {
		dropCompatible(old.AdditionalProperties.Schema, updated.AdditionalProperties.Schema)
	}
}

type schema = apiextensionsv1.JSONSchemaProps

// sample returns a CRD with fields of different types.
func sample() *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.dev",
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Sample", Plural: "samples"},
		Scope: apiextensionsv1.NamespaceScoped,
	}}
	for _, name := range []string{"v1alpha1", "v1beta1"} {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: name == "v1beta1",
			Subresources:     &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.text"}},
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema{Type: "object", Properties: map[string]schema{
				"text":   {Type: "string", MinLength: ptr.To[int64](1), MaxLength: ptr.To[int64](9), Pattern: "^a", Default: text("a")},
				"choice": {Type: "string", Enum: []apiextensionsv1.JSON{*text("one"), *text("two")}},
				"number": {Type: "integer", Minimum: ptr.To(1.0), Maximum: ptr.To(9.0), Nullable: true},
				"free":   {Type: "object", XPreserveUnknownFields: ptr.To(true)},
				"list":   {Type: "array", MaxItems: ptr.To[int64](9), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &schema{Type: "string"}}},
				"map": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &schema{
					Type: "object", Properties: map[string]schema{"inner": {Type: "string"}},
				}}},
			}}},
		})
	}
	return crd
}

func text(s string) *apiextensionsv1.JSON {
	return &apiextensionsv1.JSON{Raw: []byte(`"` + s + `"`)}
}

// edit returns a function that changes the schema of a field in each version.
func edit(field string, change func(*schema)) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		for _, v := range crd.Spec.Versions {
			if field == "" {
				change(v.Schema.OpenAPIV3Schema)
				continue
			}
			s := v.Schema.OpenAPIV3Schema.Properties[field]
			change(&s)
			v.Schema.OpenAPIV3Schema.Properties[field] = s
		}
	}
}

// rule returns a function that adds a rule for whole objects.
func rule(text string) func(*apiextensionsv1.CustomResourceDefinition) {
	return edit("", func(s *schema) { s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: text}) })
}

func TestIncompatibleChangesAreFound(t *testing.T) {
	type crd = apiextensionsv1.CustomResourceDefinition
	for name, tc := range map[string]struct {
		change func(*crd)
		want   string
	}{
		"a removed field":           {edit("", func(s *schema) { delete(s.Properties, "text") }), "removed field"},
		"a removed inner field":     {edit("map", func(s *schema) { delete(s.AdditionalProperties.Schema.Properties, "inner") }), "removed field"},
		"a removed version":         {func(c *crd) { c.Spec.Versions = c.Spec.Versions[1:] }, "v1alpha1"},
		"a version not served":      {func(c *crd) { c.Spec.Versions[0].Served = false }, "no longer served"},
		"another kind":              {func(c *crd) { c.Spec.Names.Kind = "Other" }, "name changed"},
		"another scope":             {func(c *crd) { c.Spec.Scope = apiextensionsv1.ClusterScoped }, "scope"},
		"no status":                 {func(c *crd) { c.Spec.Versions[0].Subresources = nil }, "no longer has the status"},
		"no selection":              {func(c *crd) { c.Spec.Versions[0].SelectableFields = nil }, "selected"},
		"another type":              {edit("text", func(s *schema) { s.Type = "integer" }), "type"},
		"a removed choice":          {edit("choice", func(s *schema) { s.Enum = s.Enum[:1] }), "enum"},
		"new choices":               {edit("list", func(s *schema) { s.Items.Schema.Enum = []apiextensionsv1.JSON{*text("one")} }), "enum"},
		"a higher minimum":          {edit("number", func(s *schema) { s.Minimum = ptr.To(2.0) }), "minimum"},
		"a lower maximum":           {edit("number", func(s *schema) { s.Maximum = ptr.To(8.0) }), "maximum"},
		"no null":                   {edit("number", func(s *schema) { s.Nullable = false }), "nullable"},
		"a longer minimum":          {edit("text", func(s *schema) { s.MinLength = ptr.To[int64](2) }), "minimum"},
		"a shorter maximum":         {edit("text", func(s *schema) { s.MaxLength = ptr.To[int64](8) }), "maximum"},
		"fewer items":               {edit("list", func(s *schema) { s.MaxItems = ptr.To[int64](8) }), "maximum"},
		"another pattern":           {edit("text", func(s *schema) { s.Pattern = "^ab" }), "pattern"},
		"a new pattern":             {edit("choice", func(s *schema) { s.Pattern = "^o" }), "pattern"},
		"another default":           {edit("text", func(s *schema) { s.Default = text("ab") }), "default"},
		"a default for old objects": {edit("choice", func(s *schema) { s.Default = text("one") }), "default"},
		"no default":                {edit("text", func(s *schema) { s.Default = nil }), "default"},
		"a required field":          {edit("", func(s *schema) { s.Required = []string{"choice"} }), "required"},
		"a required new field": {edit("", func(s *schema) {
			s.Properties["more"], s.Required = schema{Type: "string"}, []string{"more"}
		}), "required"},
		"unknown fields pruned":       {edit("free", func(s *schema) { s.XPreserveUnknownFields = nil }), "unhandled"},
		"a format":                    {edit("text", func(s *schema) { s.Format = "date" }), "unhandled"},
		"a rule":                      {rule("self.choice != 'two'"), "unhandled"},
		"a rule guarded by old":       {rule("!has(self.text) || self.choice != 'two'"), "unhandled"},
		"a rule of old fields":        {rule("[has(self.more), has(self.text)].filter(set, set).size() < 2"), "unhandled"},
		"a rule guarded by condition": {rule("!has(self.more) || true ? self.choice != 'two' : true"), "unhandled"},
	} {
		t.Run(name, func(t *testing.T) {
			updated := sample()
			tc.change(updated)
			if got := strings.Join(incompatibilities(t, sample(), updated), "\n"); !strings.Contains(got, tc.want) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCompatibleChangesAreAccepted(t *testing.T) {
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"no change": func(*apiextensionsv1.CustomResourceDefinition) {},
		"a field with rules and a default": edit("", func(s *schema) {
			s.Properties["more"] = schema{
				Type: "string", Default: text("a"), MinLength: ptr.To[int64](1), XValidations: []apiextensionsv1.ValidationRule{{Rule: "self != 'b'"}},
			}
		}),
		"a rule for a new field": rule("!has(self.more) || self.choice == 'one'"),
		"a choice":               edit("choice", func(s *schema) { s.Enum = append(s.Enum, *text("three")) }),
		"wider limits": edit("text", func(s *schema) {
			s.MinLength, s.MaxLength = nil, ptr.To[int64](10)
		}),
		"descriptions": func(crd *apiextensionsv1.CustomResourceDefinition) {
			edit("text", func(s *schema) { s.Description = "Another text." })(crd)
			edit("map", func(s *schema) { s.AdditionalProperties.Schema.Description = "Another text." })(crd)
		},
		"a version": func(crd *apiextensionsv1.CustomResourceDefinition) {
			v := *crd.Spec.Versions[1].DeepCopy()
			v.Name = "v1"
			crd.Spec.Versions = append(crd.Spec.Versions, v)
		},
	} {
		t.Run(name, func(t *testing.T) {
			updated := sample()
			change(updated)
			if got := incompatibilities(t, sample(), updated); len(got) > 0 {
				t.Errorf("found %q", got)
			}
		})
	}
}
