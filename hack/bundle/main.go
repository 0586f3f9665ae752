// Command bundle generates the bundle for the Operator Lifecycle Manager, bundle/ and bundle.Dockerfile, from the
// output of `kustomize build config/manifests`, which it reads from standard input. The same input results in the same
// files. It must never contain an RBAC rule, an image or the description of a field: they come from config/, so that
// clusters with and without OLM have the same source.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/blang/semver/v4"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/command"
	"github.com/listener-operator/listener-operator/hack/objects"
)

// csvFile is the path of the ClusterServiceVersion, whatever the name of the package.
const csvFile = "bundle/manifests/listener-operator.clusterserviceversion.yaml"

// Options describe the release that the bundle installs.
type Options struct {
	// Version is the semantic version without a leading v. Empty means the existing bundle's.
	Version string
	// Image is the operator's image. Empty means the existing bundle's.
	Image string
	// Created is the time of the release in RFC 3339. Empty means that in config/.
	Created string
	// Package is the name of the operator's package in a catalogue, with which the name of the ClusterServiceVersion
	// begins. Empty means that in config/.
	Package string
	// Channels are those of the release. The default one is that in config/, or else the last one. None means those in
	// config/.
	Channels []string
	// Output is the directory for bundle/ and bundle.Dockerfile. Empty means the repository.
	Output string
}

func main() {
	var options Options
	flag.StringVar(&options.Version, "version", "", "semantic version of the release (default: that of the existing bundle)")
	flag.StringVar(&options.Image, "image", "", "image of the release (default: that of the existing bundle)")
	flag.StringVar(&options.Created, "created", "", "time of the release, for example 2026-01-31T12:00:00Z (default: that in config/)")
	flag.StringVar(&options.Package, "package", "", "name of the package in a catalogue (default: that in config/)")
	flag.Func("channels", "comma-separated channels of the release (default: those in config/)", func(s string) error {
		options.Channels = strings.Split(s, ",")
		return nil
	})
	flag.StringVar(&options.Output, "output", "", "directory for bundle/ and bundle.Dockerfile (default: the repository)")
	flag.Parse()
	command.Main(func(context.Context) error { return run(options, ".", os.Stdin) })
}

// run generates the bundle from a stream of manifests and the files of the repository in dir.
func run(options Options, dir string, stream io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	defer root.Close()
	if err := options.complete(root); err != nil {
		return err
	}
	m, err := objects.Read(stream)
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	icon, err := root.ReadFile("config/manifests/icon.svg")
	if err != nil {
		return fmt.Errorf("reading the icon: %w", err)
	}
	crds, err := all[apiextensionsv1.CustomResourceDefinition](m, "CustomResourceDefinition")
	if err != nil {
		return fmt.Errorf("reading the CRDs: %w", err)
	}
	csv, err := clusterServiceVersion(m, crds, options, icon)
	if err != nil {
		return fmt.Errorf("generating the ClusterServiceVersion: %w", err)
	}
	roles, err := rolesForUsers(m)
	if err != nil {
		return fmt.Errorf("reading the roles for users: %w", err)
	}
	files, err := render(root, options, csv, crds, roles)
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

// complete sets defaults from the bundle in root, and validates the options.
func (o *Options) complete(root *os.Root) error {
	var existing operatorsv1alpha1.ClusterServiceVersion
	data, err := root.ReadFile(csvFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the existing bundle: %w", err)
	}
	if err := yaml.Unmarshal(data, &existing); err != nil {
		return fmt.Errorf("parsing %s: %w", csvFile, err)
	}
	if o.Version == "" && len(data) > 0 {
		o.Version = existing.Spec.Version.String()
	}
	if o.Image == "" {
		o.Image = existing.Annotations["containerImage"]
	}
	if _, err := semver.Parse(o.Version); err != nil {
		return fmt.Errorf("version %q is not a semantic version like 1.2.3: %w", o.Version, err)
	}
	if !strings.Contains(o.Image, "/") {
		return fmt.Errorf("image %q has no registry", o.Image)
	}
	return o.completePackage(root)
}

// completePackage sets the default of the package's name, and validates it and the channels.
func (o *Options) completePackage(root *os.Root) error {
	if o.Package == "" {
		var source struct {
			Annotations map[string]string `json:"annotations"`
		}
		data, err := root.ReadFile(copied[annotationsFile])
		if err != nil {
			return fmt.Errorf("reading the annotations: %w", err)
		}
		if err := yaml.Unmarshal(data, &source); err != nil {
			return fmt.Errorf("parsing %s: %w", copied[annotationsFile], err)
		}
		o.Package = source.Annotations[annotationPackage]
	}
	for what, names := range map[string][]string{"package": {o.Package}, "channel": o.Channels} {
		for _, name := range names {
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				return fmt.Errorf("%s %q: %s", what, name, strings.Join(problems, ", "))
			}
		}
	}
	return nil
}
