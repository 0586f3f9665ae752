package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// pack writes an archive, and returns its name. It has an index, and what the cluster serves, unless files has others.
func pack(t *testing.T, files map[string]string) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	all := map[string]string{source.IndexFile: "{time: 2026-11-01T10:00:00Z, objects: 1}", source.ResourcesFile: "[]"}
	maps.Copy(all, files)
	for name, content := range all {
		err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))})
		_, writeErr := io.WriteString(archive, content)
		check.Must(t, errors.Join(err, writeErr))
	}
	name := filepath.Join(t.TempDir(), "a.tar.gz")
	check.Must(t, errors.Join(archive.Close(), zipped.Close(), os.WriteFile(name, packed.Bytes(), 0o600)))
	return name
}

const pod = "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web-0}, spec: "

func podPath(name string) string {
	return source.Path(schema.GroupResource{Resource: "pods"}, "shop", name)
}

// Anything may be packed into it.
func TestAnArchiveNeedsNoMoreMemoryThanItsSizeSuggests(t *testing.T) {
	const limit = 400 << 20 // bytes that are allocated in all, for an archive of at most 30 KB
	many := map[string]string{}
	for i := range 20 {
		many[podPath(strings.Repeat("a", i+1))] = pod + "[" + strings.Repeat("{},", 70_000) + "]}"
	}
	for name, files := range map[string]map[string]string{
		"a long list":                 {podPath("web-0"): pod + "[" + strings.Repeat("{},", 6_000_000) + "]}"},
		"a list as long as permitted": {podPath("web-0"): pod + "[" + strings.Repeat("{},", 1_500_000) + "]}"},
		"lists in lists":              {podPath("web-0"): pod + strings.Repeat("[", 2_000_000) + strings.Repeat("]", 2_000_000) + "}"},
		"many lists":                  many,
		"a text again and again":      {podPath("web-0"): pod + "{a: &a " + strings.Repeat("x", 1_000_000) + ", b: [" + strings.Repeat("*a,", 500_000) + "]}}"},
		"what the cluster serves":     {source.ResourcesFile: "[" + strings.Repeat("{},", 1_500_000) + "]"},
		"the index":                   {source.IndexFile: "{time: 2026-11-01T10:00:00Z, listed: [" + strings.Repeat("{},", 1_500_000) + "]}"},
	} {
		t.Run(name, func(t *testing.T) {
			archive := pack(t, files)
			if info, err := os.Stat(archive); err != nil || info.Size() > 30_000 {
				t.Fatal(info.Size(), err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := source.Open(archive, clientgoscheme.Scheme)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("it is accepted")
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > limit {
				t.Errorf("%d MiB were allocated; %.200s", allocated>>20, err)
			} else {
				t.Logf("%d MiB were allocated; %.200s", allocated>>20, err)
			}
		})
	}
}

// It may also be read, but nothing worse happens.
func TestAnArchiveThatIsNotFromGatherIsRefused(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no kind":                  {podPath("web-0"): "{apiVersion: v1, metadata: {name: a}}"},
		"no object":                {podPath("web-0"): "null"},
		"nothing":                  {podPath("web-0"): ""},
		"a name with a line break": {podPath("web-0\n✔ Nothing is wrong"): "{"},
		"keys that are no texts":   {podPath("web-0"): pod + "{[a]: b}}"},
		"a number that is none":    {podPath("web-0"): pod + "{a: .nan}}"},
	} {
		_, _, err := source.Open(pack(t, files), clientgoscheme.Scheme)
		if err == nil || strings.Contains(err.Error(), "\n✔") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, _, err := source.Open(pack(t, map[string]string{source.ResourcesFile: "[null]", podPath("web-0"): pod + "{}}"}), clientgoscheme.Scheme); err != nil {
		t.Errorf("an API group that is null: %v", err)
	}
}
