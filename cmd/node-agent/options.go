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

// Options are what the node agent is started with.
type Options struct {
	// NodeName is the name of the Node that the agent runs on.
	NodeName string
	// KubeletDir is the kubelet's root directory, spelled as the kubelet spells it, and mounted at the same path.
	KubeletDir string
	// HealthProbeBindAddress is where /healthz and /readyz are served.
	HealthProbeBindAddress string
	// LogLevel is "info", or "debug" for a line per RPC.
	LogLevel string

	// API is how to reach the API server. It is nil in the cluster, where the Pod's ServiceAccount says it.
	API *rest.Config
}

// parseOptions reads the command line. What it says about wrong flags goes to output.
func parseOptions(args []string, output io.Writer) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("node-agent", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of the Node that the agent runs on (default $NODE_NAME)")
	flags.StringVar(&o.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's root `directory`, mounted at the same path as on the host")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "`address` that serves /healthz and /readyz")
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
		errs = append(errs, errors.New("--node-name is not set, nor is $NODE_NAME"))
	}
	if !filepath.IsAbs(o.KubeletDir) {
		errs = append(errs, fmt.Errorf("--kubelet-dir %q is not an absolute path", o.KubeletDir))
	}
	if o.LogLevel != "info" && o.LogLevel != "debug" {
		errs = append(errs, fmt.Errorf("--log-level is %q: it must be info or debug", o.LogLevel))
	}
	o.KubeletDir = filepath.Clean(o.KubeletDir)
	return errors.Join(errs...)
}
