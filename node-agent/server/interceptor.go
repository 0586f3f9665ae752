package server

import (
	"context"
	"errors"
	"path"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/listener-operator/listener-operator/internal/names"
)

// interceptor gives RPCs the logger of the running server and ends them when it stops, logs them, and survives their
// panics.
func interceptor(running context.Context) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		log := logr.FromContextOrDiscard(running).WithValues(describe(request)...).WithValues("method", path.Base(info.FullMethod))
		ctx, cancel := context.WithCancelCause(logr.NewContext(ctx, log))
		defer cancel(nil)
		defer context.AfterFunc(running, func() { cancel(ErrStopping) })()

		began := time.Now()
		response, err = guard(ctx, request, handler)
		if status.Code(err) == codes.Canceled && errors.Is(context.Cause(ctx), ErrStopping) {
			err = status.Error(codes.Unavailable, ErrStopping.Error())
		}
		if err == nil {
			log.V(1).Info("Answered", "duration", time.Since(began).String())
		} else {
			log.Info("Answered with an error", "duration", time.Since(began).String(), "code", status.Code(err).String(), "reason", status.Convert(err).Message())
		}
		return response, err
	}
}

// guard turns a panic into an error of this one RPC.
func guard(ctx context.Context, request any, handler grpc.UnaryHandler) (response any, err error) {
	defer func() {
		if p := recover(); p != nil {
			logr.FromContextOrDiscard(ctx).Error(nil, "Recovered from a panic", "panic", p, "stack", string(debug.Stack()))
			response, err = nil, status.Error(codes.Internal, "the node agent has a bug, see its log")
		}
	}()
	return handler(ctx, request)
}

// describe returns what of a request goes into the log: names, by a list of what is known to be harmless. A volume
// context holds all annotations of a claim, and may hold tokens.
func describe(request any) []any {
	var values []any
	add := func(key, value string) {
		if value != "" {
			values = append(values, key, value)
		}
	}
	if r, ok := request.(interface{ GetVolumeId() string }); ok {
		add("volume", r.GetVolumeId())
	}
	if r, ok := request.(interface{ GetTargetPath() string }); ok {
		add("target", r.GetTargetPath())
	}
	if r, ok := request.(interface{ GetVolumeContext() map[string]string }); ok {
		add("namespace", r.GetVolumeContext()[names.ContextPodNamespace])
		add("Pod", r.GetVolumeContext()[names.ContextPodName])
	}
	return values
}
