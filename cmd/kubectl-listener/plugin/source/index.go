package source

import (
	"cmp"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The files beside the objects.
const (
	// IndexFile has an Index.
	IndexFile = "gather.yaml"
	// ResourcesFile has what the cluster serves, a list of restmapper.APIGroupResources.
	ResourcesFile = "api-resources.yaml"
)

// MaxSize is the most that is gathered and read, in bytes, because the content of an archive may be larger.
const MaxSize = 1 << 30

// KindReview is the kind of the reviews of the permissions that the operator and its node agents need. The API server
// does not keep them, so they have names of the command's own.
var KindReview = schema.GroupKind{Group: "authorization.k8s.io", Kind: "SubjectAccessReview"}

// Index says what was gathered, and what was not.
type Index struct {
	// Time is when the objects had been read.
	Time metav1.Time `json:"time"`
	// Plugin and Server are the versions of the plugin and of the API server.
	Plugin string `json:"plugin"`
	Server string `json:"server"`
	// Objects is the number of objects, so that a part of them does not pass for all.
	Objects int `json:"objects"`
	// Listed are the kinds whose objects were listed.
	Listed []Listed `json:"listed"`
	// Absent are objects that were looked for by name, and do not exist.
	Absent []Absent `json:"absent"`
	// Missing is what could not be gathered, and why.
	Missing []string `json:"missing"`
}

// Listed is a kind whose objects were listed.
type Listed struct {
	// Kind is the kind with its API group, such as Pod or DaemonSet.apps.
	Kind string `json:"kind"`
	// Namespace is empty if the whole cluster was listed.
	Namespace string `json:"namespace,omitempty"`
	// Some states that only objects that concern Listeners and the operator were kept.
	Some bool `json:"some,omitempty"`
}

// Absent is an object that does not exist.
type Absent struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Path returns the path of an object, as `oc adm inspect` has it.
func Path(resource schema.GroupResource, namespace, name string) string {
	dir := "cluster-scoped-resources"
	if namespace != "" {
		dir = path.Join("namespaces", namespace)
	}
	return path.Join(dir, cmp.Or(resource.Group, "core"), resource.Resource, name+".yaml")
}
