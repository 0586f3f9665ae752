// Command operator runs the controllers of the listener operator. They provision listener volumes, expose Listeners,
// find the addresses of each Pod, and install the node agent, which writes the addresses into the volumes.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/certificates"
	"github.com/listener-operator/listener-operator/controllers/certmanager"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/crdprotection"
	"github.com/listener-operator/listener-operator/controllers/dnsendpoint"
	"github.com/listener-operator/listener-operator/controllers/listener"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/controllers/lostnodes"
	clustermetrics "github.com/listener-operator/listener-operator/controllers/metrics"
	"github.com/listener-operator/listener-operator/controllers/nodeagent"
	"github.com/listener-operator/listener-operator/controllers/podlisteners"
	"github.com/listener-operator/listener-operator/controllers/restart"
	"github.com/listener-operator/listener-operator/controllers/takeover"
	"github.com/listener-operator/listener-operator/controllers/volume"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/etcdrestore"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/servertime"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/tlsprofile"
	"github.com/listener-operator/listener-operator/internal/version"
)

// Options are the options of the process. What an administrator may want to change at run time is in
// ListenerOperator/cluster. main reads them from the environment and flags.
type Options struct {
	Namespace      string
	NodeAgentImage string
	// PodName and PodUID are the operator's own Pod. They identify the leader.
	PodName, PodUID string
	// OperatorCondition is the name of the object in which the Operator Lifecycle Manager reads conditions of the
	// operator. Empty if something else installed the operator.
	OperatorCondition string
	// ClusterDomain is the DNS domain of the cluster, from the configuration of the resolver. Empty if that has none.
	ClusterDomain string
	// FirstSpec has fields of the spec of ListenerOperator/cluster, as JSON, which are used only when the operator
	// creates the object. It does so once. May be empty.
	FirstSpec string

	// The usage of the flags describes the others.
	MetricsAddress, MetricsCertificate, HealthAddress, LogLevel string
	LeaderElection                                              bool // rolling updates run two replicas
}

func main() {
	options := Options{
		Namespace: os.Getenv("OPERATOR_NAMESPACE"), NodeAgentImage: os.Getenv("RELATED_IMAGE_NODE_AGENT"),
		OperatorCondition: os.Getenv("OPERATOR_CONDITION_NAME"), PodName: os.Getenv("POD_NAME"),
		PodUID:    os.Getenv("POD_UID"),
		FirstSpec: os.Getenv("LISTENEROPERATOR_SPEC"),
	}
	flag.StringVar(&options.MetricsAddress, "metrics-bind-address", ":8443",
		"`address` that serves metrics over HTTPS; 0 disables metrics")
	flag.StringVar(&options.MetricsCertificate, "metrics-certificate", "",
		"`directory` with tls.crt and tls.key, the serving certificate for metrics; until both files exist, the "+
			"certificate is self-signed")
	flag.StringVar(&options.HealthAddress, "health-probe-bind-address", ":8081",
		"`address` that serves /healthz and /readyz")
	flag.BoolVar(&options.LeaderElection, "leader-elect", true,
		"run the controllers only while holding the leader election lease; required if more than one replica may run")
	flag.StringVar(&options.LogLevel, "log-level", "info", "`level` to log: info, or debug for a line per reconcile")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println(version.Version)
		return
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(35) // trades CPU time for memory, which is mostly the cache
	}
	// GOMEMLIMIT is the limit of the container, and Go does not count all
	debug.SetMemoryLimit(debug.SetMemoryLimit(-1) / 10 * 9)
	if err := run(ctrl.SetupSignalHandler(), options); err != nil {
		ctrl.Log.Error(err, "Stopping")
		os.Exit(1)
	}
}

func (o Options) validate() error {
	var errs []error
	if o.Namespace == "" {
		errs = append(errs, errors.New("environment variable OPERATOR_NAMESPACE is not set: set it to the namespace "+
			"of the operator"))
	}
	if o.NodeAgentImage == "" {
		errs = append(errs, errors.New("environment variable RELATED_IMAGE_NODE_AGENT is not set: set it to the "+
			"image of the node agent"))
	}
	if o.LeaderElection && (o.PodName == "" || o.PodUID == "") {
		errs = append(errs, errors.New(
			"environment variables POD_NAME and POD_UID are not set: set them to the operator's own Pod, or run with "+
				"--leader-elect=false"))
	}
	if err := nodeagent.MergeSpec(&operatorv1alpha1.ListenerOperatorSpec{}, o.FirstSpec); err != nil {
		errs = append(errs, fmt.Errorf("environment variable LISTENEROPERATOR_SPEC is invalid: %w", err))
	}
	if o.LogLevel != "info" && o.LogLevel != "debug" {
		errs = append(errs, fmt.Errorf("--log-level %q is invalid: it must be info or debug", o.LogLevel))
	}
	return errors.Join(errs...)
}

