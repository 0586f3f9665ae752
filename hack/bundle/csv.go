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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// relatedImagePrefix is the prefix of the environment variables that contain the images of operands.
const relatedImagePrefix = "RELATED_IMAGE_"

// clusterServiceVersion returns the base, completed from the other manifests.
func clusterServiceVersion(p *manifests, o Options, icon []byte) (*operatorsv1alpha1.ClusterServiceVersion, error) {
	csv := p.base.DeepCopy()
	csv.Name = packageName + ".v" + o.Version
	csv.Spec.Version = version.OperatorVersion{Version: semver.MustParse(o.Version)}
	csv.Spec.Icon = []operatorsv1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon), MediaType: "image/svg+xml"}}
	if err := annotate(csv, p, o); err != nil {
		return nil, err
	}
	if err := describe(csv, p.crds); err != nil {
		return nil, err
	}
	csv.Spec.RelatedImages = setImages(&p.deployment.Spec.Template.Spec, o.Image)
	strategy := &csv.Spec.InstallStrategy.StrategySpec
	strategy.DeploymentSpecs = []operatorsv1alpha1.StrategyDeploymentSpec{{
		Name:  p.deployment.Name,
		Label: p.deployment.Labels,
		Spec:  p.deployment.Spec,
	}}
	var err error
	strategy.Permissions, strategy.ClusterPermissions, err = permissions(p)
	return csv, err
}

// annotate sets the annotations that are derived from the options and from other objects.
func annotate(csv *operatorsv1alpha1.ClusterServiceVersion, p *manifests, o Options) error {
	var examples []*unstructured.Unstructured
	for _, owned := range csv.Spec.CustomResourceDefinitions.Owned {
		i := slices.IndexFunc(p.examples, func(u *unstructured.Unstructured) bool { return u.GetKind() == owned.Kind })
		if i < 0 {
			return fmt.Errorf("no example of kind %s", owned.Kind)
		}
		examples = append(examples, p.examples[i])
	}
	slices.SortFunc(examples, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetKind(), b.GetKind()) })
	csv.Annotations["containerImage"] = o.Image
	csv.Annotations["createdAt"] = cmp.Or(o.Created, csv.Annotations["createdAt"])
	// The operator uses no other images, but only images given by digest can be mirrored.
	csv.Annotations["features.operators.openshift.io/disconnected"] = strconv.FormatBool(strings.Contains(o.Image, "@sha256:"))
	initial := examples[slices.IndexFunc(examples, func(u *unstructured.Unstructured) bool { return u.GetKind() == "ListenerOperator" })].DeepCopy()
	unstructured.RemoveNestedField(initial.Object, "status")
	for name, content := range map[string]any{
		"alm-examples": examples,
		"operatorframework.io/suggested-namespace-template": p.namespace,
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

type deploymentPermissions = []operatorsv1alpha1.StrategyDeploymentPermissions

// permissions returns the RBAC rules of each ServiceAccount, in its namespace and in the cluster. OLM creates these
// ServiceAccounts, also those that no Deployment uses.
func permissions(p *manifests) (namespaced, cluster deploymentPermissions, err error) {
	for _, b := range p.roleBindings {
		i := slices.IndexFunc(p.roles, func(r *rbacv1.Role) bool { return r.Name == b.RoleRef.Name })
		if i < 0 {
			return nil, nil, fmt.Errorf("no Role for RoleBinding %s", b.Name)
		}
		namespaced = addRules(namespaced, b.Subjects, p.roles[i].Rules)
	}
	for _, b := range p.clusterRoleBindings {
		i := slices.IndexFunc(p.clusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == b.RoleRef.Name })
		if i < 0 {
			return nil, nil, fmt.Errorf("no ClusterRole for ClusterRoleBinding %s", b.Name)
		}
		cluster = addRules(cluster, b.Subjects, p.clusterRoles[i].Rules)
	}
	for _, account := range p.serviceAccounts {
		if !slices.ContainsFunc(slices.Concat(namespaced, cluster), func(r operatorsv1alpha1.StrategyDeploymentPermissions) bool {
			return r.ServiceAccountName == account.Name
		}) {
			return nil, nil, fmt.Errorf("ServiceAccount %s has no RBAC rules, so OLM would not create it", account.Name)
		}
	}
	return namespaced, cluster, nil
}

// addRules adds the rules to the permissions of each subject.
func addRules(all deploymentPermissions, subjects []rbacv1.Subject, rules []rbacv1.PolicyRule) deploymentPermissions {
	for _, s := range subjects {
		i := slices.IndexFunc(all, func(r operatorsv1alpha1.StrategyDeploymentPermissions) bool { return r.ServiceAccountName == s.Name })
		if i < 0 {
			i = len(all)
			all = append(all, operatorsv1alpha1.StrategyDeploymentPermissions{ServiceAccountName: s.Name})
		}
		all[i].Rules = append(all[i].Rules, rules...)
	}
	return all
}
