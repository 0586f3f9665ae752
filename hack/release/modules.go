package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// writeBills writes the software bill of materials of the operator's image for each architecture, in CycloneDX's
// format.
func (r *release) writeBills(context.Context) error {
	manifest, err := r.images["operator"].index.IndexManifest()
	if err != nil {
		return fmt.Errorf("reading the image: %w", err)
	}
	for _, m := range manifest.Manifests {
		bom, err := r.bill(m)
		if err != nil {
			return fmt.Errorf("for %s: %w", m.Platform.Architecture, err)
		}
		if err := r.writeBill("linux-"+m.Platform.Architecture, bom); err != nil {
			return err
		}
	}
	return nil
}

// writeBill writes a bill of materials.
func (r *release) writeBill(name string, bom *cdx.BOM) error {
	if _, err := r.mkdir("sbom"); err != nil {
		return err
	}
	var content bytes.Buffer
	if err := cdx.NewBOMEncoder(&content, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("encoding the bill of materials: %w", err)
	}
	return r.write("sbom/"+name+".cdx.json", content.Bytes())
}

// bill returns the bill of materials of the image for one architecture.
func (r *release) bill(image v1.Descriptor) (*cdx.BOM, error) {
	architecture := image.Platform.Architecture
	name := path.Base(r.Image)
	ref := fmt.Sprintf("pkg:oci/%s@%s?arch=%s&repository_url=%s", name, image.Digest, architecture, r.Image)
	var paths []string
	for _, program := range programs {
		paths = append(paths, filepath.Join(r.dir, programsOf(architecture), program))
	}
	return r.billOf(&cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeContainer, Name: name, Version: r.Version, PackageURL: ref}, paths...)
}

// billOf returns the bill of materials of what contains the programs with these paths.
func (r *release) billOf(whole *cdx.Component, paths ...string) (*cdx.BOM, error) {
	ref := whole.BOMRef
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.Created.Format(time.RFC3339), Component: whole}
	components := map[string]cdx.Component{}
	dependencies := map[string][]string{ref: nil}
	for _, program := range paths {
		app, modules, err := r.inspect(program)
		if err != nil {
			return nil, err
		}
		components[app.BOMRef] = app
		dependencies[ref] = append(dependencies[ref], app.BOMRef)
		dependencies[app.BOMRef] = nil
		for _, m := range modules {
			components[m.BOMRef] = m
			dependencies[app.BOMRef] = append(dependencies[app.BOMRef], m.BOMRef)
		}
	}
	all, graph := []cdx.Component{}, []cdx.Dependency{}
	for _, c := range components {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	for from, to := range dependencies {
		slices.Sort(to)
		graph = append(graph, cdx.Dependency{Ref: from, Dependencies: &to})
	}
	slices.SortFunc(graph, func(a, b cdx.Dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	bom.Components, bom.Dependencies = &all, &graph
	return bom, nil
}

// inspect returns the components of a program and of the modules that are linked into it. The first module is Go's
// standard library.
func (r *release) inspect(program string) (cdx.Component, []cdx.Component, error) {
	modules, err := linked(program)
	if err != nil {
		return cdx.Component{}, nil, err
	}
	sum, err := checksum(program)
	if err != nil {
		return cdx.Component{}, nil, err
	}
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	app := cdx.Component{
		BOMRef: "pkg:golang/" + modulePath + "@v" + r.Version + "#cmd/" + name, Type: cdx.ComponentTypeApplication, Name: name, Version: r.Version,
		PackageURL: "pkg:golang/" + modulePath + "@v" + r.Version + "#cmd/" + name,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
	var components []cdx.Component
	for _, m := range modules {
		c, err := r.module(m)
		if err != nil {
			return cdx.Component{}, nil, fmt.Errorf("%s: %w", program, err)
		}
		components = append(components, c)
	}
	return app, components, nil
}

// module returns the component of a module.
func (r *release) module(m *debug.Module) (cdx.Component, error) {
	license, ok := r.licenses[m.Path+"@"+m.Version]
	if !ok {
		return cdx.Component{}, fmt.Errorf("no license was found of the linked module %s@%s", m.Path, m.Version)
	}
	ref := packageURL(m)
	c := cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: ref, Licenses: &cdx.Licenses{choice(license)},
	}
	if sum := dirHash(m); sum != "" {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}
	}
	return c, nil
}

// linked returns the modules that are linked into a program, without this repository's. The first is Go's standard
// library, which has no checksum.
func linked(program string) ([]*debug.Module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("reading the build information of %s: %w", program, err)
	}
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Path == modulePath { // the scorecard tests import it
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m)
	}
	return modules, nil
}

// packageURL returns the package URL of a module (https://github.com/package-url/purl-spec).
func packageURL(m *debug.Module) string {
	return "pkg:golang/" + strings.ToLower(m.Path) + "@" + m.Version
}

// dirHash returns the checksum of a module in go.sum, in hexadecimal digits, or an empty string if there is none.
func dirHash(m *debug.Module) string {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return ""
	}
	return hex.EncodeToString(raw)
}

// choice returns the CycloneDX form of an SPDX expression. A single license is given by its identifier.
func choice(expression string) cdx.LicenseChoice {
	if strings.Contains(expression, " ") {
		return cdx.LicenseChoice{Expression: expression}
	}
	return cdx.LicenseChoice{License: &cdx.License{ID: expression}}
}

// checksum returns the SHA-256 of a file in hexadecimal digits.
func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("opening a file: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
