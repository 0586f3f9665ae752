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

// errNotRegistered is what /readyz says before the kubelet has spoken.
var errNotRegistered = errors.New("the kubelet has not registered the driver yet")

// registration is the service by which the kubelet learns of the driver.
type registration struct {
	registrationv1.UnimplementedRegistrationServer

	endpoint string
	refused  chan error

	mu     sync.Mutex
	status error // nil once registered
}

func newRegistration(endpoint string) *registration {
	return &registration{endpoint: endpoint, refused: make(chan error, 1), status: errNotRegistered}
}

// GetInfo tells the kubelet which driver is where. The version is the one of CSI that kubelets compare with.
func (r *registration) GetInfo(context.Context, *registrationv1.InfoRequest) (*registrationv1.PluginInfo, error) {
	return &registrationv1.PluginInfo{
		Type:              registrationv1.CSIPlugin,
		Name:              names.Driver,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus takes the kubelet's answer.
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
	r.status = fmt.Errorf("the kubelet refuses to register driver %s: %s", names.Driver, status.GetError())
	select {
	case r.refused <- r.status:
	default: // One refusal is enough to end the process.
	}
	return &registrationv1.RegistrationStatusResponse{}, nil
}

// wait returns why the kubelet refused the driver, or nil when ctx is done. The kubelet tries no second time until the
// socket is made anew, so that a process that goes on would serve nobody.
func (r *registration) wait(ctx context.Context) error {
	select {
	case err := <-r.refused:
		return err
	case <-ctx.Done():
		return nil
	}
}

// check returns why the driver is not registered, or nil.
func (r *registration) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}
