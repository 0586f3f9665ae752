// Command node-agent runs on every node. It is the CSI driver by which the kubelet publishes listener volumes, and
// keeps the addresses in published volumes up to date.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/version"
	"github.com/listener-operator/listener-operator/node-agent/driver"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/server"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// gcPercent is the default of GOGC. It trades CPU time for memory, because one process runs on each node.
const gcPercent = 50

func main() {
	options, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		os.Exit(2)
	}
	level := slog.LevelInfo
	if options.LogLevel == "debug" {
		level-- // logr's V(1)
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	klog.SetLogger(logger)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(logr.NewContext(context.Background(), logger), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, options); err != nil {
		logger.Error(err, "Stopping")
		os.Exit(1)
	}
}

// run serves the kubelet until ctx is done, or until an error occurs that only a restart can fix.
func run(ctx context.Context, o Options) error {
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version.Version, "node", o.NodeName)
	api, err := o.api()
	if err != nil {
		return err
	}
	watch, err := podlisteners.NewWatch(api, o.NodeName)
	if err != nil {
		return err
	}
	host := volume.NewHost(o.KubeletDir)
	host.Label = volume.SELinux()
	syncer := podlisteners.NewSyncer(watch, host)
	csi := driver.New(o.NodeName, host, syncer)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { watch.Run(ctx); return nil })
	group.Go(func() error { syncer.Run(ctx); return nil })
	group.Go(func() error {
		return server.Run(ctx, server.Options{
			KubeletDir:    o.KubeletDir,
			HealthAddress: o.HealthProbeBindAddress,
			Identity:      csi,
			Node:          csi,
			Ready:         watch.Ready,
			Metrics:       watch.Metrics(),
		})
	})
	return group.Wait()
}

// api returns the configuration of a client of the API server.
func (o *Options) api() (*rest.Config, error) {
	cfg := o.API
	if cfg == nil {
		var err error
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("loading the in-cluster client configuration: %w", err)
		}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = names.NodeAgent + "/" + version.Version
	return cfg, nil
}
