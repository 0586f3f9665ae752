package tools

// Set is a group of programs that are built together from one module under hack/tools.
type Set struct {
	// LDFlags is appended to the linker flags that every set gets.
	LDFlags string
	// Tags are build tags.
	Tags []string
	// Rename maps the name that the go command gives a program to its usual name.
	Rename map[string]string
	// Hint describes what is built, and how long that takes. It is printed when the build starts.
	Hint string
}

// sets contains the directories under hack/tools with programs of the cluster or of tests. The "tool" lines of a
// directory's go.mod are the programs that are built.
var sets = map[string]Set{
	"kubernetes": {
		// Without a version the API server would report v0.0.0-master, which clients cannot parse.
		LDFlags: "-X k8s.io/component-base/version.gitVersion=v1.36.3" +
			" -X k8s.io/component-base/version.gitMajor=1" +
			" -X k8s.io/component-base/version.gitMinor=36",
		Hint: "all of Kubernetes, about 6 minutes on two cores",
	},
	"etcd": {
		Rename: map[string]string{"server": "etcd"},
		Hint:   "about 1 minute on two cores",
	},
	"containerd": {
		LDFlags: "-X github.com/containerd/containerd/v2/version.Version=v2.2.0" +
			" -X github.com/containerd/containerd/v2/version.Revision=",
		Hint: "about 1 minute on two cores",
	},
	"coredns": {Hint: "CoreDNS with all its plugins, about 2 minutes on two cores"},
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

// containerTags exclude the parts of containers/image and containers/storage that require C libraries.
var containerTags = []string{"containers_image_openpgp", "exclude_graphdriver_btrfs", "exclude_graphdriver_devicemapper"}
