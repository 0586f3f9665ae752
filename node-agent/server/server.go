// Package server serves the CSI driver to the kubelet on a Unix socket, registers it with the kubelet on another one,
// which makes a node-driver-registrar sidecar unnecessary, and serves health checks and metrics over HTTP. It must not
// depend on what the driver does.
package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/listener-operator/listener-operator/internal/names"
)

// ErrStopping is the cause with which the contexts of RPCs are canceled when the agent stops. The kubelet gets it with
// the code Unavailable, and retries.
var ErrStopping = errors.New("the node agent is stopping")

// gracePeriod is how long RPCs may run after their contexts were canceled.
const gracePeriod = 5 * time.Second

// Limits of what the kubelet's requests need, each of which has a connection of its own: it may send thousands at once.
const (
	// maxConnections is the number of connections to a socket. Others wait. It is enough for the mounts that wait on a
	// node with 250 Pods, so that these do not delay those of others.
	maxConnections = 1024
	// maxRequest is the size of a request in bytes. It has the annotations of a claim, commonly a few KiB.
	maxRequest = 32 << 10
	// buffer is the size of the buffers of a connection in bytes.
	buffer = 4 << 10
)

// Options configure Run.
type Options struct {
	// KubeletDir is the kubelet's root directory, as the kubelet spells it.
	KubeletDir string
	// HealthAddress is the address on which /healthz, /readyz and /metrics are served; "0" turns them off.
	HealthAddress string
	// Identity and Node are the CSI driver. They must return status errors only.
	Identity csi.IdentityServer
	Node     csi.NodeServer
	// Ready returns an error while the driver cannot publish volumes. It is one of the checks of /readyz. Nil means
	// that the driver is always ready.
	Ready func() error
	// Metrics are those of what the server does not know. They must not contain names, and may be nil.
	Metrics prometheus.Collector
}

// Socket returns the path of the socket on which the CSI driver is served (contract: names and constants).
func Socket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins", names.Driver, "csi.sock")
}

// RegistrationSocket returns the path of the socket on which the kubelet looks for the driver (contract: names and
// constants).
func RegistrationSocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins_registry", names.Driver+"-reg.sock")
}

// Run serves until ctx is done, and then stops gracefully and returns nil. It returns an error if it cannot serve, or
// if the kubelet refuses the driver. The contexts of RPCs carry the logger of ctx, and are canceled with ErrStopping as
// soon as ctx is done.
func Run(ctx context.Context, options Options) error {
	health, err := listenForHealth(ctx, options.HealthAddress)
	if err != nil {
		return err
	}
	defer health.close()
	driver, err := listen(Socket(options.KubeletDir))
	if err != nil {
		return err
	}
	defer driver.close()
	// The kubelet connects to the driver as soon as it sees this socket, so the driver's socket is created first.
	registry, err := listen(RegistrationSocket(options.KubeletDir))
	if err != nil {
		return err
	}
	defer registry.close()

	group, ctx := errgroup.WithContext(ctx)
	registration := newRegistration(driver.path)
	observed := newMetrics()
	if options.Metrics != nil {
		observed.registry.MustRegister(options.Metrics)
	}
	health.metrics = observed.handler()

	// The metrics see the codes that the kubelet gets.
	driverServer := grpc.NewServer(
		grpc.ChainUnaryInterceptor(observed.intercept, interceptor(ctx)),
		grpc.MaxRecvMsgSize(maxRequest), grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer),
	)
	csi.RegisterIdentityServer(driverServer, options.Identity)
	csi.RegisterNodeServer(driverServer, options.Node)
	group.Go(func() error { return serve(ctx, driverServer, driver) })

	registryServer := grpc.NewServer(grpc.UnaryInterceptor(interceptor(ctx)))
	registrationv1.RegisterRegistrationServer(registryServer, registration)
	group.Go(func() error { return serve(ctx, registryServer, registry) })
	group.Go(func() error { return registration.wait(ctx) })

	health.live = []func() error{driver.check, registry.check}
	health.ready = []func() error{driver.check, registry.check, registration.check, options.Ready}
	group.Go(func() error { return health.serve(ctx) })
	return group.Wait()
}

// serve serves until ctx is done and all pending RPCs have ended.
func serve(ctx context.Context, server *grpc.Server, socket *socket) error {
	stopping := context.AfterFunc(ctx, func() {
		socket.unlink()
		abort := time.AfterFunc(gracePeriod, server.Stop)
		defer abort.Stop()
		server.GracefulStop()
	})
	defer stopping()
	if err := server.Serve(netutil.LimitListener(socket, maxConnections)); err != nil &&
		!errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving %s: %w", socket.path, err)
	}
	return nil
}
