package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/listener-operator/listener-operator/internal/names"
)

// errNotRegistered is reported by /readyz until the kubelet has answered.
var errNotRegistered = errors.New("the kubelet has not registered the driver yet")

// registration is the kubelet's plugin registration service.
type registration struct {
	registrationv1.UnimplementedRegistrationServer

	endpoint string
	refused  chan error

	mu     sync.Mutex
	status error // nil once the driver is registered
}

func newRegistration(endpoint string) *registration {
	return &registration{endpoint: endpoint, refused: make(chan error, 1), status: errNotRegistered}
}

// GetInfo returns the driver's name and socket, and the CSI version that the kubelet checks.
func (r *registration) GetInfo(context.Context, *registrationv1.InfoRequest) (*registrationv1.PluginInfo, error) {
	return &registrationv1.PluginInfo{
		Type:              registrationv1.CSIPlugin,
		Name:              names.Driver,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (r *registration) NotifyRegistrationStatus(
	ctx context.Context, status *registrationv1.RegistrationStatus,
) (*registrationv1.RegistrationStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status.GetPluginRegistered() {
		logr.FromContextOrDiscard(ctx).Info("Registered with the kubelet", "endpoint", r.endpoint)
		r.status = nil
		return &registrationv1.RegistrationStatusResponse{}, nil
	}
	r.status = fmt.Errorf("the kubelet refused to register driver %s: %s", names.Driver, status.GetError())
	select {
	case r.refused <- r.status:
	default: // One refusal is enough to end the process.
	}
	return &registrationv1.RegistrationStatusResponse{}, nil
}

// wait returns the error for which the kubelet refused the driver, or nil when ctx is done. The kubelet does not retry
// until the socket is recreated, so the process has to end: it would never get a request.
func (r *registration) wait(ctx context.Context) error {
	select {
	case err := <-r.refused:
		return err
	case <-ctx.Done():
		return nil
	}
}

// check returns an error while the driver is not registered.
func (r *registration) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}
