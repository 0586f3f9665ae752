package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// docs/release.md explains at these addresses the parameters of the statement, and who is responsible for it.
const (
	repository = "https://" + modulePath
	buildType  = repository + "/blob/main/docs/release.md#provenance-v1"
	builder    = repository + "/blob/main/docs/release.md#make-a-release"
)

// predicateType is the type of the statement's predicate.
const predicateType = "https://slsa.dev/provenance/v1"

// attested are the files of a release that users run or apply.
var attested = []string{"images/", "programs/", "install.yaml", "injection.yaml", "chart/", "plugin/"}

// attest writes the SLSA provenance of images, programs, plugin, chart and manifests as an in-toto statement. The
// publisher of the release signs it.
func (r *release) attest(context.Context) error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	made, err := r.provenance()
	if err != nil {
		return err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: &structpb.Struct{}}
	if err := convert(made, statement.Predicate); err != nil {
		return err
	}
	content, err := encode(statement)
	if err != nil {
		return err
	}
	return r.write("provenance.json", content)
}

// subjects returns the attested files, by their names in SHA256SUMS, and the images, by repository.
func (r *release) subjects() ([]*intoto.ResourceDescriptor, error) {
	sums, err := checksums(r.dir)
	if err != nil {
		return nil, err
	}
	var subjects []*intoto.ResourceDescriptor
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if slices.ContainsFunc(attested, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			subjects = append(subjects, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sum}})
		}
	}
	for _, p := range r.sorted() {
		algorithm, digest, _ := strings.Cut(p.Digest, ":")
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: p.Repository, Digest: map[string]string{algorithm: digest}})
	}
	return subjects, nil
}

// provenance returns the provenance of the release. It does not depend on the machine or on the current time.
func (r *release) provenance() (*provenance.Provenance, error) {
	external, err := structpb.NewStruct(map[string]any{"version": r.Version, "image": r.Image, "created": r.Created.Format(time.RFC3339)})
	if err != nil {
		return nil, fmt.Errorf("encoding the parameters: %w", err)
	}
	source := &intoto.ResourceDescriptor{Name: modulePath, Uri: "git+" + repository}
	if r.Commit != "" {
		source.Digest = map[string]string{"gitCommit": r.Commit}
	}
	dependencies := []*intoto.ResourceDescriptor{source}
	for _, uri := range slices.Sorted(maps.Keys(r.dependencies)) {
		dependencies = append(dependencies, r.dependencies[uri])
	}
	return &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{BuildType: buildType, ExternalParameters: external, ResolvedDependencies: dependencies},
		RunDetails:      &provenance.RunDetails{Builder: &provenance.Builder{Id: builder}},
	}, nil
}

// depend records the dependencies of a program: Go's standard library, which represents the version of Go, and the
// modules with their checksums.
func (r *release) depend(program string) error {
	modules, err := linked(program)
	if err != nil {
		return err
	}
	for _, m := range modules {
		d := &intoto.ResourceDescriptor{Name: m.Path, Uri: packageURL(m)}
		if sum := dirHash(m); sum != "" {
			d.Digest = map[string]string{intoto.AlgorithmDirHash.String(): sum}
		}
		r.dependencies[d.Uri] = d
	}
	return nil
}

// convert converts a message to a structure.
func convert(from proto.Message, to *structpb.Struct) error {
	content, err := protojson.Marshal(from)
	if err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	if err := protojson.Unmarshal(content, to); err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	return nil
}

// encode returns a message as JSON. The same message results in the same bytes, although protojson inserts spaces at
// random.
func encode(m proto.Message) ([]byte, error) {
	content, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the statement: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, content, "", "  "); err != nil {
		return nil, fmt.Errorf("indenting the statement: %w", err)
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}
