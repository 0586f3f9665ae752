// Command catalog generates a file-based catalogue for the Operator Lifecycle Manager from a template, which lists the
// published releases, and from the bundles of new releases; and what new releases add to the repositories of public
// catalogues. The same input results in the same files. It must never change the content of a release, which is defined
// by its bundle.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/listener-operator/listener-operator/hack/command"
)

// Options describe the catalogue.
type Options struct {
	// Template is the file with the published releases, an olm.template.basic. Directories beside it have the ci.yaml
	// of public catalogues.
	Template string
	// Bundles are the added releases, the oldest first.
	Bundles []Source
	// Channels are the channels of the added releases. Empty means those in the annotations of each bundle.
	Channels []string
	// Output is the directory of the catalogue, which is replaced.
	Output string
}

// Source is the bundle of a release that is not published yet.
type Source struct {
	// Dir is the directory with manifests/ and metadata/.
	Dir string
	// Image is the bundle's image, which does not have to exist yet. Empty means the name and tag that `make release`
	// uses.
	Image string
}

// Renderer returns the entries of a bundle in a catalogue, in YAML. The bundle is an image or, if image is not empty,
// the directory of that future image.
type Renderer func(ctx context.Context, bundle, image string) ([]byte, error)

func main() {
	var options Options
	var opm string
	flag.StringVar(&options.Template, "template", "config/catalog/template.yaml", "file with the published releases")
	flag.StringVar(&options.Output, "output", "dist/catalog", "directory of the catalogue, which is replaced")
	flag.StringVar(&opm, "opm", "opm", "path of the program opm")
	flag.Func("bundle", "`DIR[=IMAGE]` of a bundle to add (repeatable, oldest first)", func(s string) error {
		dir, image, _ := strings.Cut(s, "=")
		options.Bundles = append(options.Bundles, Source{Dir: dir, Image: image})
		return nil
	})
	flag.Func("channels", "comma-separated channels of the added bundles (default: those in their annotations)", func(s string) error {
		options.Channels = strings.Split(s, ",")
		return nil
	})
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		if err := run(ctx, options, renderWith(opm)); err != nil {
			return err
		}
		_, err := command.Run(ctx, opm, "validate", options.Output+"/"+configs)
		return err
	})
}

// run generates the catalogue.
func run(ctx context.Context, o Options, render Renderer) error {
	catalogue, err := readTemplate(o.Template)
	if err != nil {
		return err
	}
	dirs, files := map[string]string{}, map[string]string{"catalog.Dockerfile": dockerfile}
	for _, source := range o.Bundles {
		b, err := readBundle(source)
		if err != nil {
			return err
		}
		if len(o.Channels) > 0 {
			b.channels = o.Channels
		}
		dirs[b.image] = source.Dir
		if catalogue.has(b.name) {
			fmt.Fprintf(os.Stderr, "%s already lists %s, which is not changed\n", o.Template, b.name)
			continue
		}
		if err := catalogue.add(b); err != nil {
			return fmt.Errorf("adding %s to %s: %w", b.name, o.Template, err)
		}
		submission, err := catalogue.submission(o.Template, source.Dir, b)
		if err != nil {
			return err
		}
		maps.Copy(files, submission)
	}
	if files[configs+"/"+catalogue.name()+"/catalog.yaml"], err = catalogue.render(ctx, dirs, render); err != nil {
		return err
	}
	if files["template.yaml"], err = catalogue.template(); err != nil {
		return err
	}
	return write(o.Output, files)
}

// renderWith returns a Renderer that runs the program opm.
func renderWith(opm string) Renderer {
	return func(ctx context.Context, bundle, image string) ([]byte, error) {
		args := []string{"render", "--output=yaml", "--migrate-level=bundle-object-to-csv-metadata", bundle}
		if image != "" {
			args = append(args, "--alpha-image-ref-template="+image)
		}
		return command.Run(ctx, opm, args...)
	}
}
