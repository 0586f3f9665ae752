package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestAnnotationsMeetPipelineRequirements(t *testing.T) {
	annotations := csv(t).Annotations
	const feature = "features.operators.openshift.io/"
	for name, pattern := range map[string]string{
		"capabilities":   `^(Basic Install|Seamless Upgrades|Full Lifecycle|Deep Insights|Auto Pilot)$`,
		"categories":     `^Networking$`, // in both existing lists of categories
		"certified":      `^(true|false)$`,
		"containerImage": `^([^/]+/)+[^/:]+:.+$`,
		"createdAt":      `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`,
		"description":    `^.{10,}$`,
		"repository":     `^https://`,
		"support":        `^.{3,}$`,
		// The values describe what the operator supports now.
		feature + "cnf":                             `^false$`,
		feature + "cni":                             `^false$`,
		feature + "csi":                             `^true$`,
		feature + "disconnected":                    `^(true|false)$`,
		feature + "fips-compliant":                  `^false$`,
		feature + "proxy-aware":                     `^true$`,
		feature + "tls-profiles":                    `^true$`,
		feature + "token-auth-aws":                  `^false$`,
		feature + "token-auth-azure":                `^false$`,
		feature + "token-auth-gcp":                  `^false$`,
		"operators.openshift.io/uninstall-message":  `managementState`,
		"operators.openshift.io/valid-subscription": `^\[\]$`, // none is required
	} {
		if got := annotations[name]; !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("%s is %q, want %s", name, got, pattern)
		}
	}
	if _, ok := annotations["olm.properties"]; ok {
		t.Error("properties must be in metadata/properties.yaml")
	}
	// OLM copies them to the Pod, which is limited to 256 KiB.
	size := 0
	for name, value := range annotations {
		size += len(name) + len(value)
	}
	if size > 16<<10 {
		t.Errorf("size of the annotations is %d bytes", size)
	}
}

func TestFieldsMeetPipelineRequirements(t *testing.T) {
	spec := csv(t).Spec
	if n := len(spec.DisplayName); n < 3 || n > 50 {
		t.Errorf("display name is %q", spec.DisplayName)
	}
	if len(spec.Description) < 20 {
		t.Errorf("description is %q", spec.Description)
	}
	if len(spec.Provider.Name) < 3 {
		t.Errorf("provider is %q", spec.Provider.Name)
	}
	if spec.MinKubeVersion != "1.32.0" {
		t.Errorf("minKubeVersion is %q, but the node claims in the agents' tokens, and the policy that uses them, need 1.32", spec.MinKubeVersion)
	}
	for what, n := range map[string]int{"links": len(spec.Links), "maintainers": len(spec.Maintainers), "keywords": len(spec.Keywords)} {
		if n == 0 {
			t.Errorf("no %s", what)
		}
	}
	if spec.Maturity == "" {
		t.Error("no maturity")
	}
	if len(spec.WebhookDefinitions) > 0 {
		t.Error("unexpected webhooks")
	}
}

func TestInstallModes(t *testing.T) {
	got := map[operatorsv1alpha1.InstallModeType]bool{}
	for _, m := range csv(t).Spec.InstallModes {
		got[m.Type] = m.Supported
	}
	want := map[operatorsv1alpha1.InstallModeType]bool{
		operatorsv1alpha1.InstallModeTypeOwnNamespace:    false,
		operatorsv1alpha1.InstallModeTypeSingleNamespace: false,
		operatorsv1alpha1.InstallModeTypeMultiNamespace:  false,
		operatorsv1alpha1.InstallModeTypeAllNamespaces:   true,
	}
	check.Equal(t, "install modes", want, got)
}

func TestIconIsASquareSVG(t *testing.T) {
	icons := csv(t).Spec.Icon
	if len(icons) != 1 || icons[0].MediaType != "image/svg+xml" {
		t.Fatal("want one SVG icon")
	}
	data, err := base64.StdEncoding.DecodeString(icons[0].Data)
	check.Must(t, err)
	var svg struct {
		XMLName xml.Name `xml:"svg"`
		Width   string   `xml:"width,attr"`
		Height  string   `xml:"height,attr"`
	}
	if err := xml.NewDecoder(bytes.NewReader(data)).Decode(&svg); err != nil || svg.Width == "" || svg.Width != svg.Height {
		t.Errorf("width of the icon is %q and height %q: %v", svg.Width, svg.Height, err)
	}
}

