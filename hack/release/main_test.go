package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// root is the root of the repository.
const root = "../.."

// someCommit is the hash of a commit.
const someCommit = "0123456789abcdef0123456789abcdef01234567"

func TestInvalidOptionsAreRejected(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	t.Setenv("SOURCE_COMMIT", someCommit)
	good := Options{Version: "1.2.3", Image: "registry.example/team/operator"}
	check.Must(t, good.complete(t.Context()))
	if want := time.Unix(1, 0).UTC(); good.Created != want || good.Commit != someCommit {
		t.Errorf("created %s from %s, want %s from %s", good.Created, good.Commit, want, someCommit)
	}
	for name, o := range map[string]Options{
		"no version":        {Image: good.Image},
		"a leading v":       {Version: "v1.2.3", Image: good.Image},
		"no image":          {Version: good.Version},
		"no registry":       {Version: good.Version, Image: "operator"},
		"a tag":             {Version: good.Version, Image: good.Image + ":1"},
		"a digest":          {Version: good.Version, Image: good.Image + "@sha256:00"},
		"an empty registry": {Version: good.Version, Image: "/operator"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := o.complete(t.Context()); err == nil {
				t.Error("no error")
			}
		})
	}
	t.Setenv("SOURCE_COMMIT", "main")
	if err := good.complete(t.Context()); err == nil || !strings.Contains(err.Error(), "main") {
		t.Errorf("error %v, want one that contains the commit", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := good.complete(t.Context()); err == nil || !strings.Contains(err.Error(), "yesterday") {
		t.Errorf("error %v, want one that contains the time", err)
	}
}

// built returns a directory with the node agent, built from the repository in root.
func built(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	check.Must(t, build(t.Context(), root, dir, "1.2.3", runtime.GOARCH, "./cmd/node-agent"))
	return dir
}

func TestProgramDependsOnlyOnItsSource(t *testing.T) {
	other := t.TempDir()
	for _, name := range []string{"api", "cmd", "controllers", "internal", "node-agent"} {
		check.Must(t, os.CopyFS(filepath.Join(other, name), os.DirFS(filepath.Join(root, name))))
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		check.Must(t, err)
		check.Must(t, os.WriteFile(filepath.Join(other, name), data, 0o600))
	}
	// The user's settings have no effect either.
	first := built(t, root)
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("GOAMD64", "v3")
	second := built(t, other)
	var sums [2]string
	for i, dir := range []string{first, second} {
		var err error
		if sums[i], err = checksum(filepath.Join(dir, "node-agent")); err != nil {
			t.Fatal(err)
		}
	}
	if sums[0] != sums[1] {
		t.Errorf("the programs differ: %v", sums)
	}
}

// These packages call methods by names that are known at run time only. With one of them, the linker keeps every
// exported method of all types, which nearly doubles the size of the programs, and their memory.
func TestProgramsLinkNoPackageThatKeepsUnusedMethods(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-tags", tags}, commands()...)...)
	list.Dir = root
	output, err := list.Output()
	check.Must(t, err)
	for linked := range strings.Lines(string(output)) {
		if linked = strings.TrimSpace(linked); linked == "text/template" || linked == "html/template" {
			t.Errorf("a program links %s; find out why with `go mod why`", linked)
		}
	}
}

func TestBillListsProgramsAndTheirModules(t *testing.T) {
	r := newRelease(Options{Version: "1.2.3", Image: "registry.example/operator", Created: time.Unix(1, 0).UTC()}, t.TempDir())
	t.Chdir(root)
	check.Must(t, r.collectLicenses(t.Context()))
	// One program is used for both, to save time.
	agent := filepath.Join(built(t, "."), "node-agent")
	target, err := r.mkdir(programsOf(runtime.GOARCH))
	check.Must(t, err)
	for _, name := range programs {
		check.Must(t, os.Link(agent, filepath.Join(target, name)))
	}
	descriptor := v1.Descriptor{
		Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}, Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
	}
	bom, err := r.bill(descriptor)
	check.Must(t, err)
	if got, want := bom.Metadata.Timestamp, "1970-01-01T00:00:01Z"; got != want {
		t.Errorf("time is %s, want that of the commit, %s", got, want)
	}
	components := map[string]cdx.Component{bom.Metadata.Component.BOMRef: *bom.Metadata.Component}
	for _, c := range *bom.Components {
		components[c.BOMRef] = c
	}
	has := map[string][]string{}
	for _, d := range *bom.Dependencies {
		for _, ref := range append(*d.Dependencies, d.Ref) {
			if _, ok := components[ref]; !ok {
				t.Errorf("dependency %s is not a component", ref)
			}
			has[components[d.Ref].Name] = append(has[components[d.Ref].Name], components[ref].Name)
		}
	}
	for owner, wanted := range map[string][]string{
		"operator":   {"operator", "node-agent"}, // the image is named like its repository, as its first program is
		"node-agent": {"stdlib", "k8s.io/client-go", "google.golang.org/grpc"},
	} {
		for _, want := range wanted {
			if !slices.Contains(has[owner], want) {
				t.Errorf("%s has %v, want %s among them", owner, has[owner], want)
			}
		}
	}
	for _, c := range *bom.Components {
		if c.Type == cdx.ComponentTypeLibrary && c.Name != "stdlib" && (c.Hashes == nil || len((*c.Hashes)[0].Value) != 64 || !strings.HasPrefix(c.Version, "v")) {
			t.Errorf("%s lacks its checksum or version", c.Name)
		}
	}
	for name, want := range map[string]cdx.LicenseChoice{
		"stdlib":           {License: &cdx.License{ID: "BSD-3-Clause"}},
		"k8s.io/client-go": {License: &cdx.License{ID: "Apache-2.0"}},
		"sigs.k8s.io/json": {Expression: "Apache-2.0 AND BSD-3-Clause"},
	} {
		i := slices.IndexFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == name })
		if diff := cmp.Diff(&cdx.Licenses{want}, (*bom.Components)[i].Licenses); diff != "" {
			t.Errorf("license of %s (-want +got):\n%s", name, diff)
		}
	}
	maps.DeleteFunc(r.licenses, func(m, _ string) bool { return strings.HasPrefix(m, "k8s.io/client-go@") })
	if _, err := r.bill(descriptor); err == nil || !strings.Contains(err.Error(), "k8s.io/client-go@") {
		t.Errorf("error %v, want one that names the module without license", err)
	}
}