func run(ctx context.Context, options Options) error {
	level := slog.LevelInfo
	if options.LogLevel == "debug" {
		level = levelDebug
	}
	ctrl.SetLogger(logr.FromSlogHandler(quiet{slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})}))
	klog.SetLogger(ctrl.Log.WithName("kubernetes"))
	if err := options.validate(); err != nil {
		return err
	}
	var err error
	if options.ClusterDomain, err = resolverDomain("/etc/resolv.conf"); err != nil {
		ctrl.Log.Error(err, "Finding the DNS domain of the cluster; the one of ListenerOperator/cluster is used")
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("loading the client configuration for the API server: %w", err)
	}
	return runOn(ctx, config, options)
}

// runOn runs the operator on an API server until ctx is done, or until it finds that etcd was restored, or that
// Stackable's listener operator has started.
func runOn(ctx context.Context, config *rest.Config, options Options) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	config.Wrap(etcdrestore.Detect(end))
	err := start(ctx, end, config, options)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("ending, so that the next process reads everything again: %w", cause)
	}
	return err
}

func start(ctx context.Context, end context.CancelCauseFunc, config *rest.Config, options Options) error {
	// Priority and fairness protects the API server; a client-side limit would only delay mounts.
	config.QPS = -1
	apiTime := &servertime.Clock{}
	config.Wrap(apiTime.Wrap)
	apis, err := platform.Watch(ctx, config, backends.All().OptionalKinds()...)
	if err != nil {
		return err
	}
	profile := tlsprofile.New()
	certificate, err := newMetricsCertificate(options.MetricsCertificate, options.Namespace)
	if err != nil {
		return err
	}
	if err := metrics.Registry.Register(certificate.expiry()); err != nil {
		return fmt.Errorf("registering the expiry of the serving certificate for metrics: %w", err)
	}
	mgr, err := newManager(config, options, election(apis.OpenShift()))
	if err != nil {
		return err
	}
	if err := addServers(ctx, mgr, options, func(c *tls.Config) { c.GetCertificate = certificate.get },
		profile.Apply); err != nil {
		return err
	}
	if err := profile.SetupWithManager(mgr, apis); err != nil {
		return err
	}
	if err := index.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := setupControllers(mgr, end, apis, options, apiTime); err != nil {
		return err
	}
	ctrl.Log.Info("Starting", "version", version.Version, "namespace", options.Namespace)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}

func newManager(config *rest.Config, options Options, times electionTimes) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	types := runtime.SchemeBuilder{clientgoscheme.AddToScheme, listenersv1alpha1.AddToScheme,
		operatorv1alpha1.AddToScheme, backends.All().AddToScheme}
	if err := types.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering API types: %w", err)
	}
	lock, err := newLock(config, options, times)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options(options.Namespace),
		// Controller-runtime 0.24 may block its priority queue for ever when it is shut down while requests are pending
		// (kubernetes-sigs/controller-runtime#3538). The process would then not release its lease.
		Controller: ctrlconfig.Controller{UsePriorityQueue: ptr.To(false)},
		Metrics:    metricsserver.Options{BindAddress: "0"}, // see addServers

		LeaderElection: options.LeaderElection, LeaderElectionResourceLockInterface: lock,
		LeaseDuration: &times.lease, RenewDeadline: &times.renew, RetryPeriod: &times.retry,
		// The controllers have ended when the lease is released, and the process ends when run returns.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return mgr, nil
}

