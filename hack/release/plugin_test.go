package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/listener-operator/listener-operator/hack/archive"
)

// The test builds the program of the node agent, because the plugin takes long to build for each platform.
func TestBillOfAPluginListsItsModules(t *testing.T) {
	program, err := os.ReadFile(filepath.Join(built(t, root), "node-agent"))
	if err != nil {
		t.Fatal(err)
	}
	modules, err := linked(filepath.Join(built(t, root), "node-agent"))
	if err != nil {
		t.Fatal(err)
	}
	table := "module,version,licenses\n"
	for _, m := range modules {
		table += m.Path + "," + m.Version + ",MIT\n"
	}
	r := newRelease(Options{Version: "1.2.3"}, t.TempDir())
	packed, err := archive.Pack([]archive.File{
		{Name: "licenses/modules.csv", Content: []byte(table)}, {Name: "kubectl-listener.exe", Mode: 0o755, Content: program},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubectl-listener_windows_amd64.tar.gz")
	if err := os.WriteFile(path, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.describePlugin(path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(r.dir, "sbom/kubectl-listener_windows_amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := json.Unmarshal(content, &bom); err != nil {
		t.Fatal(err)
	}
	sum, err := checksum(path)
	if err != nil {
		t.Fatal(err)
	}
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
