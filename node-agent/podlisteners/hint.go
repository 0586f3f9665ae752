package podlisteners

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

const (
	resource = "podlisteners"
	// createTimeout is the timeout of one attempt to create a hint. It keeps a dead connection from delaying the next
	// attempt.
	createTimeout = 10 * time.Second
)

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

// hint returns the PodListeners object that requests the addresses of a Pod from the operator.
func (p Pod) hint(node string) *listenersv1alpha1.PodListeners {
	return listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID, node)
}

// create creates the hint for a Pod unless it exists.
func (w *Watch) create(ctx context.Context, pod Pod) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	hint := pod.hint(w.node)
	err := w.client.Post().Namespace(hint.Namespace).Resource(resource).
		VersionedParams(&metav1.CreateOptions{FieldManager: names.FieldManagerDefault}, metav1.ParameterCodec).
		Body(hint).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodListeners %s/%s: %w", hint.Namespace, hint.Name, err)
	}
	return nil
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
	cfg.QPS = -1 // no client-side limit: there is one request per mount, and the API server ensures fairness
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", listenersv1alpha1.GroupVersion, err)
	}
	return client, nil
}
