package podlisteners

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

const resource = "podlisteners"

// Pod identifies a Pod on this node, as the kubelet does in its requests.
type Pod struct {
	Namespace string
	Name      string
	UID       types.UID
}

// String returns namespace and name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

func (p Pod) key() cache.ObjectName {
	return cache.ObjectName{Namespace: p.Namespace, Name: listenersv1alpha1.PodListenersName(p.UID)}
}

// newClient returns a client for this API group only, which keeps the binary small.
func newClient(cfg *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := listenersv1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the types of %s: %w", listenersv1alpha1.GroupVersion, err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion = &listenersv1alpha1.GroupVersion
	cfg.APIPath = "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", listenersv1alpha1.GroupVersion, err)
	}
	return client, nil
}
