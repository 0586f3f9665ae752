package tools

import "strings"

// Set is a group of programs that are built together from one module under hack/tools.
type Set struct {
	// LDFlags is appended to the linker flags that every set gets.
	LDFlags string
	// Tags are build tags.
	Tags []string
	// Missing are the files that a module leaves out although its packages embed them, by module and path in it. The
	// set is built with a copy of the module that has them, empty.
	Missing map[string][]string
	// Changed are changes of files, by module and path in it, for versions of its dependencies that the module does not
	// require, or without dependencies that are not needed. The set is built with a copy of the module that has them.
	Changed map[string]map[string][]Change
	// Module is a module whose main package is built, in its own module graph, instead of the "tool" lines. That of a
	// module that requires it has modules which a proxy may not have.
	Module string
	// Package is the directory of the main package in Module. Defaults to its root.
	Package string
	// Rename maps the name that the go command gives a program to its usual name.
	Rename map[string]string
	// Hint describes what is built, and how long that takes. It is printed when the build starts.
	Hint string
}

// Change replaces a text, which a file must contain. An empty To removes it. With Through, the text ends with that.
type Change struct{ From, Through, To string }

// sets contains the directories under hack/tools with programs of the cluster or of tests. The "tool" lines of a
// directory's go.mod are the programs that are built, unless the set has a Module.
//
// Those that import client-go are built with the versions of all modules that Kubernetes is built with. What Kubernetes
// has compiled is not compiled again then, which is nearly everything.
var sets = map[string]Set{
	"kubernetes": kubernetes(newest),
	"etcd": {
		Rename: map[string]string{"server": "etcd"},
		Hint:   "about 1 minute on two cores",
	},
	"containerd": {
		LDFlags: "-X github.com/containerd/containerd/v2/version.Version=v2.2.0" +
			" -X github.com/containerd/containerd/v2/version.Revision=",
		Hint: "about 1 minute on two cores",
	},
	"metallb": {
		// Without a version its log says "commit unknown".
		LDFlags: "-X go.universe.tf/metallb/internal/version.version=0.16.1",
		// As in its next version. A proxy may not have all modules of that.
		Changed: map[string]map[string][]Change{"go.universe.tf/metallb": {"internal/k8s/webhook.go": {{
			From: "NewWebhookHandler(mgr.GetScheme())", To: "NewWebhookHandler(mgr.GetScheme(), conversion.NewRegistry())",
		}}}},
		Hint: "the load balancer MetalLB, less than a minute on two cores after Kubernetes",
	},
	"traefik": {
		// The user interface, which is generated.
		Missing: map[string][]string{"github.com/traefik/traefik/v3": {"webui/static/index.html"}},
		Changed: map[string]map[string][]Change{"github.com/traefik/traefik/v3": {
			// The SDKs of nearly 200 DNS providers, with which it would get certificates.
			"pkg/provider/acme/provider.go": {
				{From: `"github.com/go-acme/lego/v5/providers/dns"`},
				{From: "dns.NewDNSChallengeProviderByName(p.DNSChallenge.Provider)", To: `nil, errors.New("not built in")`},
			},
			// A module inside of this one, which is in no archive of it: two empty types.
			"pkg/config/dynamic/http_config.go": {
				{From: `"github.com/traefik/traefik/dynamic/ext"`}, {From: "ext.HTTP `yaml:\",inline\"`"}, {From: "ext.Router `yaml:\",inline\"`"},
			},
			"pkg/config/dynamic/zz_generated.deepcopy.go": {{From: "out.HTTP = in.HTTP"}, {From: "out.Router = in.Router"}},
		}},
		Hint: "the Ingress and Gateway controller Traefik, about 5 minutes on two cores",
	},
	"helm": {
		LDFlags: "-X helm.sh/helm/v4/internal/version.version=v4.2.4",
		Hint:    "the package manager Helm, less than a minute on two cores after Kubernetes",
	},
	"external-dns": {
		Module: "sigs.k8s.io/external-dns",
		Hint:   "external-dns with all its providers, about 3 minutes on two cores",
	},
	"cert-manager": {Hint: "cert-manager for issuers with a key in a Secret, about 5 minutes on two cores after Kubernetes"},
	"olmv1": {
		// One of its dependencies is not on all proxies. It is for another way to apply objects, which is disabled by
		// default and left out by "standard", and of the watch that repairs what others change. This repairs nothing.
		Tags: append([]string{"standard"}, containerTags...),
		Changed: map[string]map[string][]Change{"github.com/operator-framework/operator-controller": {
			"cmd/operator-controller/main.go": {
				{From: `"pkg.package-operator.run/boxcutter/managedcache"`},
				{From: `"k8s.io/client-go/discovery"`}, {From: `"k8s.io/client-go/discovery/cached/memory"`},
				{From: `"sigs.k8s.io/controller-runtime/pkg/event"`}, {From: `"sigs.k8s.io/controller-runtime/pkg/predicate"`},
				{From: `crhandler "sigs.k8s.io/controller-runtime/pkg/handler"`},
				{From: "trackingCache, err := ", Through: "unable to add tracking cache to manager\")\n\t\treturn err\n\t}"},
				{From: "ctrlBuilderOpts = append(ctrlBuilderOpts, controllers.WithWatchesRawSource(", Through: "))\n"},
				{From: "baseDiscoveryClient, err := ", Through: "unable to setup ClusterObjectSet controller: %w\", err)\n\t}"},
				{From: "trackingCache         managedcache.TrackingCache"}, {From: "trackingCache:         trackingCache,"},
				{From: "TrackingCache:                 c.trackingCache,"}, {From: "c.trackingCache.Free(ctx, obj)", To: "nil"},
			},
		}},
		Hint: "the second generation of the Operator Lifecycle Manager, about 2 minutes on two cores after Kubernetes",
	},
	"nats":             {Hint: "the server of NATS, less than a minute on two cores"},
	"network-policies": {Hint: "what enforces NetworkPolicies, less than a minute on two cores after Kubernetes"},
	"coredns":          {Hint: "CoreDNS with the plugins in use, about 1 minute on two cores"},
	"operator-sdk": {
		Tags: containerTags,
		Hint: "the Operator SDK and its scorecard tests, about 2 minutes on two cores",
	},
	"olm": {
		Tags: append([]string{"json1"}, containerTags...),
		// The name that OLM uses.
		Rename: map[string]string{"grpc-health-probe": "grpc_health_probe"},
		Hint:   "the Operator Lifecycle Manager and its package manager opm, about 3 minutes on two cores",
	},
}

