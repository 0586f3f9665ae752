package main

import (
	"errors"
	"fmt"
	"io"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// manifests are the objects that the bundle is generated from.
type manifests struct {
	// base contains the fields that only a bundle has.
	base       *operatorsv1alpha1.ClusterServiceVersion
	namespace  *unstructured.Unstructured
	deployment *appsv1.Deployment
	crds       []*apiextensionsv1.CustomResourceDefinition

	serviceAccounts     []*corev1.ServiceAccount
	roles               []*rbacv1.Role
	roleBindings        []*rbacv1.RoleBinding
	clusterRoles        []*rbacv1.ClusterRole
	clusterRoleBindings []*rbacv1.ClusterRoleBinding

	// examples are all other objects: custom resources and their users.
	examples []*unstructured.Unstructured
}

// read parses a stream of YAML documents. An unknown field is an error.
func read(r io.Reader) (*manifests, error) {
	p := &manifests{}
	decoder := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		if errors.Is(err, io.EOF) {
			return p, p.validate()
		}
		if err != nil {
			return nil, fmt.Errorf("parsing YAML: %w", err)
		}
		if err := p.add(u); err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

// add adds an object to the field of its kind.
func (p *manifests) add(u *unstructured.Unstructured) (err error) {
	switch u.GetKind() {
	case "ClusterServiceVersion":
		p.base, err = single(p.base, u)
	case "Namespace":
		p.namespace = u
	case "Deployment":
		p.deployment, err = single(p.deployment, u)
	case "CustomResourceDefinition":
		p.crds, err = appendTo(p.crds, u)
	case "ServiceAccount":
		p.serviceAccounts, err = appendTo(p.serviceAccounts, u)
	case "Role":
		p.roles, err = appendTo(p.roles, u)
	case "RoleBinding":
		p.roleBindings, err = appendTo(p.roleBindings, u)
	case "ClusterRole":
		p.clusterRoles, err = appendTo(p.clusterRoles, u)
	case "ClusterRoleBinding":
		p.clusterRoleBindings, err = appendTo(p.clusterRoleBindings, u)
	default:
		p.examples = append(p.examples, u)
	}
	return err
}

// validate checks that all required objects exist.
func (p *manifests) validate() error {
	switch {
	case p.base == nil:
		return errors.New("no ClusterServiceVersion")
	case p.namespace == nil:
		return errors.New("no Namespace")
	case p.deployment == nil:
		return errors.New("no Deployment")
	}
	return nil
}

// single converts the only object of a kind.
func single[T any](existing *T, u *unstructured.Unstructured) (*T, error) {
	if existing != nil {
		return nil, errors.New("there is more than one")
	}
	return convert[T](u)
}

// appendTo converts one of several objects of a kind.
func appendTo[T any](all []*T, u *unstructured.Unstructured) ([]*T, error) {
	o, err := convert[T](u)
	return append(all, o), err
}

func convert[T any](u *unstructured.Unstructured) (*T, error) {
	o := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, true); err != nil {
		return nil, fmt.Errorf("converting from unstructured: %w", err)
	}
	return o, nil
}
