package driver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// errInvalidRequest is wrapped by errors about requests that no later attempt can mend.
var errInvalidRequest = errors.New("invalid request")

// statusCodes maps errors to what the kubelet is told; the first that matches counts. With Unavailable and Canceled it
// takes the volume for one that may be there, and unpublishes it in any case.
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

// statusError makes the error that leaves an RPC, nil for nil. Errors that the table does not know are Internal.
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
