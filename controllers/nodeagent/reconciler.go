// Package nodeagent is the controller of ListenerOperator/cluster. It installs the components of package installation,
// which the nodes need to mount listener volumes. ListenerOperator/cluster owns all of them, so that an upgrade of the
// operator removes nothing. While Stackable's listener operator runs, it does nothing but report.
//
// It must never modify an object that another installation controls, nor remove anything while volumes are in use, even
// when ListenerOperator/cluster is deleted, which a finalizer delays until then. Only agents that an operator left in
// another namespace are deleted at once, because their tokens are invalid. It grants no permissions: the ServiceAccount
// of the agents and its ClusterRole are part of the operator's manifests.
package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/stackable"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Reconciler is the controller of ListenerOperator/cluster. It becomes usable by SetupWithManager.
type Reconciler struct {
	Client    client.Client
	Namespace string
	Image     string
	// OperatorCondition is the name of the object that tells OLM whether it may upgrade the operator, or empty.
	OperatorCondition string
	// ClusterDomain is the DNS domain of the cluster that the operator's resolver has. Empty if it has none.
	ClusterDomain string
	// FirstSpec has fields of ListenerOperator/cluster, as JSON, for when the operator creates it. May be empty.
	FirstSpec string
	APIs      *platform.APIs
	Clock     clock.PassiveClock

	apiReader client.Reader
	stackable func(context.Context) (stackable.Installation, error)
	serves    func(schema.GroupVersionKind) bool
	applier   *apply.Applier
	events    events.EventRecorder

	// State of earlier reconciliations, which never run concurrently.

	operatorPod corev1.PodSpec
	// replacements are the last ones, by the kinds and names of the components.
	replacements map[string]replacement
	// uncreated is how many Pods of agents are missing, and uncreatedSince when this number has last changed.
	uncreated      int32
	uncreatedSince time.Time
	// template is the template of the agents, and templateSince the first generation of the DaemonSet that has it.
	template      string
	templateSince int64
	// guardsScheduling is whether the API server has a field of the CSIDriver, as the last one that was read says.
	guardsScheduling bool
	// waitingForUsers is set if the last reconciliation read the users of volumes.
	waitingForUsers atomic.Bool
}

