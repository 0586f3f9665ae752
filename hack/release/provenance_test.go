package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// testRelease returns a small release of a commit, with all attested files.
func testRelease(t *testing.T, commit string) *release {
	t.Helper()
	r := newRelease(Options{
		Version: "1.2.3", Image: "registry.example/operator", Architectures: image.Architectures(), Created: time.Unix(1, 0).UTC(), Commit: commit,
	}, t.TempDir())
	for _, name := range []string{"programs/linux-amd64/operator", "install.yaml", "bundle/manifests/a.yaml"} {
		if _, err := r.mkdir(filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
		check.Must(t, r.write(name, []byte(name)))
	}
	for name, repository := range map[string]string{"bundle": r.Image + "-bundle", "operator": r.Image} {
		if err := r.buildImage(name, repository, "v1.2.3", func(architecture string) (image.Spec, error) {
			return image.Spec{Architecture: architecture}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// statement returns the statement of a release and its predicate, after it validated both.
func statement(t *testing.T, r *release) (*intoto.Statement, *provenance.Provenance) {
	t.Helper()
	check.Must(t, r.attest(t.Context()))
	content, err := os.ReadFile(filepath.Join(r.dir, "provenance.json"))
	check.Must(t, err)
	s, p := &intoto.Statement{}, &provenance.Provenance{}
	// Both reject unknown fields.
	check.Must(t, protojson.Unmarshal(content, s))
	inner, err := json.Marshal(s.Predicate.AsMap())
	check.Must(t, err)
	check.Must(t, protojson.Unmarshal(inner, p))
	for _, err := range []error{s.Validate(), p.Validate()} {
		if err != nil {
			t.Error(err)
		}
	}
	return s, p
}

func TestProvenanceListsSubjects(t *testing.T) {
	r := testRelease(t, someCommit)
	s, _ := statement(t, r)
	if s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("predicate type is %s", s.PredicateType)
	}
	sums, err := checksums(r.dir)
	check.Must(t, err)
	want := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		if sum, name, _ := strings.Cut(strings.TrimSpace(line), "  "); name != "provenance.json" && !strings.HasPrefix(name, "bundle/") {
			want[name] = sum
		}
	}
	if len(want) != 4 { // a program, install.yaml, and two archives
		t.Errorf("the release has %v", slices.Sorted(maps.Keys(want)))
	}
	for _, p := range r.images {
		want[p.Repository] = strings.TrimPrefix(p.Digest, "sha256:")
	}
	got := map[string]string{}
	for _, subject := range s.Subject {
		got[subject.Name] = subject.Digest["sha256"]
	}
	check.Equal(t, "subjects", want, got)
}

func TestProvenanceListsDependencies(t *testing.T) {
	r := testRelease(t, someCommit)
	program := filepath.Join(built(t, root), "node-agent")
	check.Must(t, r.depend(program))
	_, p := statement(t, r)
	if diff := cmp.Diff(map[string]any{"version": "1.2.3", "image": "registry.example/operator", "created": "1970-01-01T00:00:01Z"},
		p.BuildDefinition.ExternalParameters.AsMap()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	got := map[string]map[string]string{}
	for _, d := range p.BuildDefinition.ResolvedDependencies {
		got[d.Uri] = d.Digest
	}
	source := "git+https://github.com/listener-operator/listener-operator"
	if got[source]["gitCommit"] != someCommit {
		t.Errorf("the source is %v, want the commit %s", got[source], someCommit)
	}
	modules, err := linked(program)
	check.Must(t, err)
	if want := len(modules) + 1; len(got) != want || want < 20 {
		t.Errorf("%d dependencies, want %d modules and the source", len(got), len(modules))
	}
	goVersion := "pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go")
	for uri, digest := range got {
		if uri != source && uri != goVersion && len(digest["dirHash"]) != 64 {
			t.Errorf("%s lacks its checksum", uri)
		}
	}
	if _, ok := got[goVersion]; !ok {
		t.Errorf("the version of Go is missing")
	}
}

func TestProvenanceIsReproducible(t *testing.T) {
	var statements [2][]byte
	for i := range statements {
		r := testRelease(t, someCommit)
		check.Must(t, r.depend(filepath.Join(built(t, root), "node-agent")))
		check.Must(t, r.attest(t.Context()))
		var err error
		if statements[i], err = os.ReadFile(filepath.Join(r.dir, "provenance.json")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(statements[0], statements[1]) {
		t.Error("the statements differ")
	}
}

func TestEncodingIsReproducible(t *testing.T) {
	content, err := encode(&intoto.Statement{Type: "a", Subject: []*intoto.ResourceDescriptor{{Name: "b", Digest: map[string]string{"z": "1", "c": "2"}}}})
	check.Must(t, err)
	want := `{
  "_type": "a",
  "subject": [
    {
      "name": "b",
      "digest": {
        "c": "2",
        "z": "1"
      }
    }
  ]
}
`
	if diff := cmp.Diff(want, string(content)); diff != "" {
		t.Error(diff)
	}
}

func TestProvenanceNamesNoCommitWithUncommittedChanges(t *testing.T) {
	_, p := statement(t, testRelease(t, ""))
	if source := p.BuildDefinition.ResolvedDependencies[0]; len(source.Digest) > 0 {
		t.Errorf("the source is %v", source)
	}

	t.Chdir(t.TempDir())
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...).Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, content string) {
		t.Helper()
		check.Must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		check.Must(t, os.WriteFile(name, []byte(content), 0o600))
	}
	expect := func(want string) {
		t.Helper()
		if got, err := commit(t.Context()); err != nil || got != want {
			t.Errorf("commit is %q, want %q: %v", got, want, err)
		}
	}
	if _, err := commit(t.Context()); err == nil || !strings.Contains(err.Error(), "SOURCE_COMMIT") {
		t.Errorf("error %v, want one that names SOURCE_COMMIT", err)
	}
	git("init", "--quiet")
	write("main.go", "package main")
	write("test/bundle/released/kind.yaml", "a")
	git("add", ".")
	git("commit", "--quiet", "--message", "Begin")
	expect(git("rev-parse", "HEAD"))
	// A release writes this.
	write("test/bundle/released/kind.yaml", "b")
	expect(git("rev-parse", "HEAD"))
	write("other.go", "package main")
	expect("")
}
