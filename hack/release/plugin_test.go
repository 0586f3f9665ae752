package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/listener-operator/listener-operator/hack/archive"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// The test builds the program of the node agent, because the plugin takes long to build for each platform.
func TestBillOfAPluginListsItsModules(t *testing.T) {
	program, err := os.ReadFile(filepath.Join(built(t, root), "node-agent"))
	check.Must(t, err)
	modules, err := linked(filepath.Join(built(t, root), "node-agent"))
	check.Must(t, err)
	table := "module,version,licenses\n"
	for _, m := range modules {
		table += m.Path + "," + m.Version + ",MIT\n"
	}
	r := newRelease(Options{Version: "1.2.3"}, t.TempDir())
	packed, err := archive.Pack([]archive.File{
		{Name: "licenses/modules.csv", Content: []byte(table)}, {Name: "kubectl-listener.exe", Mode: 0o755, Content: program},
	})
	check.Must(t, err)
	path := filepath.Join(t.TempDir(), "kubectl-listener_windows_amd64.tar.gz")
	check.Must(t, os.WriteFile(path, packed, 0o600))
	check.Must(t, r.describePlugin(path))
	content, err := os.ReadFile(filepath.Join(r.dir, "sbom/kubectl-listener_windows_amd64.cdx.json"))
	check.Must(t, err)
	var bom cdx.BOM
	check.Must(t, json.Unmarshal(content, &bom))
	sum, err := checksum(path)
	check.Must(t, err)
	if got := (*bom.Metadata.Component.Hashes)[0].Value; got != sum {
		t.Errorf("the bill is for %s, want the archive with the checksum %s", got, sum)
	}
	if got := len(*bom.Components); got != len(modules)+1 {
		t.Errorf("%d components, want the program and %d modules", got, len(modules))
	}
	if len(r.dependencies) != len(modules) || !strings.Contains(string(content), "#cmd/kubectl-listener\"") {
		t.Errorf("the provenance lists %d modules, want %d", len(r.dependencies), len(modules))
	}
}