// Reconcile updates components and status. Conditions report what an administrator has to resolve, errors the rest.
func (r *Reconciler) Reconcile(ctx context.Context,
	config *operatorv1alpha1.ListenerOperator) (reconcile.Result, error) {
	r.waitingForUsers.Store(false)
	o, err := r.observe(ctx, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	other, err := r.stackable(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var done outcome
	switch state := effectiveManagementState(config); {
	case len(other.Workloads) > 0:
		done = outcome{stackable: other}
	case state == operatorv1alpha1.Removed:
		done = r.remove(ctx, o)
	case state == operatorv1alpha1.Unmanaged:
	default:
		done = r.install(ctx, o)
	}
	o.rollout.since = r.observeTemplate(o.agents())
	status, deadlines := describe(o, done, r.Clock.Now())
	if err := errors.Join(done.err, r.writeStatus(ctx, config, status), r.reportUpgradeable(ctx, status)); err != nil {
		return reconcile.Result{}, err
	}
	return deadlines.Result(ctx), nil
}

type observed struct {
	config     *operatorv1alpha1.ListenerOperator
	settings   installation.Settings
	components []component
	// uncreatedSince is since when the same number of Pods of agents is missing.
	uncreatedSince time.Time
	rollout        rollout
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

type outcome struct {
	// stackable is what of Stackable's listener operator runs, because of which nothing was done.
	stackable stackable.Installation
	// foreign is the message about an object of another installation, because of which nothing was installed.
	foreign string
	// users are the users of volumes because of which nothing was removed.
	users users
	// deselected are the users of volumes because of which agents stay on nodes that the configuration does not select.
	deselected users
	// moving is the namespaced name of a DaemonSet in another namespace that has to be deleted before.
	moving string
	err    error
}

func (o outcome) beside() bool { return len(o.stackable.Workloads) > 0 }

func (r *Reconciler) observe(ctx context.Context, config *operatorv1alpha1.ListenerOperator) (*observed, error) {
	operatorPod, podErr := r.readOperatorPod(ctx)
	account, accountErr := r.serviceAccount(ctx, r.Namespace)
	serviceCA, serviceCAErr := lookup.Get(ctx, r.apiReader,
		types.NamespacedName{Namespace: r.Namespace, Name: installation.ServiceCA}, &corev1.ConfigMap{})
	namespace, namespaceErr := lookup.Get(ctx, r.Client, types.NamespacedName{Name: r.Namespace}, tenancy.Namespace())
	other, otherErr := confinement.Others(ctx, r.Client)
	if err := errors.Join(podErr, accountErr, serviceCAErr, namespaceErr, otherErr); err != nil {
		return nil, err
	}
	o := &observed{config: config, otherConfinements: other, clusterDomain: config.ClusterDomain(r.ClusterDomain),
		resolverDomain: r.ClusterDomain, settings: installation.Settings{
			Namespace: r.Namespace, Image: r.Image, ServiceAccount: account, OperatorPod: operatorPod,
			ServiceCA: serviceCA != nil,
		}}
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
	agents := o.agents()
	var err error
	if o.rollout, err = r.observeRollout(ctx, agents); err != nil {
		return nil, err
	}
	if status := agents.Status; status.UpdatedNumberScheduled < status.DesiredNumberScheduled {
		o.settings.Agents, o.settings.AgentsDown = int(status.DesiredNumberScheduled), len(o.rollout.down)
	}
	// The API server sets a default for the field, unless its feature gate is off. So the first CSIDriver gets the
	// field with the second write. If it was deleted, it gets the field with the first, as before.
	if driver := objectOf[*storagev1.CSIDriver](o); driver != nil {
		r.guardsScheduling = driver.Spec.PreventPodSchedulingIfMissing != nil
	}
	o.settings.GuardsScheduling = r.guardsScheduling
	o.uncreatedSince = r.observeUncreated(uncreatedPods(o))
	return o, nil
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

func (r *Reconciler) install(ctx context.Context, o *observed) outcome {
	if message := o.foreignMessage(); message != "" {
		return outcome{foreign: message}
	}
	if err := r.addFinalizer(ctx, o.config); err != nil {
		return outcome{err: err}
	}
	done := r.applyAll(ctx, o, o.needs)
	for _, c := range o.owned() {
		if done.err == nil && !o.needs(c) {
			done.err = r.delete(ctx, c.Kind, c.object)
		}
	}
	if done.err == nil && done.moving == "" {
		done.err = r.prune(ctx, o)
	}
	return done
}

func (r *Reconciler) applyAll(ctx context.Context, o *observed, needed func(component) bool) outcome {
	moving, err := r.deleteOtherAgents(ctx, o)
	if err != nil || moving != "" {
		return outcome{moving: moving, err: err} // its deletion triggers the next reconciliation
	}
	deselected, err := r.keepPlacement(ctx, o)
	for i := range o.components {
		if c := &o.components[i]; err == nil && needed(*c) {
			err = r.apply(ctx, o, c)
		}
	}
	return outcome{deselected: deselected, err: err}
}

func (o *observed) needs(c component) bool {
	return !o.unmonitored || c.Optional.Group != names.KindServiceMonitor.Group
}

func (o *observed) foreignMessage() string {
	for _, c := range o.components {
		if c.object != nil {
			if message := c.ForeignMessage(o.config, c.object); message != "" {
				return message
			}
		}
	}
	return ""
}

func (r *Reconciler) apply(ctx context.Context, o *observed, c *component) error {
	desired, err := c.Desired(o.config, o.settings)
	if err != nil {
		return err
	}
	if err := r.prepare(ctx, o.config, c, desired); err != nil {
		return err
	}
	wanted, last := contentOf(desired.DeepCopy()), r.replacements[c.Kind+"/"+c.Name]
	incomplete := c.object == nil || !metav1.IsControlledBy(c.object, o.config) ||
		!labels.SelectorFromSet(desired.GetLabels()).Matches(labels.Set(c.object.GetLabels()))
	sent, err := r.applier.Apply(ctx, desired, c.object)
	if err != nil || !sent {
		return err
	}
	// An outdated cache may still show what was repaired before, in the version that the API server answers with again.
	repaired := incomplete && reflect.DeepEqual(last.desired, wanted) &&
		last.resourceVersion != desired.GetResourceVersion()
	log.FromContext(ctx).Info("Applied", c.Kind, c.Name, "repaired", repaired)
	if repaired {
		driftRepairs.WithLabelValues(c.Kind, c.Name).Inc()
	}
	return r.remember(c, desired, wanted)
}

// prepare deletes the object of a component if it cannot be changed to the desired one, or else repairs its content.
func (r *Reconciler) prepare(ctx context.Context, config *operatorv1alpha1.ListenerOperator, c *component,
	desired *unstructured.Unstructured) error {
	if c.object == nil {
		return nil
	}
	if !installation.Immutable(c.object) {
		return r.repair(ctx, config, c, desired)
	}
	if err := r.delete(ctx, c.Kind, c.object); err != nil {
		return err
	}
	c.object = nil
	return nil
}

func (o *observed) missing() []string {
	var missing []string
	for _, c := range o.components {
		if c.object == nil && !c.Extra {
			missing = append(missing, c.Kind+" "+c.Name)
		}
	}
	return missing
}

func (o *observed) agents() *appsv1.DaemonSet {
	return cmp.Or(objectOf[*appsv1.DaemonSet](o), &appsv1.DaemonSet{})
}

func objectOf[T client.Object](o *observed) (object T) {
	for _, c := range o.components {
		if found, ok := c.object.(T); ok {
			return found
		}
	}
	return object
}
