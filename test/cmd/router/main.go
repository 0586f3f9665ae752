// Command router emulates OpenShift's router in the network of one node of the test cluster, with HAProxy. It is a thin
// layer on the package of the same name, which has a README.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/listener-operator/listener-operator/test/router"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, args []string) error {
	options, err := parse(args)
	if err != nil {
		return err
	}
	logger := textlogger.NewLogger(textlogger.NewConfig())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	options.Output = os.Stderr
	options.Serving = func() { fmt.Println("serving") }
	return router.Run(logr.NewContext(ctx, logger), options)
}

// parse turns the command line into options.
func parse(args []string) (router.Options, error) {
	var o router.Options
	var kubeconfig, shard string
	flags := flag.NewFlagSet("router", flag.ContinueOnError)
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig with all permissions")
	flags.StringVar(&o.Name, "name", "default", "the router's name in the status of Routes")
	flags.StringVar(&o.Domain, "domain", "", "domain of the hosts of Routes with a subdomain")
	flags.StringVar(&o.CanonicalHostname, "canonical-hostname", "", "name that hosts of Routes may be aliases of")
	flags.StringVar(&shard, "labels", "", "label selector of the Routes that the router serves (default: all)")
	flags.StringVar(&o.Address, "address", "", "IP address to listen on")
	flags.IntVar(&o.HTTP, "http-port", 80, "port without TLS")
	flags.IntVar(&o.HTTPS, "https-port", 443, "port with TLS")
	flags.DurationVar(&o.ReloadInterval, "reload-interval", 0, "minimum time from one reload of HAProxy to the next; 5s on OpenShift")
	flags.StringVar(&o.Dir, "dir", "", "directory for HAProxy's files, on a short path")
	flags.StringVar(&o.DefaultPair, "default-certificate", "", "file with the certificate, and its key, of Routes without one")
	flags.StringVar(&o.ServiceCA, "service-ca", "", "file with the authority of Services' certificates")
	if err := flags.Parse(args); err != nil {
		return o, flag.ErrHelp
	}
	for name, value := range map[string]string{
		"--kubeconfig": kubeconfig, "--address": o.Address, "--dir": o.Dir, "--default-certificate": o.DefaultPair,
		"--service-ca": o.ServiceCA,
	} {
		if value == "" {
			return o, fmt.Errorf("%s is not set", name)
		}
	}
	var err error
	if o.Shard, err = labels.Parse(shard); err != nil {
		return o, fmt.Errorf("parsing --labels: %w", err)
	}
	if o.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return o, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	o.Config.QPS = -1
	return o, nil
}
