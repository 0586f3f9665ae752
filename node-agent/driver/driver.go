// Package driver is the CSI driver of listener volumes, as far as it is served on nodes: the Identity and the Node
// service. It says what the kubelet wants, package podlisteners knows the addresses, and package volume writes them.
//
// There is no Controller service: volumes are provisioned inside the operator. It must never wait for anything when a
// volume is unpublished.
package driver

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// How long NodePublishVolume waits for addresses. A publish that fails costs the Pod more than one that answers late,
// because the kubelet waits before it tries again; so all of the two minutes that the kubelet has for the call are used
// but what it takes to answer.
const (
	publishTimeout = 110 * time.Second
	// answerTime is left of the caller's deadline.
	answerTime = 5 * time.Second
	// republishTimeout is for volumes that have addresses, which are brought up to date later as well.
	republishTimeout = 2 * time.Second
)

// Source knows the addresses of Pods.
type Source interface {
	// Addresses waits until the addresses of one of a Pod's volumes, named by its PersistentVolume, are known, or ctx
	// is done. The error then wraps podlisteners.ErrNoAddress and says what is missing.
	Addresses(ctx context.Context, pod podlisteners.Pod, volume string) ([]listenersv1alpha1.IngressAddress, error)
	// Recheck brings the published volumes of a Pod up to date, later. It is called when one was written: the addresses
	// may have changed in the meantime.
	Recheck(pod podlisteners.Pod)
}

// Driver implements the CSI services. What it does not override answers Unimplemented.
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
