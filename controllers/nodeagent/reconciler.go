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
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/stackable"
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

// replacement is the last replacement of the content of an object, or its creation.
type replacement struct {
	uid             types.UID
	resourceVersion string
	// desired was sent, and result is what the API server answered with, which also has defaults.
	desired, result content
}

// content is what an object has besides its metadata and its status.
type content = map[string]any

// key returns the key of an object in the operator's namespace.
func (r *Reconciler) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: name}
}
