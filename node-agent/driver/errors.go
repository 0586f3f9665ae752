package driver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// errInvalidRequest is wrapped by errors about requests that fail however often they are retried.
var errInvalidRequest = errors.New("invalid request")

// statusCodes maps errors to gRPC codes; the first match applies. After Unavailable and Canceled the kubelet assumes
// that the volume may be published, and always unpublishes it.
var statusCodes = []struct {
	err  error
	code codes.Code
}{
	{errInvalidRequest, codes.InvalidArgument},
	{volume.ErrInvalidTarget, codes.InvalidArgument},
	{podlisteners.ErrNoAddress, codes.Unavailable},
	{volume.ErrNoAddress, codes.Unavailable},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// statusError returns the gRPC status error for err, or nil for nil. Errors that are not in statusCodes are Internal.
func statusError(err error) error {
	if err == nil {
		return nil
	}
	for _, s := range statusCodes {
		if errors.Is(err, s.err) {
			return status.Error(s.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
