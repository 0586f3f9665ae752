package main

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/archive"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func options(output string) Options {
	return Options{Version: "1.2.3", URL: "https://releases.example/v1.2.3", Output: output}
}

// TestTheManifestInstallsTheArchive builds the plugin for the machine of the test, and does what krew does.
func TestTheManifestInstallsTheArchive(t *testing.T) {
	t.Chdir("../..")
	dir := t.TempDir()
	here := platform{runtime.GOOS, runtime.GOARCH}
	if err := run(t.Context(), options(dir), []platform{here}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "listener.yaml"))
	check.Must(t, err)
	var m plugin
	check.Must(t, yaml.UnmarshalStrict(raw, &m))
	p := m.Spec.Platforms[0]
	content, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(p.URI, "https://releases.example/v1.2.3/")))
	check.Must(t, err)
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != p.SHA256 {
		t.Errorf("the manifest has the checksum %s, want %x", p.SHA256, sum)
	}
	unpacked, err := archive.Unpack(content)
	check.Must(t, err)
	files := map[string][]byte{}
	for _, f := range unpacked {
		files[f.Name] = f.Content
	}
	if files["licenses/modules.csv"] == nil || files["kubectl_complete-listener"] == nil {
		t.Error("the archive lacks the licenses of linked modules, or the program for completion")
	}
	for _, f := range p.Files {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(name string) bool { return name == f.From || strings.HasPrefix(name, f.From+"/") }) {
			t.Errorf("the archive lacks %s", f.From)
		}
	}
	binary := filepath.Join(t.TempDir(), p.Bin)
	check.Must(t, os.WriteFile(binary, files[p.Bin], 0o700))
	out, err := exec.CommandContext(t.Context(), binary, "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "kubectl listener version 1.2.3") {
		t.Errorf("error %v, version %s", err, out)
	}
}

// The rules are https://krew.sigs.k8s.io/docs/developer-guide/develop/naming-guide/ and the checks of krew's index.
func TestTheManifestFollowsTheRulesOfKrew(t *testing.T) {
	sums := map[platform]string{}
	for _, p := range platforms() {
		sums[p] = strings.Repeat("0", 64)
	}
	raw, err := manifest(options(""), platforms(), sums)
	check.Must(t, err)
	var m plugin
	check.Must(t, yaml.UnmarshalStrict(raw, &m))
	if m.Metadata["name"] != "listener" || m.Spec.Version != "v1.2.3" || len(m.Spec.ShortDescription) > 50 || m.Spec.Description == "" {
		t.Errorf("%+v", m)
	}
	var systems []string
	for _, p := range m.Spec.Platforms {
		system := p.Selector.MatchLabels["os"] + "/" + p.Selector.MatchLabels["arch"]
		systems = append(systems, system)
		if !regexp.MustCompile(`^https://\S+/kubectl-listener_\w+\.tar\.gz$`).MatchString(p.URI) || len(p.SHA256) != 64 ||
			strings.HasSuffix(p.Bin, ".exe") != strings.HasPrefix(system, "windows/") {
			t.Errorf("%+v", p)
		}
		if !slices.Contains(p.Files, pluginFile{p.Bin, "."}) || !slices.Contains(p.Files, pluginFile{"LICENSE", "."}) {
			t.Errorf("%s installs %+v", system, p.Files)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}; !slices.Equal(systems, want) {
		t.Errorf("platforms %q, want %q", systems, want)
	}
}

func TestOptionsAreRequired(t *testing.T) {
	for want, o := range map[string]Options{
		"semantic version": {URL: "https://releases.example"},
		"-url is required": {Version: "1.2.3"},
		"trailing slash":   {Version: "1.2.3", URL: "https://releases.example/"},
	} {
		o.Output = t.TempDir()
		if err := run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", o, err, want)
		}
	}
}
