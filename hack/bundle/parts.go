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

// parts are the objects that a bundle is made of.
type parts struct {
	// base has what only a bundle tells.
	base       *operatorsv1alpha1.ClusterServiceVersion
	namespace  *unstructured.Unstructured
	deployment *appsv1.Deployment
	crds       []*apiextensionsv1.CustomResourceDefinition

	serviceAccounts     []*corev1.ServiceAccount
	roles               []*rbacv1.Role
	roleBindings        []*rbacv1.RoleBinding
	clusterRoles        []*rbacv1.ClusterRole
	clusterRoleBindings []*rbacv1.ClusterRoleBinding

	// examples are objects of kinds that are not known here: those of our own, and what uses them.
	examples []*unstructured.Unstructured
}

// read parses a stream of YAML documents. An object with a field that its kind does not have is an error.
func read(r io.Reader) (*parts, error) {
	p := &parts{}
	decoder := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		if errors.Is(err, io.EOF) {
			return p, p.complete()
		}
		if err != nil {
			return nil, fmt.Errorf("parsing YAML: %w", err)
		}
		if err := p.add(u); err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

// add sorts an object in.
func (p *parts) add(u *unstructured.Unstructured) (err error) {
	switch u.GetKind() {
	case "ClusterServiceVersion":
		p.base, err = only(p.base, u)
	case "Namespace":
		p.namespace = u
	case "Deployment":
		p.deployment, err = only(p.deployment, u)
	case "CustomResourceDefinition":
		p.crds, err = also(p.crds, u)
	case "ServiceAccount":
		p.serviceAccounts, err = also(p.serviceAccounts, u)
	case "Role":
		p.roles, err = also(p.roles, u)
	case "RoleBinding":
		p.roleBindings, err = also(p.roleBindings, u)
	case "ClusterRole":
		p.clusterRoles, err = also(p.clusterRoles, u)
	case "ClusterRoleBinding":
		p.clusterRoleBindings, err = also(p.clusterRoleBindings, u)
	default:
		p.examples = append(p.examples, u)
	}
	return err
}

// complete checks that nothing is missing without which there is no bundle.
func (p *parts) complete() error {
	switch {
	case p.base == nil:
		return errors.New("there is no ClusterServiceVersion")
	case p.namespace == nil:
		return errors.New("there is no Namespace")
	case p.deployment == nil:
		return errors.New("there is no Deployment")
	}
	return nil
}

// only converts an object whose kind there may be one of.
func only[T any](have *T, u *unstructured.Unstructured) (*T, error) {
	if have != nil {
		return nil, errors.New("there is another one")
	}
	return convert[T](u)
}

// also converts an object whose kind there may be several of.
func also[T any](have []*T, u *unstructured.Unstructured) ([]*T, error) {
	o, err := convert[T](u)
	return append(have, o), err
}

func convert[T any](u *unstructured.Unstructured) (*T, error) {
	o := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, true); err != nil {
		return nil, fmt.Errorf("converting it: %w", err)
	}
	return o, nil
}
