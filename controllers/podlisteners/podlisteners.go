// Package podlisteners writes the addresses of each Pod with listener volumes. When the Pod is bound to a node, it
// creates the Listeners of class-based claims, labels the Pod, which the Service of its Listener then selects, and its
// PersistentVolumes, and creates the PodListeners of the Pod with the addresses that lead to it. Meanwhile, the kubelet
// sets the Pod up. The node agent only reads the object.
//
// It must never keep an object that does not match its Pod. Of one that does, it keeps addresses only while the Pod's
// Listeners and classes are not known well enough to compute others, and only those that the Listener still has.
package podlisteners

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/settling"
)

// Reconciler writes PodListeners. Its requests are names of PodListeners objects, which need not exist.
type Reconciler struct {
	// Client reads from the cache, with the indexes of package index, and writes.
	Client client.Client
	// APIReader reads Pods that are not in the cache yet.
	APIReader client.Reader
	Events    events.EventRecorder
	Backends  backends.List
	// Applier writes PersistentVolumes, and the Listeners of class-based claims.
	Applier *apply.Applier
	Clock   clock.PassiveClock
	// Nodes has the settled addresses of Nodes.
	Nodes *settling.Nodes

	// podNames has the names of the Pods with claims that were in the cache, by uid: requests have no more than that.
	podNames sync.Map
	// written has a *written for each Pod, by the name of its PodListeners.
	written sync.Map
	// warnings are those of Pods, by the name of their PodListeners.
	warnings message.Warnings[string, cause]
}

// written is what was written for a Pod that the cache may not have yet, and since when the Pod is known to be bound.
type written struct {
	// bound is when the Pod was first seen with a node.
	bound time.Time
	// created is when its PodListeners were created.
	created time.Time
	// labels are those of mounts that the Pod had, at a version, when some were added last: to add them again changes
	// nothing.
	labels   map[string]string
	version  string
	repairs  repairs
	restarts restartCounts
}

func (r *Reconciler) writtenFor(name string) *written {
	w, _ := r.written.LoadOrStore(name, &written{restarts: restartCounts{}})
	return w.(*written)
}
