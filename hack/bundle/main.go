// The command bundle generates the bundle for the Operator Lifecycle Manager from what `kustomize build
// config/manifests` prints, which it reads from its standard input: bundle/ and bundle.Dockerfile in the current
// directory or another one. The same input gives the same files. It must never hold a right, an image or a field
// description of its own: those come from config/, so that there is one source for clusters with and without the
// manager.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/blang/semver/v4"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"sigs.k8s.io/yaml"
)

// packageName is the name of the operator's package in a catalogue.
const packageName = "listener-operator"

// csvFile is where the ClusterServiceVersion goes.
const csvFile = "bundle/manifests/" + packageName + ".clusterserviceversion.yaml"

// Options say which release a bundle installs.
type Options struct {
	// Version is the semantic version without a leading v; empty means that of the bundle that is there.
	Version string
	// Image is the operator's image; empty means that of the bundle that is there.
	Image string
	// Created is when the release was made, as RFC 3339 says; empty means what config/ says.
	Created string
	// Output is where bundle/ and bundle.Dockerfile go; empty means the checkout.
	Output string
}

func main() {
	var options Options
	flag.StringVar(&options.Version, "version", "", "semantic version of the release, by default that of the bundle that is there")
	flag.StringVar(&options.Image, "image", "", "image of the release, by default that of the bundle that is there")
	flag.StringVar(&options.Created, "created", "", "when the release was made, like 2026-01-31T12:00:00Z, by default what config/ says")
	flag.StringVar(&options.Output, "output", "", "directory for bundle/ and bundle.Dockerfile, by default the current one")
	flag.Parse()
	err := os.Chdir("..") // `go -C hack run` starts it in hack/, and paths are relative to the repository's root.
	if err == nil {
		err = run(options, ".", os.Stdin)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run generates the bundle from the objects in manifests and the files of the checkout in dir.
func run(options Options, dir string, manifests io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	defer root.Close()
	if err := options.complete(root); err != nil {
		return err
	}
	parts, err := read(manifests)
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	icon, err := root.ReadFile("config/manifests/icon.svg")
	if err != nil {
		return fmt.Errorf("reading the icon: %w", err)
	}
	csv, err := clusterServiceVersion(parts, options, icon)
	if err != nil {
		return fmt.Errorf("generating the ClusterServiceVersion: %w", err)
	}
	files, err := render(root, options, csv, parts.crds)
	if err != nil {
		return err
	}
	output, err := os.OpenRoot(cmp.Or(options.Output, dir))
	if err != nil {
		return fmt.Errorf("opening the output: %w", err)
	}
	defer output.Close()
	return write(output, files)
}

// complete takes what is not given from the bundle in root, and checks it.
func (o *Options) complete(root *os.Root) error {
	var last operatorsv1alpha1.ClusterServiceVersion
	data, err := root.ReadFile(csvFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the last bundle: %w", err)
	}
	if err := yaml.Unmarshal(data, &last); err != nil {
		return fmt.Errorf("parsing %s: %w", csvFile, err)
	}
	if o.Version == "" && len(data) > 0 {
		o.Version = last.Spec.Version.String()
	}
	if o.Image == "" {
		o.Image = last.Annotations["containerImage"]
	}
	if _, err := semver.Parse(o.Version); err != nil {
		return fmt.Errorf("the version %q is not a semantic version like 1.2.3: %w", o.Version, err)
	}
	if !strings.Contains(o.Image, "/") {
		return fmt.Errorf("the image %q names no registry", o.Image)
	}
	return nil
}
