package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/version"
)

// GetPluginInfo implements csi.IdentityServer.
func (*Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: names.Driver, VendorVersion: version.Version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer. Unlike Stackable's listener operator, which needs it for its
// provisioner sidecar, it does not announce CONTROLLER_SERVICE: there is no such service, and the kubelet does not
// check.
func (*Driver) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		}},
	}}}, nil
}

// Probe implements csi.IdentityServer. The driver is ready as soon as it is served: unpublishing depends on nothing
// else, and publishing waits for what it needs.
func (*Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}
