package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestParseHierarchies(t *testing.T) {
	mounts := `proc /proc proc rw 0 0
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
`
	want := []hierarchy{{mount: "/sys/fs/cgroup/cpu"}, {mount: "/sys/fs/cgroup/unified", v2: true}}
	if diff := cmp.Diff(want, parseHierarchies(mounts), cmp.AllowUnexported(hierarchy{})); diff != "" {
		t.Error(diff)
	}
}

func TestNewGroupHasProcessorsOfParent(t *testing.T) {
	parent := t.TempDir()
	write(t, filepath.Join(parent, "cpuset.cpus"), "0-1")
	write(t, filepath.Join(parent, "cpuset.mems"), "0")
	dir := filepath.Join(parent, "group")
	for range 2 { // the second call changes nothing
		check.Must(t, (hierarchy{mount: parent}).createLevel(parent, dir))
	}
	for name, want := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "0"} {
		if got := read(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestParentDelegatesControllers(t *testing.T) {
	parent := t.TempDir()
	write(t, filepath.Join(parent, "cgroup.controllers"), "memory\n")
	write(t, filepath.Join(parent, "cgroup.subtree_control"), "")
	check.Must(t, (hierarchy{mount: parent, v2: true}).createLevel(parent, filepath.Join(parent, "group")))
	if got := read(t, filepath.Join(parent, "cgroup.subtree_control")); got != "+memory" {
		t.Errorf("controllers handed on are %q", got)
	}
}

func TestRemoveTreeRemovesNestedAndMissingGroups(t *testing.T) {
	root := filepath.Join(t.TempDir(), "group")
	check.Must(t, os.MkdirAll(filepath.Join(root, "a", "b"), 0o755))
	for range 2 {
		check.Must(t, removeTree(t.Context(), root))
		if ok, err := exists(root); ok || err != nil {
			t.Errorf("the group is still there: %v, %v", ok, err)
		}
	}
}

// write writes a file.
func write(t *testing.T, path, content string) {
	t.Helper()
	check.Must(t, os.WriteFile(path, []byte(content), 0o600))
}

// read reads a file.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	check.Must(t, err)
	return string(content)
}
