package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// Options are the options of the process.
type Options struct {
	// NodeName is the name of the Node on which the agent runs.
	NodeName string
	// KubeletDir is the root directory of the kubelet (--root-dir), mounted at the same path as on the host.
	KubeletDir string
	// HealthProbeBindAddress is the address that serves /healthz, /readyz and /metrics.
	HealthProbeBindAddress string
	// LogLevel is "info" or "debug".
	LogLevel string

	// API is the configuration of a client of the API server. nil means the in-cluster configuration.
	API *rest.Config
}

// parseOptions parses the command line. Usage and errors of flags are written to output.
func parseOptions(args []string, output io.Writer) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("node-agent", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of the Node on which the agent runs (default $NODE_NAME)")
	flags.StringVar(&o.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "root `directory` of the kubelet, mounted at the same path as on the host")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "`address` that serves /healthz, /readyz and /metrics")
	flags.StringVar(&o.LogLevel, "log-level", "info", "`level` to log: info, or debug for a line per RPC")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate(flags.Args())
}

func (o *Options) validate(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected arguments %q", rest))
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
	return errors.Join(errs...)
}
