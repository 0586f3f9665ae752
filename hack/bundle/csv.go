package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// relatedImagePrefix is the prefix of the environment variables that contain the images of operands.
const relatedImagePrefix = "RELATED_IMAGE_"

// clusterServiceVersion returns the base in the manifests, completed from the other manifests.
func clusterServiceVersion(
	m manifests, crds []*apiextensionsv1.CustomResourceDefinition, o Options, icon []byte,
) (*operatorsv1alpha1.ClusterServiceVersion, error) {
	csv, err := single[operatorsv1alpha1.ClusterServiceVersion](m, "ClusterServiceVersion")
	if err != nil {
		return nil, err
	}
	deployment, err := single[appsv1.Deployment](m, "Deployment")
	if err != nil {
		return nil, err
	}
	csv.Name = o.Package + ".v" + o.Version
	csv.Spec.Version = version.OperatorVersion{Version: semver.MustParse(o.Version)}
	csv.Spec.Icon = []operatorsv1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon), MediaType: "image/svg+xml"}}
	if err := annotate(csv, m, o); err != nil {
		return nil, err
	}
	if err := describe(csv, crds); err != nil {
		return nil, err
	}
	csv.Spec.RelatedImages = setImages(&deployment.Spec.Template.Spec, o.Image)
	strategy := &csv.Spec.InstallStrategy.StrategySpec
	strategy.DeploymentSpecs = []operatorsv1alpha1.StrategyDeploymentSpec{{Name: deployment.Name, Label: deployment.Labels, Spec: deployment.Spec}}
	if strategy.Permissions, err = permissions(m, "Role"); err != nil {
		return nil, err
	}
	if strategy.ClusterPermissions, err = permissions(m, "ClusterRole"); err != nil {
		return nil, err
	}
	permitImages(strategy.ClusterPermissions, csv.Spec.RelatedImages)
	return csv, checkServiceAccounts(m, slices.Concat(strategy.Permissions, strategy.ClusterPermissions))
}

// annotate sets the annotations that are derived from the options and from other objects.
func annotate(csv *operatorsv1alpha1.ClusterServiceVersion, m manifests, o Options) error {
	var examples []*unstructured.Unstructured
	for _, owned := range csv.Spec.CustomResourceDefinitions.Owned {
		example, err := m.first(owned.Kind)
		if err != nil {
			return fmt.Errorf("finding an example: %w", err)
		}
		examples = append(examples, example)
	}
	slices.SortFunc(examples, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetKind(), b.GetKind()) })
	namespace, err := m.first("Namespace")
	if err != nil {
		return err
	}
	initial, err := m.first("ListenerOperator")
	if err != nil {
		return err
	}
	initial = initial.DeepCopy()
	unstructured.RemoveNestedField(initial.Object, "status")
	csv.Annotations["containerImage"] = o.Image
	csv.Annotations["createdAt"] = cmp.Or(o.Created, csv.Annotations["createdAt"])
	// The operator uses no other images, but only images given by digest can be mirrored.
	csv.Annotations["features.operators.openshift.io/disconnected"] = strconv.FormatBool(strings.Contains(o.Image, "@sha256:"))
	for name, content := range map[string]any{
		"alm-examples": examples,
		"operatorframework.io/suggested-namespace-template": namespace,
		"operatorframework.io/initialization-resource":      initial,
	} {
		data, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding %s: %w", name, err)
		}
		csv.Annotations[name] = string(data)
	}
	return nil
}

// setImages sets the image of the Pod's containers and in their RELATED_IMAGE_ variables, and returns the related
// images.
func setImages(pod *corev1.PodSpec, image string) []operatorsv1alpha1.RelatedImage {
	var related []operatorsv1alpha1.RelatedImage
	for i := range pod.Containers {
		c := &pod.Containers[i]
		c.Image = image
		related = append(related, operatorsv1alpha1.RelatedImage{Name: c.Name, Image: image})
		for j := range c.Env {
			if name, ok := strings.CutPrefix(c.Env[j].Name, relatedImagePrefix); ok {
				c.Env[j].Value = image
				name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
				related = append(related, operatorsv1alpha1.RelatedImage{Name: name, Image: image})
			}
		}
	}
	return related
}

// imageResource is the resource whose names are the images that the operator may run (config/rbac).
const imageResource = "nodeagentimages"

// permitImages replaces the names in the rules for images by the related images.
func permitImages(permissions deploymentPermissions, related []operatorsv1alpha1.RelatedImage) {
	var images []string
	for _, image := range related {
		images = append(images, image.Image)
	}
	slices.Sort(images)
	images = slices.Compact(images)
	for _, p := range permissions {
		for i := range p.Rules {
			if slices.Contains(p.Rules[i].Resources, imageResource) {
				p.Rules[i].ResourceNames = images
			}
		}
	}
}

type deploymentPermissions = []operatorsv1alpha1.StrategyDeploymentPermissions

// permissions returns the RBAC rules of each ServiceAccount that has bindings to roles of the kind, Role or
// ClusterRole.
func permissions(m manifests, kind string) (deploymentPermissions, error) {
	// A ClusterRole has the same fields as a Role.
	roles, err := all[rbacv1.Role](m, kind)
	if err != nil {
		return nil, err
	}
	bindings, err := all[rbacv1.RoleBinding](m, kind+"Binding")
	if err != nil {
		return nil, err
	}
	var result deploymentPermissions
	for _, b := range bindings {
		role := slices.IndexFunc(roles, func(r *rbacv1.Role) bool { return r.Name == b.RoleRef.Name })
		if role < 0 {
			return nil, fmt.Errorf("no %s for %sBinding %s", kind, kind, b.Name)
		}
		for _, subject := range b.Subjects {
			i := slices.IndexFunc(result, func(p operatorsv1alpha1.StrategyDeploymentPermissions) bool {
				return p.ServiceAccountName == subject.Name
			})
			if i < 0 {
				i = len(result)
				result = append(result, operatorsv1alpha1.StrategyDeploymentPermissions{ServiceAccountName: subject.Name})
			}
			result[i].Rules = append(result[i].Rules, roles[role].Rules...)
		}
	}
	return result, nil
}

// rolesForUsers returns the ClusterRoles that are bound to nobody. Kubernetes adds their rules to its own roles.
func rolesForUsers(m manifests) ([]*rbacv1.ClusterRole, error) {
	roles, err := all[rbacv1.ClusterRole](m, "ClusterRole")
	if err != nil {
		return nil, err
	}
	bindings, err := all[rbacv1.ClusterRoleBinding](m, "ClusterRoleBinding")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(roles, func(r *rbacv1.ClusterRole) bool {
		return slices.ContainsFunc(bindings, func(b *rbacv1.ClusterRoleBinding) bool { return b.RoleRef.Name == r.Name })
	}), nil
}

// checkServiceAccounts fails unless each ServiceAccount has permissions. OLM creates those that have, also if no
// Deployment uses them.
func checkServiceAccounts(m manifests, permissions deploymentPermissions) error {
	for _, u := range m {
		if u.GetKind() == "ServiceAccount" && !slices.ContainsFunc(permissions, func(p operatorsv1alpha1.StrategyDeploymentPermissions) bool {
			return p.ServiceAccountName == u.GetName()
		}) {
			return fmt.Errorf("ServiceAccount %s has no RBAC rules, so OLM would not create it", u.GetName())
		}
	}
	return nil
}