func TestPlatformLabels(t *testing.T) {
	const prefix = "operatorframework.io/"
	want := map[string]string{prefix + "os.linux": "supported"}
	for _, architecture := range []string{"amd64", "arm64", "ppc64le", "s390x"} {
		want[prefix+"arch."+architecture] = "supported"
	}
	check.Equal(t, "labels", want, csv(t).Labels)
}

func TestEachOwnedResourceHasAValidExample(t *testing.T) {
	c := csv(t)
	examples := decode[[]unstructured.Unstructured](t, c, "alm-examples")
	var kinds []string
	for _, e := range examples {
		kinds = append(kinds, e.GetKind())
		schema := schemaOf(t, e.GetKind())
		for _, part := range []string{"spec", "status"} {
			fields, _, err := unstructured.NestedMap(e.Object, part)
			if known := len(schema.Properties[part].Properties) > 0; err != nil || known != (len(fields) > 0) {
				t.Errorf("example of %s: %s is %v, schema has one: %t", e.GetKind(), part, fields, known)
			}
			for name := range fields {
				if _, ok := schema.Properties[part].Properties[name]; !ok {
					t.Errorf("example of %s: unknown field %s.%s", e.GetKind(), part, name)
				}
			}
		}
	}
	var owned []string
	for _, o := range c.Spec.CustomResourceDefinitions.Owned {
		owned = append(owned, o.Kind)
	}
	slices.Sort(owned)
	if diff := cmp.Diff(owned, kinds); diff != "" {
		t.Errorf("examples (-owned +examples):\n%s", diff)
	}
}

func TestEachFieldHasADescriptor(t *testing.T) {
	for _, owned := range csv(t).Spec.CustomResourceDefinitions.Owned {
		if owned.DisplayName == "" || owned.Description == "" || len(owned.Resources) == 0 {
			t.Errorf("%s lacks a display name, a description or its resources", owned.Kind)
		}
		described := map[string]bool{}
		check := func(path, displayName, description string) {
			described[path] = true
			if displayName == "" || description == "" {
				t.Errorf("%s %s lacks a display name or a description", owned.Kind, path)
			}
		}
		for _, d := range owned.SpecDescriptors {
			check("spec."+d.Path, d.DisplayName, d.Description)
		}
		for _, d := range owned.StatusDescriptors {
			check("status."+d.Path, d.DisplayName, d.Description)
		}
		schema := schemaOf(t, owned.Kind)
		for _, part := range []string{"spec", "status"} {
			for name := range schema.Properties[part].Properties {
				if path := part + "." + name; !described[path] {
					t.Errorf("%s %s has no descriptor", owned.Kind, path)
				}
			}
		}
	}
}

func TestInitializationResource(t *testing.T) {
	initial := decode[unstructured.Unstructured](t, csv(t), "operatorframework.io/initialization-resource")
	if initial.GetKind() != "ListenerOperator" || initial.GetName() != "cluster" {
		t.Errorf("initialization resource is %s %s", initial.GetKind(), initial.GetName())
	}
	if _, ok := initial.Object["status"]; ok {
		t.Error("the initialization resource has a status")
	}
}

func TestSuggestedNamespaceIsThatOfConfig(t *testing.T) {
	got := decode[corev1.Namespace](t, csv(t), "operatorframework.io/suggested-namespace-template")
	var want corev1.Namespace
	read(t, root+"config/default/namespace.yaml", &want)
	if got.Name != want.Name {
		t.Errorf("namespace is %q, want %q", got.Name, want.Name)
	}
	for name, value := range want.Labels {
		if got.Labels[name] != value {
			t.Errorf("label %s of the namespace is %q, want %q", name, got.Labels[name], value)
		}
	}
	if value, ok := got.Annotations["openshift.io/node-selector"]; !ok || value != "" {
		t.Error("the cluster's default node selector would exclude nodes from the node agents")
	}
}

func TestRelatedImagesAreAllImages(t *testing.T) {
	c := csv(t)
	used, related := map[string]bool{}, map[string]bool{}
	for _, container := range pod(t, c).Containers {
		used[container.Image] = true
		for _, e := range container.Env {
			if strings.HasPrefix(e.Name, "RELATED_IMAGE_") {
				used[e.Value] = true
			}
		}
	}
	for _, r := range c.Spec.RelatedImages {
		related[r.Image] = true
	}
	if diff := cmp.Diff(used, related); diff != "" {
		t.Errorf("related images (-used +related):\n%s", diff)
	}
	if !used[c.Annotations["containerImage"]] {
		t.Errorf("containerImage %s is not used", c.Annotations["containerImage"])
	}
}

