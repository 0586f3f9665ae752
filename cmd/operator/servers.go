package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/internal/httpserver"
)

// addServers adds servers for health checks and metrics to the manager, whose own ones accept any number of connections
// and headers of a MiB. They speak HTTP/1.1 only, because a connection of HTTP/2 has many requests at once.
func addServers(ctx context.Context, mgr manager.Manager, options Options, metricsTLS ...func(*tls.Config)) error {
	checks, measured := http.NewServeMux(), http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		handler := http.StripPrefix(path, &healthz.Handler{})
		checks.Handle(path, handler)
		checks.Handle(path+"/", handler)
	}
	authorization, err := newAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	measured.Handle("/metrics", authorization.filter(mgr.GetLogger(), promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{})))
	encryption := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, set := range metricsTLS {
		set(encryption)
	}
	return errors.Join(
		addServer(ctx, mgr, "health checks", options.HealthAddress, checks, nil), addServer(ctx, mgr, "metrics", options.MetricsAddress, measured, encryption),
	)
}

// addServer adds a server to the manager, unless the address is "0". Without encryption, it serves plain HTTP.
func addServer(ctx context.Context, mgr manager.Manager, name, address string, handler http.Handler, encryption *tls.Config) error {
	if address == "0" {
		return nil
	}
	listener, err := httpserver.Listen(ctx, address)
	if err != nil {
		return fmt.Errorf("listening for %s: %w", name, err)
	}
	if encryption != nil {
		listener = tls.NewListener(listener, encryption)
	}
	// Clients must not delay the end of the process, because another one becomes the leader only then.
	server := &manager.Server{Name: name, Server: httpserver.New(handler), Listener: listener, ShutdownTimeout: ptr.To(time.Second)}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("adding the server for %s: %w", name, err)
	}
	return nil
}
