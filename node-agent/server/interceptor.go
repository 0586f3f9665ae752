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

// interceptor returns an interceptor that adds the server's logger to the contexts of RPCs, cancels them when the
// server stops, logs their results, and recovers from panics. running is the context of the server.
func interceptor(running context.Context) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any,
		err error) {
		log := logr.FromContextOrDiscard(running).WithValues(describe(request)...).WithValues("method",
			path.Base(info.FullMethod))
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
			log.Info("Answered with an error", "duration", time.Since(began).String(), "code",
				status.Code(err).String(), "reason", status.Convert(err).Message())
		}
		return response, err
	}
}

// guard returns an error if the handler panics.
func guard(ctx context.Context, request any, handler grpc.UnaryHandler) (response any, err error) {
	defer func() {
		if p := recover(); p != nil {
			logr.FromContextOrDiscard(ctx).Error(nil, "Recovered from a panic", "panic", p, "stack",
				string(debug.Stack()))
			response, err = nil, status.Error(codes.Internal, "internal error of the node agent; see its log")
		}
	}()
	return handler(ctx, request)
}

// describe returns the keys and values of a request that are logged: an allowlist of names. The rest of a volume
// context must not be logged, as it has all annotations of a claim and may have tokens.
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
