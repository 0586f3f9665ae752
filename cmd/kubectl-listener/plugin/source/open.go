package source

import (
	"archive/tar"
	"compress/gzip"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/restmapper"
)

// maxFile is the most that is read of a file, in bytes: more than the API server accepts of an object.
const maxFile = 6 << 20

var errTooLarge = errors.New("it has more content than is read")

// Open returns a source of what was gathered in a directory, or in an archive, and its index. The objects may be below
// another directory, as `oc adm must-gather` writes them.
func Open(name string, scheme *runtime.Scheme) (*Source, Index, error) {
	a := &archive{scheme: scheme, objects: map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured{}}
	files, err := a.read(name)
	if err == nil {
		err = a.load(files)
	}
	if err != nil {
		return nil, Index{}, fmt.Errorf("reading %s: %w", name, err)
	}
	s := List(a)
	s.archive = a
	return s, a.index, nil
}

// load reads the files.
func (a *archive) load(files map[string][]byte) error {
	var roots []string
	for name := range files {
		if path.Base(name) == IndexFile {
			roots = append(roots, path.Dir(name))
		}
	}
	if len(roots) != 1 {
		return fmt.Errorf("it has %d files %s, and must have one: is it from kubectl listener gather?", len(roots), IndexFile)
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

// add adds the object in a file.
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

// unmarshal decodes a file, unless what has been decoded so far needs too much memory. gather writes no aliases: a few
// of them could stand for any amount.
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

// count counts a node, and those below.
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
