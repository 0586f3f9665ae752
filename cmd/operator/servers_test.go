package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/flood"
)

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// startServers runs the servers of the operator with options, without an API server.
func startServers(t *testing.T, options Options) {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	check.Must(t, err)
	certificate, err := newMetricsCertificate("", "operators")
	check.Must(t, err)
	check.Must(t, addServers(t.Context(), mgr, options, func(c *tls.Config) { c.GetCertificate = certificate.get }))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("running the manager: ", err)
		}
	})
}

// getFrom returns status and body of a URL, and the version of HTTP with which it is served.
func getFrom(t *testing.T, url string) (status int, body, version string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	check.Must(t, err)
	client := http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // self-signed
	}}
	response, err := client.Do(request)
	check.Must(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	check.Must(t, err)
	return response.StatusCode, string(content), response.Proto
}

func TestHealthAndMetricsAreServedByEachReplica(t *testing.T) {
	options := Options{HealthAddress: freeAddress(t), MetricsAddress: freeAddress(t)}
	startServers(t, options)
	for path, want := range map[string]int{
		"/healthz": 200, "/healthz/": 200, "/healthz/ping": 200, "/readyz": 200, "/readyz/": 200, "/readyz/ping": 200,
		"/healthz/other": 404, "/metrics": 404, "/": 404,
	} {
		if status, body, _ := getFrom(t, "http://"+options.HealthAddress+path); status != want || want == 200 && body != "ok" {
			t.Errorf("%s: %d %q, want %d", path, status, body, want)
		}
	}
	for path, want := range map[string]int{"/metrics": http.StatusUnauthorized, "/healthz": 404, "/": 404} {
		if status, body, version := getFrom(t, "https://"+options.MetricsAddress+path); status != want || version != "HTTP/1.1" {
			t.Errorf("%s: %d %q by %s, want %d", path, status, body, version, want)
		}
	}
}

func TestHealthAndMetricsCanBeDisabled(t *testing.T) {
	startServers(t, Options{HealthAddress: "0", MetricsAddress: "0"}) // which is no address
}

func TestConnectionsToTheHealthChecksNeedLittleMemory(t *testing.T) {
	options := Options{HealthAddress: freeAddress(t), MetricsAddress: "0"}
	startServers(t, options)
	flood.Check(t, options.HealthAddress, "http://"+options.HealthAddress+"/healthz", http.StatusOK)
}

func TestConnectionsToTheMetricsNeedLittleMemory(t *testing.T) {
	options := Options{HealthAddress: "0", MetricsAddress: freeAddress(t)}
	startServers(t, options)
	flood.Check(t, options.MetricsAddress, "https://"+options.MetricsAddress+"/metrics", http.StatusUnauthorized)
}
