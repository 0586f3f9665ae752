// Package nodeagent installs what the nodes need to mount listener volumes, and keeps it as ListenerOperator/cluster
// wants it: the DaemonSet of node agents, the policy that confines them, the CSIDriver and the StorageClass. All of it
// belongs to ListenerOperator/cluster, so that an update of the operator takes nothing away.
//
// It must never touch an object that another installation controls, nor take anything away while volumes are in use,
// even when ListenerOperator/cluster is deleted, which a finalizer holds up meanwhile. Only agents that an operator
// left in another namespace make way for those of this one at once, because their tokens are dead. It grants no rights:
// the ServiceAccount of the agents and its ClusterRole come with the operator's manifests.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
)

// Reconciler is the controller of ListenerOperator/cluster. It becomes usable by SetupWithManager.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client
	// Namespace is the operator's own, where the node agents run, too.
	Namespace string
	// Image is the image of the node agent.
	Image string
	// OperatorCondition is the name of the object by which the Operator Lifecycle Manager learns whether the operator
	// may be upgraded. Empty where there is none.
	OperatorCondition string
	// APIs tells which optional kinds the cluster serves.
	APIs *platform.APIs

	// live reads without the cache.
	live client.Reader
	// serves tells whether the cluster serves an optional kind.
	serves  func(schema.GroupVersionKind) bool
	applier *apply.Applier
	events  events.EventRecorder
	clock   clock.PassiveClock

	// What is remembered from pass to pass, of which there is never more than one at a time.
	operator  corev1.PodSpec
	announced *metav1.Condition
	// waiting says that the latest pass asked for the users of volumes.
	waiting atomic.Bool
}

// Reconcile brings the node component and the status up to date. What an administrator can mend is told by conditions;
// the error is for what may pass by itself.
func (r *Reconciler) Reconcile(ctx context.Context, config *operatorv1alpha1.ListenerOperator) (reconcile.Result, error) {
	r.waiting.Store(false)
	o, err := r.observe(ctx, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	var done outcome
	switch wanted(config) {
	case operatorv1alpha1.Removed:
		done = r.remove(ctx, o)
	case operatorv1alpha1.Unmanaged:
	default:
		done = r.install(ctx, o)
	}
	status, recheck := describe(o, done, r.clock.Now())
	if err := errors.Join(done.err, r.report(ctx, config, status), r.announce(ctx, status)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: recheck}, nil
}

// observed is what a pass starts from.
type observed struct {
	config   *operatorv1alpha1.ListenerOperator
	settings settings
	parts    []part
}

// part is a component as it exists, if it does.
type part struct {
	component
	// object is nil if there is none.
	object client.Object
}

// outcome is what a pass did.
type outcome struct {
	// foreign says which object is another installation's, so that nothing was installed.
	foreign string
	// users use volumes, so that nothing was removed.
	users users
	// stranded use volumes on nodes that no agent is wanted on any more, so that agents stay where they are.
	stranded users
	// moving is a DaemonSet of another namespace that has to go first: namespace and name.
	moving string
	// err is what went wrong on the way.
	err error
}

func (r *Reconciler) observe(ctx context.Context, config *operatorv1alpha1.ListenerOperator) (*observed, error) {
	operator, err := r.ownPod(ctx)
	if err != nil {
		return nil, err
	}
	account, err := r.agentAccount(ctx, r.Namespace)
	if err != nil {
		return nil, err
	}
	o := &observed{config: config, settings: settings{
		namespace: r.Namespace, image: r.Image, account: account, operator: operator, openShift: r.serves(names.KindClusterVersion),
	}}
	for _, c := range r.components() {
		object, err := r.get(ctx, c)
		if err != nil {
			return nil, err
		}
		o.parts = append(o.parts, part{component: c, object: object})
	}
	return o, nil
}

// components are those whose kinds the cluster serves.
func (r *Reconciler) components() []component {
	return slices.DeleteFunc(components(), func(c component) bool { return !c.optional.Empty() && !r.serves(c.optional) })
}

// agentAccount returns the uid of the agents' ServiceAccount in a namespace, or "" if there is none. It is asked for
// live: passes are rare, and to watch it would take the right to list all.
func (r *Reconciler) agentAccount(ctx context.Context, namespace string) (types.UID, error) {
	account := &corev1.ServiceAccount{}
	err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: names.NodeAgent}, account)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading service account %s/%s: %w", namespace, names.NodeAgent, err)
	}
	return account.UID, nil
}

// get returns the object, or nil if there is none. Only the API server is believed that there is none: what the cache
// has not seen yet could be somebody else's. An optional kind is not in the cache.
func (r *Reconciler) get(ctx context.Context, c component) (client.Object, error) {
	object := c.empty()
	var err error
	if c.optional.Empty() {
		err = r.Client.Get(ctx, c.key(r.Namespace), object)
	}
	if !c.optional.Empty() || apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, c.key(r.Namespace), object)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", c.kind, c.name, err)
	}
	return object, nil
}

// install applies all components, in order, so that none is there before those that it needs, and deletes what earlier
// versions had instead.
func (r *Reconciler) install(ctx context.Context, o *observed) outcome {
	if why := o.foreign(); why != "" {
		return outcome{foreign: why}
	}
	if err := r.hold(ctx, o.config); err != nil {
		return outcome{err: err}
	}
	if err := r.confine(ctx, o); err != nil {
		return outcome{err: err}
	}
	moving, err := r.move(ctx, o)
	if err != nil || moving != "" {
		return outcome{moving: moving, err: err} // the next pass follows when it is gone
	}
	stranded, err := r.keepAgents(ctx, o)
	if err != nil {
		return outcome{err: err}
	}
	for i := range o.parts {
		if err := r.apply(ctx, o, &o.parts[i]); err != nil {
			return outcome{stranded: stranded, err: err}
		}
	}
	return outcome{stranded: stranded, err: r.prune(ctx, o)}
}

// foreign returns which of the objects is another installation's, or "".
func (o *observed) foreign() string {
	for _, p := range o.parts {
		if p.object == nil {
			continue
		}
		if why := p.foreign(o.config, p.object); why != "" {
			return why
		}
	}
	return ""
}

// apply brings one object up to date, and puts what became of it into the part.
func (r *Reconciler) apply(ctx context.Context, o *observed, p *part) error {
	desired, err := p.component.object(o.config, o.settings)
	if err != nil {
		return err
	}
	result, err := r.applier.Apply(ctx, desired, p.object)
	if err != nil || result == apply.Unchanged {
		return err
	}
	log.FromContext(ctx).Info(result.String(), p.kind, p.name)
	if result == apply.Repaired {
		driftRepairs.WithLabelValues(p.kind, p.name).Inc()
	}
	applied := p.empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, applied); err != nil {
		return fmt.Errorf("decoding %s %s: %w", p.kind, p.name, err)
	}
	p.object = applied
	return nil
}

// missing names what does not exist, and has to.
func (o *observed) missing() []string {
	var missing []string
	for _, p := range o.parts {
		if p.object == nil && !p.extra {
			missing = append(missing, p.kind+" "+p.name)
		}
	}
	return missing
}

// agents returns the DaemonSet, which is empty if there is none.
func (o *observed) agents() *appsv1.DaemonSet {
	for _, p := range o.parts {
		if agents, ok := p.object.(*appsv1.DaemonSet); ok {
			return agents
		}
	}
	return &appsv1.DaemonSet{}
}
