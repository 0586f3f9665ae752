package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

type observation struct {
	config *operatorv1alpha1.ListenerOperator
	// state is Removed for a configuration that is being deleted, whatever it sets: otherwise the garbage collector
	// would delete the components, in no order and while volumes are in use.
	state      operatorv1alpha1.ManagementState
	settings   installation.Settings
	components []component
	rollout    *rollout
	// clusterDomain is the DNS domain of the cluster, and resolverDomain that of the operator's resolver, or empty.
	clusterDomain, resolverDomain string
	// unmonitored is whether OpenShift leaves the namespace to its monitoring of users' workloads. That rejects
	// ServiceMonitors with a token in a file, so they and their alerts are not installed.
	unmonitored bool
	// otherConfinements are messages about policies that are not those that confine this version of the operator.
	otherConfinements []string
}

type component struct {
	installation.Component
	object client.Object
}

func (r *Reconciler) observe(ctx context.Context, config *operatorv1alpha1.ListenerOperator) (*observation, error) {
	operatorPod, podErr := r.readOperatorPod(ctx)
	account, accountErr := r.serviceAccount(ctx, r.Namespace)
	serviceCA, serviceCAErr := lookup.Get(ctx, r.apiReader, r.key(installation.ServiceCA), &corev1.ConfigMap{})
	namespace, namespaceErr := lookup.Get(ctx, r.Client, types.NamespacedName{Name: r.Namespace}, tenancy.Namespace())
	other, otherErr := confinement.Others(ctx, r.Client)
	if err := errors.Join(podErr, accountErr, serviceCAErr, namespaceErr, otherErr); err != nil {
		return nil, err
	}
	o := &observation{config: config, state: config.Spec.ManagementState, otherConfinements: other,
		clusterDomain: config.ClusterDomain(r.ClusterDomain), resolverDomain: r.ClusterDomain}
	if !config.DeletionTimestamp.IsZero() {
		o.state = operatorv1alpha1.Removed
	}
	o.settings = installation.Settings{Namespace: r.Namespace, Image: r.Image, ServiceAccount: account,
		OperatorPod: operatorPod, ServiceCA: serviceCA != nil}
	o.unmonitored = serviceCA != nil && (namespace == nil || namespace.Labels[installation.LabelMonitored] != "true")
	for _, c := range installation.Components() {
		if !c.Optional.Empty() && !r.serves(c.Optional) {
			continue
		}
		object, err := r.get(ctx, c)
		if err != nil {
			return nil, err
		}
		o.components = append(o.components, component{c, object})
	}
	var err error
	if o.rollout, err = r.observeRollout(ctx, o.agents()); err != nil {
		return nil, err
	}
	if status := o.rollout.daemonSet.Status; status.UpdatedNumberScheduled < status.DesiredNumberScheduled {
		o.settings.Agents, o.settings.AgentsDown = int(status.DesiredNumberScheduled), len(o.rollout.down)
	}
	// The API server sets a default for the field, unless its feature gate is off. So the first CSIDriver gets the
	// field with the second write. If it was deleted, it gets the field with the first, as before.
	if driver := objectOf[*storagev1.CSIDriver](o); driver != nil {
		r.guardsScheduling = driver.Spec.PreventPodSchedulingIfMissing != nil
	}
	o.settings.GuardsScheduling = r.guardsScheduling
	return o, nil
}

// readOperatorPod returns the template of the operator's own Pods. If its Deployment no longer exists, it returns the
// last template: then the operator is being uninstalled, which must not change the agents.
func (r *Reconciler) readOperatorPod(ctx context.Context) (corev1.PodSpec, error) {
	deployment, err := lookup.Get(ctx, r.Client, r.key(names.Operator), &appsv1.Deployment{})
	if err == nil && deployment != nil {
		r.operatorPod = deployment.Spec.Template.Spec
	}
	return r.operatorPod, err
}

// serviceAccount returns the uid of the agents' ServiceAccount, or "". A cache would need permission to list all.
func (r *Reconciler) serviceAccount(ctx context.Context, namespace string) (types.UID, error) {
	account, err := lookup.Get(ctx, r.apiReader, types.NamespacedName{Namespace: namespace, Name: names.NodeAgent},
		&corev1.ServiceAccount{})
	if err != nil || account == nil {
		return "", err
	}
	return account.UID, nil
}

