package doctor

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

// objects are the objects of the cluster that several checks look at. Each list is read once.
type objects struct {
	nodes        corev1.NodeList
	csiNodes     storagev1.CSINodeList
	volumes      corev1.PersistentVolumeList
	claims       corev1.PersistentVolumeClaimList
	classes      listenersv1alpha1.ListenerClassList
	listeners    listenersv1alpha1.ListenerList
	podListeners listenersv1alpha1.PodListenersList
	// readKinds are the kinds of the lists that were read.
	readKinds map[string]bool
}

// observe reads the objects.
func (d *doctor) observe(ctx context.Context) {
	d.readKinds = map[string]bool{}
	for kind, list := range map[string]client.ObjectList{
		"Node": &d.nodes, "CSINode": &d.csiNodes, "PersistentVolume": &d.volumes, "PersistentVolumeClaim": &d.claims,
		"ListenerClass": &d.classes, "Listener": &d.listeners, "PodListeners": &d.podListeners,
	} {
		d.readKinds[kind] = d.List(ctx, list) == check.Present
	}
}

// read returns whether all objects of these kinds were read. It reports those that the user may not read.
func (d *doctor) read(kinds ...string) bool {
	all := true
	for _, kind := range kinds {
		if !d.readKinds[kind] {
			all = false
			d.Add(check.Finding{Kind: kind}.Unreadable())
		}
	}
	return all
}