func TestBundleDeclaresTheArchitecturesOfTheImage(t *testing.T) {
	var specs []image.Spec
	for _, architecture := range image.Architectures() {
		specs = append(specs, image.Spec{Architecture: architecture})
	}
	index, err := image.BuildIndex(specs...)
	check.Must(t, err)
	manifest, err := index.RawManifest()
	check.Must(t, err)
	// The validator runs docker to get the platforms of an image.
	dir := t.TempDir()
	docker := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = manifest ]; then echo '%s'; fi\n", manifest)
	check.Must(t, os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o700))
	t.Setenv("PATH", dir)
	bundle, err := manifests.GetBundleFromDir(root + "/bundle")
	check.Must(t, err)
	for _, result := range validation.MultipleArchitecturesValidator.Validate(bundle) {
		for _, e := range slices.Concat(result.Errors, result.Warnings) {
			t.Error(e)
		}
	}
}

func TestReadmeListsEveryImage(t *testing.T) {
	r := newRelease(Options{Version: "1.2.3", Image: "registry.example/operator", Architectures: image.Architectures()}, t.TempDir())
	for _, name := range []string{"operator", "bundle"} {
		err := r.buildImage(name, r.Image+"-"+name, "v1.2.3", func(architecture string) (image.Spec, error) {
			return image.Spec{Architecture: architecture}, nil
		})
		check.Must(t, err)
	}
	check.Must(t, r.describe(t.Context()))
	content, err := os.ReadFile(filepath.Join(r.dir, "README.md"))
	check.Must(t, err)
	for _, want := range []string{
		"# listener operator 1.2.3\n",
		"for amd64, arm64, ppc64le, s390x.",
		"| `images/operator-bundle.tar` | `registry.example/operator-bundle:v1.2.3` | `" + r.images["bundle"].Digest + "` |\n",
		"oci-archive:images/operator-operator.tar docker://registry.example/operator-operator:v1.2.3\n",
		"cosign sign --key cosign.key registry.example/operator-operator@" + r.images["operator"].Digest + "\n",
		"--predicate predicate.json registry.example/operator-bundle@" + r.images["bundle"].Digest + "\n",
	} {
		if !bytes.Contains(content, []byte(want)) {
			t.Errorf("README.md lacks %q:\n%s", want, content)
		}
	}
}

func TestReadmeAppliesManifestsLikeMakeDeploy(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "hack/deploy.sh"))
	check.Must(t, err)
	flags := regexp.MustCompile(` apply (.*) -f -`).FindSubmatch(script)
	if flags == nil {
		t.Fatal("hack/deploy.sh applies nothing")
	}
	want := fmt.Sprintf("\nkubectl apply %s -f install.yaml\n", flags[1])
	for _, path := range []string{"README.md.tmpl", filepath.Join(root, "docs/install.md")} {
		if content, err := os.ReadFile(path); err != nil || strings.Count(string(content), "-f install.yaml\n") != 1 || !strings.Contains(string(content), want) {
			t.Errorf("%s does not contain %q: %v", path, want, err)
		}
	}
}

func TestScorecardImageIsNamedAsInTheBundle(t *testing.T) {
	r := newRelease(Options{Version: "1.2.3", Image: "registry.example/operator", Architectures: []string{runtime.GOARCH}}, t.TempDir())
	t.Chdir(root)
	check.Must(t, r.buildScorecardImage(t.Context()))
	p := r.images["scorecard"]
	if got, want := p.Repository+":"+p.Tag, "registry.example/operator-scorecard:v1.2.3"; got != want {
		t.Errorf("image is %s, want %s", got, want)
	}
	if _, err := os.Stat(filepath.Join(r.dir, p.Archive)); err != nil {
		t.Error(err)
	}
}

func TestChecksumsIncludeAllFiles(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, os.Mkdir(filepath.Join(dir, "b"), 0o700))
	for _, name := range []string{"b/c", "a"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	sums, err := checksums(dir)
	check.Must(t, err)
	want := "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n"
	if got := string(sums); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "  b/c\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("checksums:\n%s", got)
	}
}
