// Package driver implements the Identity and Node services of the CSI driver for listener volumes. It validates the
// kubelet's requests, gets addresses from package podlisteners, and writes them with package volume.
//
// It has no Controller service, because the operator provisions volumes itself. Unpublishing a volume must never wait
// for the API server or the operator.
package driver

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// Timeouts of NodePublishVolume. A failed call delays the Pod more than a late answer does, because the kubelet backs
// off before it retries. So the driver waits for nearly all of the two minutes after which the kubelet cancels the
// call.
const (
	// publishTimeout is how long to wait for the addresses of a volume that has none.
	publishTimeout = 110 * time.Second
	// answerTime is the part of the caller's deadline that is reserved for writing the volume and the response.
	answerTime = 5 * time.Second
	// republishTimeout is how long to wait for the addresses of a volume that has some. They are updated later as well.
	republishTimeout = 2 * time.Second
)

// Source provides the addresses of Pods.
type Source interface {
	// Addresses waits until the addresses of one of a Pod's volumes, identified by its PersistentVolume's name, are
	// known, and returns them, at least one. If ctx is done before, the error wraps podlisteners.ErrNoAddress and says
	// what is missing.
	Addresses(ctx context.Context, pod podlisteners.Pod, volume string) ([]listenersv1alpha1.IngressAddress, error)
	// Recheck updates the published volumes of a Pod asynchronously. It is called after a volume was written, because
	// the addresses may have changed since Addresses returned them.
	Recheck(pod podlisteners.Pod)
}

// Driver implements the CSI services. Methods that it does not override return Unimplemented.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer

	node      string
	host      *volume.Host
	addresses Source
}

// New returns the driver of the node with this name.
func New(node string, host *volume.Host, addresses Source) *Driver {
	return &Driver{node: node, host: host, addresses: addresses}
}
