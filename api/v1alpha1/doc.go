// Package v1alpha1 is the API group listeners.stackable.tech/v1alpha1: ListenerClass, Listener and PodListeners.
//
// The group is a compatibility contract, docs/contract.md. Comments cite a heading or bold words of it, as in
// "contract: the files". Existing consumers decode its enums as closed sets, distinguish an explicit null from an
// absent field, and apply the port list as a whole. So fields and values are only added, never changed, and a new kind
// of exposure is an additional field of the class, never a new serviceType.
//
// +kubebuilder:object:generate=true
// +groupName=listeners.stackable.tech
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "listeners.stackable.tech", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ListenerClass{}, &ListenerClassList{},
		&Listener{}, &ListenerList{},
		&PodListeners{}, &PodListenersList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