func TestDisconnectedRequiresImagesByDigest(t *testing.T) {
	c := csv(t)
	pinned := "true"
	for _, r := range c.Spec.RelatedImages {
		if !strings.Contains(r.Image, "@sha256:") {
			pinned = "false"
		}
	}
	if got := c.Annotations["features.operators.openshift.io/disconnected"]; got != pinned {
		t.Errorf("disconnected is %q, want %s", got, pinned)
	}
}

func TestOperatorReadsAllRelatedImageVariables(t *testing.T) {
	source, err := os.ReadFile(root + "cmd/operator/main.go")
	check.Must(t, err)
	set := map[string]bool{}
	for _, e := range pod(t, csv(t)).Containers[0].Env {
		if strings.HasPrefix(e.Name, "RELATED_IMAGE_") {
			set[e.Name] = true
		}
	}
	read := map[string]bool{}
	for _, name := range regexp.MustCompile(`RELATED_IMAGE_[A-Z_]+`).FindAllString(string(source), -1) {
		read[name] = true
	}
	if diff := cmp.Diff(read, set); diff != "" {
		t.Errorf("RELATED_IMAGE variables (-read +set):\n%s", diff)
	}
}

func TestOperatorMeetsRestrictedPodSecurityStandard(t *testing.T) {
	p := pod(t, csv(t))
	if p.HostNetwork || p.HostPID || p.HostIPC {
		t.Error("the Pod uses a namespace of the host")
	}
	if s := p.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.RunAsUser != nil {
		t.Errorf("the Pod's security context is %v", s)
	}
	for _, v := range p.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s is a hostPath volume", v.Name)
		}
	}
	for _, c := range p.Containers {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("the security context of %s is %v", c.Name, s)
		}
		if memory := c.Resources.Limits.Memory(); len(c.Resources.Requests) != 2 || len(c.Resources.Limits) != 1 || memory.IsZero() {
			t.Errorf("%s: want requests, and a limit of memory alone, got %v", c.Name, c.Resources)
		}
		for _, e := range c.Env {
			if strings.HasSuffix(e.Name, "_NAMESPACE") && e.ValueFrom == nil {
				t.Errorf("%s is %q, but users choose the namespace", e.Name, e.Value)
			}
		}
	}
}

// OpenShift's preflight reads the name of the constraints that the operator needs from this rule, and rejects a second
// name.
func TestAtMostOneSecurityContextConstraintsIsNamed(t *testing.T) {
	for _, p := range csv(t).Spec.InstallStrategy.StrategySpec.ClusterPermissions {
		for _, r := range p.Rules {
			if slices.Contains(r.Resources, "securitycontextconstraints") && len(r.ResourceNames) > 1 {
				t.Errorf("%s has a rule for several SecurityContextConstraints: %v", p.ServiceAccountName, r)
			}
		}
	}
}

func TestDeploymentIsThatOfConfig(t *testing.T) {
	c := csv(t)
	got := c.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0]
	var want appsv1.Deployment
	read(t, root+"config/manager/deployment.yaml", &want)
	image := c.Annotations["containerImage"]
	container := &want.Spec.Template.Spec.Containers[0]
	container.Image = image
	for i := range container.Env {
		if strings.HasPrefix(container.Env[i].Name, "RELATED_IMAGE_") {
			container.Env[i].Value = image
		}
	}
	if got.Name != want.Name {
		t.Errorf("name of the Deployment is %q, want %q", got.Name, want.Name)
	}
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
		t.Errorf("Deployment; run make bundle (-config +bundle):\n%s", diff)
	}
}

// pod returns the PodSpec of the only Deployment.
func pod(t *testing.T, c *operatorsv1alpha1.ClusterServiceVersion) corev1.PodSpec {
	t.Helper()
	deployments := c.Spec.InstallStrategy.StrategySpec.DeploymentSpecs
	if len(deployments) != 1 {
		t.Fatalf("%d Deployments, want one", len(deployments))
	}
	return deployments[0].Spec.Template.Spec
}

// schemaOf returns the schema of a CRD.
func schemaOf(t *testing.T, kind string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	for _, crd := range load(t).V1CRDs {
		if crd.Spec.Names.Kind == kind {
			return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
	t.Fatalf("no CRD for %s", kind)
	return nil
}
