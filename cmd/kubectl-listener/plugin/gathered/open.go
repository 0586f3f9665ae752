package gathered

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Open returns a client of what was gathered in a directory, or in an archive, and its index. The objects may be below
// another directory, as those of `oc adm must-gather` are.
func Open(name string, scheme *runtime.Scheme) (client.Client, Index, error) {
	r := &reader{scheme: scheme, objects: map[schema.GroupKind]objects{}}
	files, limit, err := read(name)
	if err == nil {
		err = r.load(files, &decoder{limit})
	}
	if err != nil {
		return nil, Index{}, fmt.Errorf("reading %s: %w", name, err)
	}
	return r, r.index, nil
}

// load reads the files.
func (r *reader) load(files map[string][]byte, d *decoder) error {
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
	for name, into := range map[string]any{IndexFile: &r.index, ResourcesFile: &resources} {
		if err := d.unmarshal(files[path.Join(roots[0], name)], into); err != nil {
			return fmt.Errorf("parsing %s: %w", name, err)
		}
	}
	resources = slices.DeleteFunc(resources, func(group *restmapper.APIGroupResources) bool { return group == nil })
	if r.index.Time.IsZero() {
		return fmt.Errorf("%s has no time", IndexFile)
	}
	r.mapper = restmapper.NewDiscoveryRESTMapper(resources)
	count := 0
	for _, dir := range []string{"cluster-scoped-resources", "namespaces"} {
		for name, content := range files {
			if !strings.HasPrefix(name, path.Join(roots[0], dir)+"/") {
				continue
			}
			if err := r.add(content, d); err != nil {
				return fmt.Errorf("parsing %q: %w", name, err)
			}
			count++
		}
	}
	if count != r.index.Objects {
		return fmt.Errorf("it has %d of %d objects that were gathered", count, r.index.Objects)
	}
	return nil
}

// add adds the object in a file.
func (r *reader) add(content []byte, d *decoder) error {
	o := &unstructured.Unstructured{}
	if err := d.unmarshal(content, o); err != nil {
		return err
	}
	kind := o.GroupVersionKind().GroupKind()
	if r.objects[kind] == nil {
		r.objects[kind] = objects{}
	}
	r.objects[kind][types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	return nil
}

// read returns the YAML files of a directory or an archive, and the most that their content may need in memory. That
// of an archive grows with its size, because any content can be packed into a small one.
func read(name string) (files map[string][]byte, limit int64, _ error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	limit = math.MaxInt64
	if !info.IsDir() {
		limit = 4<<20 + 100*info.Size()
	}
	files, left := map[string][]byte{}, min(limit, MaxSize)
	add := func(name string, size int64, file io.Reader) error {
		if left -= size; left < 0 {
			return tooLarge(min(limit, MaxSize))
		}
		if path.Ext(name) != ".yaml" {
			return nil
		}
		content, err := io.ReadAll(io.LimitReader(file, size))
		files[path.Clean(name)] = content
		return err
	}
	if info.IsDir() {
		return files, limit, readDir(os.DirFS(name), add)
	}
	file, err := os.Open(name) //nolint:gosec // G304: the user names it
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	return files, limit, readArchive(file, add)
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
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpacking it: %w", err)
		}
		if err := add(header.Name, header.Size, archive); err != nil {
			return err
		}
	}
}