// get returns the object of a component, or nil if there is none. It asks the API server when the cache has none,
// because an object that is not in the cache yet may be a foreign one. Objects of optional kinds are not in the cache.
func (r *Reconciler) get(ctx context.Context, c installation.Component) (client.Object, error) {
	if c.Optional.Empty() {
		if object, err := lookup.Get(ctx, r.Client, c.Key(r.Namespace), c.Empty()); err != nil || object != nil {
			return object, err
		}
	}
	return lookup.Get(ctx, r.apiReader, c.Key(r.Namespace), c.Empty())
}

func (o *observation) agents() *appsv1.DaemonSet {
	return cmp.Or(objectOf[*appsv1.DaemonSet](o), &appsv1.DaemonSet{})
}

func objectOf[T client.Object](o *observation) (object T) {
	for _, c := range o.components {
		if found, ok := c.object.(T); ok {
			return found
		}
	}
	return object
}

func (o *observation) missing() []string {
	var missing []string
	for _, c := range o.components {
		if c.object == nil && !c.Extra {
			missing = append(missing, c.Kind+" "+c.Name)
		}
	}
	return missing
}

func (o *observation) owned() []component {
	return slices.DeleteFunc(slices.Clone(o.components), func(c component) bool {
		return c.object == nil || !metav1.IsControlledBy(c.object, o.config)
	})
}

func (c component) isOrphan(config *operatorv1alpha1.ListenerOperator) bool {
	return c.object != nil && !metav1.IsControlledBy(c.object, config) && c.ForeignMessage(config, c.object) == ""
}

func (o *observation) foreignMessage() string {
	for _, c := range o.components {
		if c.object != nil {
			if message := c.ForeignMessage(o.config, c.object); message != "" {
				return message
			}
		}
	}
	return ""
}

type users struct {
	// pods are the namespaced names of Pods that use a volume, each with the name of its node, or "".
	pods map[string]string
	// claims are the namespaced names of claims that have a volume which no Pod uses, sorted.
	claims []string
}

func (u users) any() bool { return len(u.pods)+len(u.claims) > 0 }

func (u users) String() string {
	return joined(listed("Pods ", slices.Sorted(maps.Keys(u.pods))), listed("claims without a Pod ", u.claims))
}

// users returns the users of listener volumes. Until the next reconciliation, every change of them triggers one. It
// lists volumes without the cache, which may lack the latest one.
func (r *Reconciler) users(ctx context.Context) (users, error) {
	r.waitingForUsers.Store(true)
	var volumes corev1.PersistentVolumeList
	if err := r.apiReader.List(ctx, &volumes); err != nil {
		return users{}, fmt.Errorf("listing volumes: %w", err)
	}
	found := users{pods: map[string]string{}}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if !inUse(volume) {
			continue
		}
		ref := volume.Spec.ClaimRef
		pods, err := index.PodsOfClaim(ctx, r.Client, ref.Namespace, ref.Name)
		if err != nil {
			return users{}, err
		}
		for j := range pods {
			found.pods[pods[j].Namespace+"/"+pods[j].Name] = pods[j].Spec.NodeName
		}
		if len(pods) == 0 {
			found.claims = append(found.claims, ref.Namespace+"/"+ref.Name)
		}
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return users{}, fmt.Errorf("listing the pods with inline volumes: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !claim.PodFinished(pod) && slices.ContainsFunc(pod.Spec.Volumes,
			func(v corev1.Volume) bool { return claim.IsInline(&v) }) {
			found.pods[pod.Namespace+"/"+pod.Name] = pod.Spec.NodeName
		}
	}
	slices.Sort(found.claims)
	return found, nil
}

// inUse reports whether a volume is a listener volume with a claim. A new volume has a claim before it is Bound.
func inUse(volume *corev1.PersistentVolume) bool {
	if !claim.IsListenerVolume(volume) || volume.Spec.ClaimRef == nil {
		return false
	}
	return volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed
}
