// Command node-agent runs on every node. It is the CSI driver by which the kubelet publishes listener volumes, and
// keeps the addresses in published volumes up to date.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
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

// Options are the options of the process. The usage of the flags describes them.
type Options struct {
	NodeName, KubeletDir, HealthProbeBindAddress, LogLevel string
}

// parseOptions parses the command line. Usage and errors of flags are written to output.
func parseOptions(args []string, output io.Writer) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("node-agent", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"),
		"`name` of the Node on which the agent runs (default $NODE_NAME)")
	flags.StringVar(&o.KubeletDir, "kubelet-dir", "/var/lib/kubelet",
		"root `directory` of the kubelet, mounted at the same path as on the host")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081",
		"`address` that serves /healthz, /readyz and /metrics")
	flags.StringVar(&o.LogLevel, "log-level", "info", "`level` to log: info, or debug for a line per RPC")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected arguments %q", flags.Args()))
	}
	if o.NodeName == "" {
		errs = append(errs, errors.New("neither --node-name nor the environment variable NODE_NAME is set"))
	}
	if !filepath.IsAbs(o.KubeletDir) {
		errs = append(errs, fmt.Errorf("--kubelet-dir %q is not an absolute path", o.KubeletDir))
	}
	if o.LogLevel != "info" && o.LogLevel != "debug" {
		errs = append(errs, fmt.Errorf("--log-level %q is invalid: it must be info or debug", o.LogLevel))
	}
	o.KubeletDir = filepath.Clean(o.KubeletDir)
	return o, errors.Join(errs...)
}

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
		debug.SetGCPercent(50) // trades CPU time for memory, because one process runs on each node
	}
	ctx, stop := signal.NotifyContext(logr.NewContext(context.Background(), logger), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := rest.InClusterConfig()
	if err == nil {
		err = run(ctx, config, options)
	}
	if err != nil {
		logger.Error(err, "Stopping")
		os.Exit(1)
	}
}

// run serves the kubelet until ctx is done, or until an error occurs that only a restart can fix.
func run(ctx context.Context, config *rest.Config, o Options) error {
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version.Version, "node", o.NodeName)
	config.UserAgent = names.NodeAgent + "/" + version.Version
	watch, err := podlisteners.NewWatch(config, o.NodeName)
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
			KubeletDir: o.KubeletDir, HealthAddress: o.HealthProbeBindAddress, Identity: csi, Node: csi,
			Ready: watch.Ready, Metrics: watch.Metrics(),
		})
	})
	return group.Wait()
}
