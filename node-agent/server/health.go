package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/listener-operator/listener-operator/internal/httpserver"
)

// health serves /healthz, /readyz and /metrics. A nil check always passes.
type health struct {
	listener    net.Listener // nil if health checks are turned off
	live, ready []func() error
	metrics     http.Handler
}

// listenForHealth listens on the address, unless it is "0".
func listenForHealth(ctx context.Context, address string) (*health, error) {
	if address == "0" {
		return &health{}, nil
	}
	listener, err := httpserver.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("listening for health checks: %w", err)
	}
	return &health{listener: listener}, nil
}

// serve serves until ctx is done.
func (h *health) serve(ctx context.Context) error {
	if h.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", answer(h.live))
	mux.HandleFunc("/readyz", answer(h.ready))
	mux.Handle("/metrics", h.metrics)
	server := httpserver.New(mux)
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving health checks: %w", err)
	}
	return nil
}

// close stops listening. It may be called after serve.
func (h *health) close() {
	if h.listener != nil {
		_ = h.listener.Close()
	}
}

// answer returns a handler that answers 200 if all checks pass, else 503 with their errors.
func answer(checks []func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var errs []error
		for _, check := range checks {
			if check != nil {
				errs = append(errs, check())
			}
		}
		if err := errors.Join(errs...); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}
