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
	// createTimeout bounds one attempt to create a hint, so that the next one need not wait for a connection that is
	// dead.
	createTimeout = 10 * time.Second
)

// Pod is a Pod on this node, as the kubelet tells of it.
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

// hint is the object that asks the operator for the addresses of a Pod.
func (p Pod) hint(node string) *listenersv1alpha1.PodListeners {
	return listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID, node)
}

// create creates the hint for a Pod, if there is none yet.
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

// newClient returns a client that knows no kinds but ours, which keeps the agent small.
func newClient(cfg *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := listenersv1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the kinds of %s: %w", listenersv1alpha1.GroupVersion, err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion = &listenersv1alpha1.GroupVersion
	cfg.APIPath = "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.QPS = -1 // one request for each mount; the API server sees to fairness
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", listenersv1alpha1.GroupVersion, err)
	}
	return client, nil
}
