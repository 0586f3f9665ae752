package driver

import (
	"context"
	"math"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/listener-operator/listener-operator/internal/names"
)

// NodeGetInfo implements csi.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId:             d.node,
		MaxVolumesPerNode:  math.MaxInt64,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{names.TopologyKey: d.node}},
	}, nil
}

// NodeGetCapabilities implements csi.NodeServer. Staging does nothing: the driver announces it because the kubelet
// (1.36) never removes the staging directories of drivers that do not. It creates them for each volume anyway.
func (*Driver) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{
		Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{
			Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		}},
	}}}, nil
}

// NodeStageVolume implements csi.NodeServer. It does nothing, and uses no directory: see NodeGetCapabilities.
func (*Driver) NodeStageVolume(_ context.Context,
	req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	switch {
	case req.GetVolumeId() == "":
		return nil, statusError(missing("volume_id"))
	case req.GetStagingTargetPath() == "":
		return nil, statusError(missing("staging_target_path"))
	case req.GetVolumeCapability() == nil:
		return nil, statusError(missing("volume_capability"))
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume implements csi.NodeServer. It does nothing, also for volumes that were never staged.
func (*Driver) NodeUnstageVolume(_ context.Context,
	req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	switch {
	case req.GetVolumeId() == "":
		return nil, statusError(missing("volume_id"))
	case req.GetStagingTargetPath() == "":
		return nil, statusError(missing("staging_target_path"))
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}
