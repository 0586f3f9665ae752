package driver

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// NodePublishVolume implements csi.NodeServer. It waits until the operator has determined the addresses of the Pod, and
// writes them into the volume.
func (d *Driver) NodePublishVolume(ctx context.Context,
	req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	m, err := d.mount(req)
	if err == nil {
		err = d.publish(ctx, m)
	}
	if err != nil {
		return nil, statusError(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume implements csi.NodeServer. It is idempotent and does not need the API server, as the kubelet may
// call it repeatedly, and long after the Pod was deleted. The removal of a volume with very many files may take several
// calls.
func (d *Driver) NodeUnpublishVolume(ctx context.Context,
	req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, statusError(missing("volume_id"))
	}
	target, err := d.host.Parse(req.GetTargetPath())
	if err == nil {
		removing, cancel := withTimeToAnswer(ctx)
		defer cancel()
		err = d.host.Remove(removing, target)
	}
	if err != nil {
		return nil, statusError(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// mount is a valid request to publish a volume.
type mount struct {
	volume string // the name of the PersistentVolume, or podlisteners.Inline of an inline volume
	pod    podlisteners.Pod
	target volume.Target
}

// mount validates a request. Its errors are not worth a retry.
func (d *Driver) mount(req *csi.NodePublishVolumeRequest) (mount, error) {
	attributes := req.GetVolumeContext()
	m := mount{volume: req.GetVolumeId(), pod: podlisteners.Pod{
		Namespace: attributes[names.ContextPodNamespace],
		Name:      attributes[names.ContextPodName],
		UID:       types.UID(attributes[names.ContextPodUID]),
	}}
	switch {
	case m.volume == "":
		return mount{}, missing("volume_id")
	case req.GetTargetPath() == "":
		return mount{}, missing("target_path")
	case req.GetVolumeCapability() == nil:
		return mount{}, missing("volume_capability")
	case req.GetVolumeCapability().GetMount() == nil:
		return mount{}, fmt.Errorf("%w: a listener volume is a directory and cannot be used as a block device; set "+
			"volumeMode: Filesystem in the PersistentVolumeClaim",
			errInvalidRequest)
	case m.pod.Namespace == "" || m.pod.Name == "" || m.pod.UID == "":
		return mount{}, fmt.Errorf("%w: the request does not identify the Pod; CSIDriver %s must have "+
			"podInfoOnMount: true", errInvalidRequest, names.Driver)
	}
	// Package volume uses it in names of files.
	if problems := validation.IsDNS1123Label(m.pod.Namespace); len(problems) > 0 {
		return mount{}, fmt.Errorf("%w: %q is not the name of a namespace", errInvalidRequest, m.pod.Namespace)
	}
	var err error
	if m.target, err = d.host.Parse(req.GetTargetPath()); err != nil {
		return mount{}, err
	}
	m.target.Namespace = m.pod.Namespace
	if m.target.PodUID != m.pod.UID {
		return mount{}, fmt.Errorf("%w: target path %q does not belong to Pod %s with uid %s", errInvalidRequest,
			req.GetTargetPath(), m.pod, m.pod.UID)
	}
	if attributes[names.ContextEphemeral] == "true" { // other attributes of an inline volume are those of its Pod
		m.volume = podlisteners.Inline(m.target.Name)
	}
	return m, nil
}

func missing(field string) error {
	return fmt.Errorf("%w: %s is missing", errInvalidRequest, field)
}

// publish writes the addresses of a Pod into a volume. For a volume that has addresses already, because the kubelet was
// restarted, it succeeds even if the current addresses are not available: the volume is updated once they are.
func (d *Driver) publish(ctx context.Context, m mount) error {
	logger := logr.FromContextOrDiscard(ctx)
	usable := d.host.Usable(m.target)
	waiting, cancel := context.WithTimeout(ctx, addressTimeout(ctx, usable))
	defer cancel()
	addresses, err := d.addresses.Addresses(waiting, m.pod, m.volume)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("publishing volume %s of Pod %s: %w", m.volume, m.pod, ctx.Err())
	case err != nil && usable:
		logger.Info("Kept the existing addresses of a volume", "reason", err.Error())
		return nil
	case err != nil:
		return err
	}
	written, err := d.host.Write(m.target, addresses)
	if err != nil {
		return err
	}
	d.addresses.Recheck(m.pod)
	if written.Changed || len(written.Skipped) > 0 {
		logger.Info("Published a volume", "changed", written.Changed, "skipped", written.Skipped)
	}
	return nil
}

// addressTimeout returns how long to wait for addresses. usable is whether the volume has addresses already.
func addressTimeout(ctx context.Context, usable bool) time.Duration {
	if usable {
		return republishTimeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		return min(publishTimeout, timeToAnswer(deadline))
	}
	return publishTimeout
}

// withTimeToAnswer returns a context that is done before ctx, so that there is time for a response.
func withTimeToAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeToAnswer(deadline))
}

// timeToAnswer returns how long a call may take that has to end before a deadline.
func timeToAnswer(deadline time.Time) time.Duration {
	left := time.Until(deadline)
	return max(left-answerTime, left/2)
}