// seldom are sets that `make test` does not need, but `make test-matrix`, `make test-envoy-gateway` or `make
// test-operators`.
var seldom = map[string]Set{
	"cloudnative-pg": {
		Module: "github.com/cloudnative-pg/cloudnative-pg", Package: "cmd/manager",
		Hint: "the PostgreSQL operator CloudNativePG, about 4 minutes on two cores",
	},
	"envoy-gateway": {
		Module: "github.com/envoyproxy/gateway", Package: "cmd/envoy-gateway",
		LDFlags: "-X github.com/envoyproxy/gateway/internal/cmd/version.envoyGatewayVersion=v1.9.1",
		Hint:    "the Gateway controller Envoy Gateway, about 8 minutes on two cores",
	},
	"kubernetes-1.32": kubernetes("1.32.13"),
	"kubernetes-1.33": kubernetes("1.33.13"),
	"kubernetes-1.34": kubernetes("1.34.4"),
	"kubernetes-1.35": kubernetes("1.35.4"),
	"kubernetes-1.36": kubernetes("1.36.3"),
	"rabbitmq-operator": {
		Module: "github.com/rabbitmq/cluster-operator/v2", Package: "cmd", Rename: map[string]string{"cmd": "manager"},
		Hint: "RabbitMQ's cluster operator, about 4 minutes on two cores",
	},
	"redis-operator": {
		Module: "github.com/spotahome/redis-operator", Package: "cmd/redisoperator", Rename: map[string]string{"redisoperator": "manager"},
		Hint: "Spotahome's Redis operator, about 3 minutes on two cores",
	},
}

// newest is the version of Kubernetes that clusters run by default.
const newest = "1.37.2"

// Kubernetes returns the name of the set with the programs of a minor version of Kubernetes, such as "1.33", or of the
// newest one if that is empty.
func Kubernetes(minor string) string {
	if minor == "" || strings.HasPrefix(newest, minor+".") {
		return "kubernetes"
	}
	return "kubernetes-" + minor
}

// kubernetes returns the set of a version of Kubernetes. Without a version the API server would report
// v0.0.0-master, which clients cannot parse.
func kubernetes(version string) Set {
	parts := strings.Split(version, ".")
	return Set{
		LDFlags: "-X k8s.io/component-base/version.gitVersion=v" + version +
			" -X k8s.io/component-base/version.gitMajor=" + parts[0] +
			" -X k8s.io/component-base/version.gitMinor=" + parts[1],
		Hint: "all of Kubernetes " + version + ", about 6 minutes on two cores",
	}
}

// containerTags exclude the parts of containers/image and containers/storage that require C libraries.
var containerTags = []string{"containers_image_openpgp", "exclude_graphdriver_btrfs", "exclude_graphdriver_devicemapper"}
