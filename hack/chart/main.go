// Command chart generates the Helm chart dist/listener-operator-<version>.tgz from the output of `kustomize build
// config/default`, which it reads from standard input, and the files in config/chart. The same input results in the
// same archive. With its default values, the chart installs what the manifests have; it must never contain an object or
// a permission that is not in config/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/blang/semver/v4"

	"github.com/listener-operator/listener-operator/hack/archive"
	"github.com/listener-operator/listener-operator/hack/command"
	"github.com/listener-operator/listener-operator/hack/objects"
)

// chart is the name of the chart, and of the namespace and the Deployment in config/.
const chart = "listener-operator"

// Options describe the release that the chart installs.
type Options struct {
	// Version is the semantic version without a leading v.
	Version string
	// Image is the operator's image.
	Image string
	// Output is the directory for the archive.
	Output string
}

func main() {
	var o Options
	flag.StringVar(&o.Version, "version", "", "semantic version of the release")
	flag.StringVar(&o.Image, "image", "", "image of the release")
	flag.StringVar(&o.Output, "output", "dist", "directory for the archive")
	flag.Parse()
	command.Main(func(context.Context) error { return run(o, os.Stdin) })
}

// run generates the chart from a stream of manifests and the files of the repository in the working directory.
func run(o Options, stream io.Reader) error {
	if _, err := semver.Parse(o.Version); err != nil {
		return fmt.Errorf("version %q is not a semantic version like 1.2.3: %w", o.Version, err)
	}
	if o.Image == "" {
		return errors.New("-image is required")
	}
	manifests, err := objects.Read(stream)
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	files, err := static(o)
	if err != nil {
		return err
	}
	templates, err := render(manifests)
	if err != nil {
		return err
	}
	schema, err := valuesSchema(manifests)
	if err != nil {
		return err
	}
	files = append(append(files, templates...), schema)
	for i := range files {
		files[i].Name, files[i].Mode = chart+"/"+files[i].Name, 0o644
	}
	// Helm finds the chart's metadata sooner if they are first.
	slices.SortFunc(files, func(a, b archive.File) int { return compareNames(a.Name, b.Name) })
	packed, err := archive.Pack(files)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(o.Output, chart+"-"+o.Version+".tgz"), packed, 0o644); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	return nil
}