// setupControllers adds the controllers. While Stackable's operator runs, only the one that reports what is wrong does.
func setupControllers(mgr manager.Manager, end context.CancelCauseFunc, apis *platform.APIs, options Options,
	apiTime clock.PassiveClock) error {
	gate, err := takeover.SetupWithManager(mgr, end)
	if err != nil {
		return fmt.Errorf("setting up the takeover controller: %w", err)
	}
	for _, c := range controllers(mgr, apis, options, settling.NewNodes(clock.RealClock{}), apiTime) {
		var held manager.Manager = gate
		if c.name == "nodeagent" {
			held = mgr
		}
		if err := c.setup(held); err != nil {
			return fmt.Errorf("setting up the %s controller: %w", c.name, err)
		}
	}
	return nil
}

type controller struct {
	name  string
	setup func(manager.Manager) error
}

func controllers(mgr manager.Manager, apis *platform.APIs, options Options, nodes *settling.Nodes,
	apiTime clock.PassiveClock) []controller {
	events := mgr.GetEventRecorder(names.EventReporter)
	applier := apply.New(mgr.GetClient(), names.FieldManagerVolume)
	realClock := clock.RealClock{}
	installer := apply.New(mgr.GetClient(), names.FieldManagerOperator)
	authorities := &certificates.Authorities{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: events, Applier: installer, Platform: apis,
		Namespace: options.Namespace, Clock: apiTime,
	}
	trust := &certificates.Trust{Authorities: authorities}
	return []controller{
		{"confinement",
			(&confinement.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}).SetupWithManager},
		{"listener", (&listener.Reconciler{
			Client: mgr.GetClient(), Events: events, Platform: apis, Backends: backends.All(),
			ClusterDomain: options.ClusterDomain, Nodes: nodes,
		}).SetupWithManager},
		{"podlisteners", (&podlisteners.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: events, Backends: backends.All(),
			Applier: applier, Clock: realClock, Nodes: nodes,
		}).SetupWithManager},
		{"lostnodes", (&lostnodes.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: events, Applier: applier, Clock: realClock,
		}).SetupWithManager},
		{"restart", (&restart.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: events,
			Clock: realClock}).SetupWithManager},
		{"volume", (&volume.Reconciler{Client: mgr.GetClient(), Events: events, Applier: applier,
			Clock: realClock}).SetupWithManager},
		{"nodeagent", (&nodeagent.Reconciler{
			Client: mgr.GetClient(), Namespace: options.Namespace, Image: options.NodeAgentImage,
			OperatorCondition: options.OperatorCondition,
			ClusterDomain:     options.ClusterDomain, FirstSpec: options.FirstSpec, APIs: apis, Clock: realClock,
		}).SetupWithManager},
		{"listenerclass", (&listenerclass.Reconciler{Client: mgr.GetClient()}).SetupWithManager},
		{"listenerclass-warnings", (&listenerclass.Warner{Client: mgr.GetClient(), Events: events}).SetupWithManager},
		{"crdprotection",
			(&crdprotection.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}).SetupWithManager},
		{"certificate-authorities", authorities.SetupWithManager},
		{"certificate-trust", trust.SetupWithManager},
		{"certificates", (&certificates.Signer{Trust: trust, Clock: apiTime}).SetupWithManager},
		{"cert-manager", (&certmanager.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: events, Applier: installer, Platform: apis,
			Clock: realClock,
		}).SetupWithManager},
		{"dnsendpoint", (&dnsendpoint.Reconciler{Client: mgr.GetClient(), Events: events,
			Platform: apis}).SetupWithManager},
		{"metrics", clustermetrics.SetupWithManager},
	}
}

// resolverDomain returns the DNS domain of the cluster, by the configuration of a Pod's resolver, a file that the
// kubelet writes. It is "" if the configuration names none, as in a Pod with the DNS policy Default.
func resolverDomain(file string) (string, error) {
	content, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return "", fmt.Errorf("reading the configuration of the resolver: %w", err)
	}
	var domain string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "search" {
			domain = ofSearchList(fields[1:]) // the last list counts
		}
	}
	return domain, nil
}

// ofSearchList returns the domain of the cluster in the search list of a Pod, which has <namespace>.svc.<domain>,
// svc.<domain> and <domain>, and then what the node has.
func ofSearchList(list []string) string {
	for _, entry := range list {
		domain, ok := strings.CutPrefix(strings.ToLower(strings.TrimSuffix(entry, ".")), "svc.")
		if ok && len(validation.IsDNS1123Subdomain(domain)) == 0 {
			return domain
		}
	}
	return ""
}
