// Command node-agent runs on every node: it is the CSI driver that the kubelet asks for listener volumes, and keeps the
// addresses in them up to date.
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

// gcPercent makes the garbage collector work a little harder for a smaller process, because there is one on each node.
// GOGC in the environment counts instead.
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
		logger.Error(err, "The node agent ends")
		os.Exit(1)
	}
}

// run serves the kubelet until ctx is done, or until something is wrong that only a restart can mend.
func run(ctx context.Context, o Options) error {
	logr.FromContextOrDiscard(ctx).Info("The node agent starts", "version", version.Version, "node", o.NodeName)
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
		})
	})
	return group.Wait()
}

// api is how to reach the API server.
func (o *Options) api() (*rest.Config, error) {
	cfg := o.API
	if cfg == nil {
		var err error
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("reading the ServiceAccount of the Pod: %w", err)
		}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = names.NodeAgent + "/" + version.Version
	return cfg, nil
}
