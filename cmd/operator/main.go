// Command operator runs the listener operator's controllers: it provisions listener volumes, exposes Listeners, tells
// Pods their addresses, and installs the node agent that hands the addresses to the Pods.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/controllers/nodeagent"
	"github.com/listener-operator/listener-operator/controllers/podlisteners"
	"github.com/listener-operator/listener-operator/controllers/volume"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/version"
)

// Options are what the operator is started with. Everything that a user may want to change at run time is in
// ListenerOperator/cluster.
type Options struct {
	// Namespace is where the operator runs, and puts the node agent: the environment variable OPERATOR_NAMESPACE.
	Namespace string
	// NodeAgentImage is the image of the node agent: the environment variable RELATED_IMAGE_NODE_AGENT.
	NodeAgentImage string
	// MetricsAddress is where metrics are served, over HTTPS, to those who may read them; "0" turns them off.
	MetricsAddress string
	// MetricsCertificate is the directory of the certificate that metrics are served with: tls.crt and tls.key, which
	// need not exist. Empty for one that the operator makes for itself.
	MetricsCertificate string
	// HealthAddress is where /healthz and /readyz are served.
	HealthAddress string
	// LeaderElection is needed as soon as there may be two operators, if only during an update.
	LeaderElection bool
	// OperatorCondition is the name of the object by which the Operator Lifecycle Manager learns of conditions: the
	// environment variable OPERATOR_CONDITION_NAME, which it sets. Empty without it.
	OperatorCondition string
	// LogLevel is "info", or "debug" for a line per pass.
	LogLevel string
}

// gcPercent makes the garbage collector work a little harder for a smaller process, most of which is the cache: with
// 3,000 Listeners the peak after a restart was 137 MiB instead of 161, for one second more than 7 of the processor
// (make bench). GOGC in the environment counts instead.
const gcPercent = 25

func main() {
	options := Options{
		Namespace: os.Getenv("OPERATOR_NAMESPACE"), NodeAgentImage: os.Getenv("RELATED_IMAGE_NODE_AGENT"),
		OperatorCondition: os.Getenv("OPERATOR_CONDITION_NAME"),
	}
	flag.StringVar(&options.MetricsAddress, "metrics-bind-address", ":8443", "address to serve metrics on over HTTPS; 0 turns them off")
	flag.StringVar(&options.MetricsCertificate, "metrics-certificate", "",
		"directory of tls.crt and tls.key to serve metrics with, as soon as they exist; without, the certificate is one that nobody can verify")
	flag.StringVar(&options.HealthAddress, "health-probe-bind-address", ":8081", "address to serve /healthz and /readyz on")
	flag.BoolVar(&options.LeaderElection, "leader-elect", true, "work only while holding the lease, so that two operators never work at once")
	flag.StringVar(&options.LogLevel, "log-level", "info", "info, or debug for a line per pass")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println(version.Version)
		return
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := run(ctrl.SetupSignalHandler(), options); err != nil {
		ctrl.Log.Error(err, "Stopping")
		os.Exit(1)
	}
}

// validate returns what is wrong with the options, for the person who starts the operator.
func (o Options) validate() error {
	var errs []error
	if o.Namespace == "" {
		errs = append(errs, errors.New("the environment variable OPERATOR_NAMESPACE is not set: it must name the operator's own namespace"))
	}
	if o.NodeAgentImage == "" {
		errs = append(errs, errors.New("the environment variable RELATED_IMAGE_NODE_AGENT is not set: it must name the node agent's image"))
	}
	if o.LogLevel != "info" && o.LogLevel != "debug" {
		errs = append(errs, fmt.Errorf("--log-level is %q: it must be info or debug", o.LogLevel))
	}
	return errors.Join(errs...)
}

// run works until ctx is done.
func run(ctx context.Context, options Options) error {
	level := slog.LevelInfo
	if options.LogLevel == "debug" {
		level-- // logr's V(1)
	}
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	klog.SetLogger(ctrl.Log.WithName("kubernetes"))
	if err := options.validate(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	// The API server's priority and fairness protects it; a second limit here would only delay mounts.
	config.QPS = -1
	apis, err := platform.Watch(ctx, config, backends.All().OptionalKinds()...)
	if err != nil {
		return err
	}
	profile := platform.NewTLSProfile()
	certificate, err := newMetricsCertificate(options.MetricsCertificate, options.Namespace)
	if err != nil {
		return err
	}
	mgr, err := newManager(config, options, election(apis.OpenShift()), profile.Apply, certificate.apply)
	if err != nil {
		return err
	}
	if err := profile.SetupWithManager(mgr, apis); err != nil {
		return err
	}
	if err := setup(ctx, mgr, apis, options); err != nil {
		return err
	}
	ctrl.Log.Info("Starting", "version", version.Version, "namespace", options.Namespace)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}

// electionTimes say how the replicas share the lease.
type electionTimes struct{ lease, renew, retry time.Duration }

// election returns the times that OpenShift demands of its operators, so that they survive the restart of a single
// node's API server, or else the library's.
func election(openShift bool) electionTimes {
	if openShift {
		return electionTimes{lease: 137 * time.Second, renew: 107 * time.Second, retry: 26 * time.Second}
	}
	return electionTimes{lease: 15 * time.Second, renew: 10 * time.Second, retry: 2 * time.Second}
}

func newManager(config *rest.Config, options Options, times electionTimes, metricsTLS ...func(*tls.Config)) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, listenersv1alpha1.AddToScheme, operatorv1alpha1.AddToScheme, backends.All().AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options(options.Namespace),
		Metrics: metricsserver.Options{
			BindAddress:    options.MetricsAddress,
			SecureServing:  true,
			TLSOpts:        metricsTLS,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		HealthProbeBindAddress:        options.HealthAddress,
		LeaderElection:                options.LeaderElection,
		LeaderElectionID:              names.Operator,
		LeaderElectionNamespace:       options.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &times.lease,
		RenewDeadline:                 &times.renew,
		RetryPeriod:                   &times.retry,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	return mgr, nil
}

// setup adds the indexes and the controllers to the manager.
func setup(ctx context.Context, mgr manager.Manager, apis *platform.APIs, options Options) error {
	if err := index.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	events := mgr.GetEventRecorder(names.EventReporter)
	applier := apply.New(mgr.GetClient(), names.FieldManagerVolume)
	for _, controller := range []struct {
		name  string
		setup func(manager.Manager) error
	}{
		{"listener", (&listener.Reconciler{
			Client: mgr.GetClient(), Events: events, Platform: apis, Backends: backends.All(),
		}).SetupWithManager},
		{"podlisteners", (&podlisteners.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: events, Applier: applier,
		}).SetupWithManager},
		{"volume", func(mgr manager.Manager) error { return volume.Add(mgr, applier) }},
		{"nodeagent", (&nodeagent.Reconciler{
			Client: mgr.GetClient(), Namespace: options.Namespace, Image: options.NodeAgentImage, OperatorCondition: options.OperatorCondition,
			APIs: apis,
		}).SetupWithManager},
		{"listenerclass", (&listenerclass.Reconciler{Client: mgr.GetClient()}).SetupWithManager},
	} {
		if err := controller.setup(mgr); err != nil {
			return fmt.Errorf("setting up the %s controller: %w", controller.name, err)
		}
	}
	return nil
}
