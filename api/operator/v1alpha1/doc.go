// Package v1alpha1 is the API group listener-operator.dev/v1alpha1: the configuration of the operator itself.
//
// +kubebuilder:object:generate=true
// +groupName=listener-operator.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "listener-operator.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ListenerOperator{}, &ListenerOperatorList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
