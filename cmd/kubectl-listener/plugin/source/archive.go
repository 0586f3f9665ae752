package source

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// archive is a client of what was gathered. What was not gathered is forbidden, as to users without permission.
type archive struct {
	client.Client // nil: there is nothing to write
	index         Index
	scheme        *runtime.Scheme
	mapper        meta.RESTMapper
	objects       map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured
	left          int64
}

func (a *archive) Scheme() *runtime.Scheme     { return a.scheme }
func (a *archive) RESTMapper() meta.RESTMapper { return a.mapper }

func (a *archive) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, a.scheme)
}

var errNotGathered = errors.New("it was not gathered")

func (a *archive) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	mapping, err := Mapping(a, o)
	if err != nil {
		return err
	}
	kind, resource := mapping.GroupVersionKind.GroupKind(), mapping.Resource.GroupResource()
	if found := a.objects[kind][key]; found != nil {
		return Convert(found.Object, o)
	}
	if slices.Contains(a.index.Absent, Absent{Kind: kind.String(), Namespace: key.Namespace, Name: key.Name}) ||
		a.listed(kind, key.Namespace, false) {
		return apierrors.NewNotFound(resource, key.Name)
	}
	return apierrors.NewForbidden(resource, key.Name, errNotGathered)
}

// listed reports whether a kind was listed, in a namespace or everywhere. some includes lists that were kept in part.
func (a *archive) listed(kind schema.GroupKind, namespace string, some bool) bool {
	return slices.ContainsFunc(a.index.Listed, func(l Listed) bool {
		return l.Kind == kind.String() && (l.Namespace == "" || l.Namespace == namespace) && (some || !l.Some)
	})
}

// List returns the objects of a namespace, or all. It ignores other options: Source selects.
func (a *archive) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	mapping, err := Mapping(a, list)
	if err != nil {
		return err
	}
	kind, namespace := mapping.GroupVersionKind.GroupKind(), (&client.ListOptions{}).ApplyOptions(options).Namespace
	if !a.listed(kind, namespace, true) {
		return apierrors.NewForbidden(mapping.Resource.GroupResource(), "", errNotGathered)
	}
	items := []any{}
	for key, object := range a.objects[kind] {
		if namespace == "" || namespace == key.Namespace {
			items = append(items, object.Object)
		}
	}
	version, name := list.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return Convert(map[string]any{"apiVersion": version, "kind": name, "items": items}, list)
}

// Mapping returns the kind of an object or of the objects in a list, if the API server of a client serves it.
func Mapping(c client.Client, o runtime.Object) (*meta.RESTMapping, error) {
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return nil, err
	}
	return c.RESTMapper().RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")},
		gvk.Version)
}

func Convert(from map[string]any, to runtime.Object) error {
	if object, ok := to.(*unstructured.Unstructured); ok {
		object.Object = runtime.DeepCopyJSON(from)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, to); err != nil {
		return fmt.Errorf("decoding an object: %w", err)
	}
	return nil
}

// Create responds to a review of a permission as the API server did. All other objects are forbidden.
func (a *archive) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if review, ok := o.(*authorizationv1.SubjectAccessReview); ok {
		for _, object := range a.objects[KindReview] {
			var known authorizationv1.SubjectAccessReview
			if err := Convert(object.Object, &known); err != nil {
				return err
			}
			if equality.Semantic.DeepEqual(known.Spec, review.Spec) {
				review.Status = known.Status
				return nil
			}
		}
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: KindReview.Group}, o.GetName(), errNotGathered)
}

// The files beside the objects.
const (
	IndexFile = "gather.yaml"
	// ResourcesFile has what the cluster serves, a list of restmapper.APIGroupResources.
	ResourcesFile = "api-resources.yaml"
)

// MaxSize is the most that is gathered and read, in bytes, because the content of an archive may be larger.
const MaxSize = 1 << 30

// KindReview is the kind of the reviews of the permissions that the operator and its node agents need. The API server
// does not keep them, so they have names of the command's own.
var KindReview = schema.GroupKind{Group: "authorization.k8s.io", Kind: "SubjectAccessReview"}

type Index struct {
	Time metav1.Time `json:"time"`
	// Plugin and Server are the versions of the plugin and of the API server.
	Plugin string `json:"plugin"`
	Server string `json:"server"`
	// Objects is the number of objects, so that a part of them does not pass for all.
	Objects int      `json:"objects"`
	Listed  []Listed `json:"listed"`
	// Absent are objects that were looked for by name, and do not exist.
	Absent  []Absent `json:"absent"`
	Missing []string `json:"missing"`
}

type Listed struct {
	// Kind is the kind with its API group, such as Pod or DaemonSet.apps.
	Kind string `json:"kind"`
	// Namespace is empty if the whole cluster was listed.
	Namespace string `json:"namespace,omitempty"`
	// Some states that only objects that concern Listeners and the operator were kept.
	Some bool `json:"some,omitempty"`
}

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

// maxFile is the most that is read of a file, in bytes: more than the API server accepts of an object.
const maxFile = 6 << 20

var errTooLarge = errors.New("it has more content than is read")

func (a *archive) load(files map[string][]byte) error {
	var roots []string
	for name := range files {
		if path.Base(name) == IndexFile {
			roots = append(roots, path.Dir(name))
		}
	}
	if len(roots) != 1 {
		return fmt.Errorf("it has %d files %s, and must have one: is it from kubectl listener gather?", len(roots),
			IndexFile)
	}
	var resources []*restmapper.APIGroupResources
	for name, into := range map[string]any{IndexFile: &a.index, ResourcesFile: &resources} {
		if err := a.unmarshal(files[path.Join(roots[0], name)], into); err != nil {
			return fmt.Errorf("parsing %s: %w", name, err)
		}
	}
	resources = slices.DeleteFunc(resources, func(group *restmapper.APIGroupResources) bool { return group == nil })
	if a.index.Time.IsZero() {
		return fmt.Errorf("%s has no time", IndexFile)
	}
	a.mapper = restmapper.NewDiscoveryRESTMapper(resources)
	count := 0
	for _, dir := range []string{"cluster-scoped-resources", "namespaces"} {
		for name, content := range files {
			if !strings.HasPrefix(name, path.Join(roots[0], dir)+"/") {
				continue
			}
			if err := a.add(content); err != nil {
				return fmt.Errorf("parsing %q: %w", name, err)
			}
			count++
		}
	}
	if count != a.index.Objects {
		return fmt.Errorf("it has %d of %d objects that were gathered", count, a.index.Objects)
	}
	return nil
}

func (a *archive) add(content []byte) error {
	o := &unstructured.Unstructured{}
	if err := a.unmarshal(content, o); err != nil {
		return err
	}
	kind := o.GroupVersionKind().GroupKind()
	if a.objects[kind] == nil {
		a.objects[kind] = map[types.NamespacedName]*unstructured.Unstructured{}
	}
	a.objects[kind][types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	return nil
}

// unmarshal decodes a file, unless that needs too much memory. gather writes no aliases, few of which stand for any
// amount.
func (a *archive) unmarshal(content []byte, into any) error {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return err
	}
	if err := a.count(&document); err != nil {
		return err
	}
	var value any
	if err := document.Decode(&value); err != nil {
		return err
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, into)
}

func (a *archive) count(n *yaml.Node) error {
	if a.left -= 16 + int64(len(n.Value)); a.left < 0 || n.Kind == yaml.AliasNode {
		return errTooLarge
	}
	for _, child := range n.Content {
		if err := a.count(child); err != nil {
			return err
		}
	}
	return nil
}

// read returns the YAML files of a directory or an archive. The size of an archive limits the size of its
// content, because anything can be packed into a small archive.
func (a *archive) read(name string) (map[string][]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if a.left = math.MaxInt64; !info.IsDir() {
		a.left = 4<<20 + 100*info.Size()
	}
	files, left := map[string][]byte{}, min(a.left, MaxSize)
	add := func(name string, size int64, file io.Reader) error {
		isYAML := path.Ext(name) == ".yaml"
		if left -= size; left < 0 || isYAML && size > maxFile {
			return errTooLarge
		}
		if !isYAML {
			return nil
		}
		content, err := io.ReadAll(io.LimitReader(file, size))
		files[path.Clean(name)] = content
		return err
	}
	if info.IsDir() {
		return files, readDir(os.DirFS(name), add)
	}
	file, err := os.Open(name) //nolint:gosec // G304: the user names it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return files, readArchive(file, add)
}

func readDir(dir fs.FS, add func(name string, size int64, file io.Reader) error) error {
	return fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		file, err := dir.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		return add(name, info.Size(), file)
	})
}

func readArchive(file io.Reader, add func(name string, size int64, file io.Reader) error) error {
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("unpacking it: %w", err)
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpacking it: %w", err)
		}
		if err := add(header.Name, header.Size, files); err != nil {
			return err
		}
	}
}
