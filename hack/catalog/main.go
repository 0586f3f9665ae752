// The command catalog makes a file-based catalogue for the Operator Lifecycle Manager: the releases that a template
// lists, and bundles that are added to it. The same input gives the same files. It must never decide what a release is
// made of: that is in its bundle.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/listener-operator/listener-operator/hack/command"
)

// Options say what goes into a catalogue, and where it goes.
type Options struct {
	// Template is the file with the releases that are published, an olm.template.basic.
	Template string
	// Bundles are added to them, the oldest first.
	Bundles []Source
	// Channels are those that the bundles enter; empty means those that each bundle names.
	Channels []string
	// Output is the directory for the catalogue. It is replaced.
	Output string
}

// Source is a bundle that is at hand.
type Source struct {
	// Dir is the directory with its manifests/ and metadata/.
	Dir string
	// Image is the bundle's image, which need not exist yet; empty means the name and tag that releases give it.
	Image string
}

// Renderer returns the catalogue's entries for a bundle in YAML. The bundle is an image or, if image is not empty, a
// directory that will become that image.
type Renderer func(ctx context.Context, bundle, image string) ([]byte, error)

func main() {
	var options Options
	var opm string
	flag.StringVar(&options.Template, "template", "config/catalog/template.yaml", "the releases that are published")
	flag.StringVar(&options.Output, "output", "dist/catalog", "the catalogue's directory, which is replaced")
	flag.StringVar(&opm, "opm", "opm", "the program opm")
	flag.Func("bundle", "DIR or DIR=IMAGE: a bundle to add (repeatable, oldest first)", func(s string) error {
		dir, image, _ := strings.Cut(s, "=")
		options.Bundles = append(options.Bundles, Source{Dir: dir, Image: image})
		return nil
	})
	flag.Func("channels", "the channels that the bundles enter, separated by commas, by default those that they name", func(s string) error {
		options.Channels = strings.Split(s, ",")
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := os.Chdir("..") // `go -C hack run` starts it in hack/, and paths are relative to the repository's root.
	if err == nil {
		err = run(ctx, options, renderWith(opm))
	}
	if err == nil {
		_, err = command.Run(ctx, opm, "validate", options.Output+"/"+configs)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run makes the catalogue.
func run(ctx context.Context, o Options, render Renderer) error {
	catalogue, err := readTemplate(o.Template)
	if err != nil {
		return err
	}
	dirs := map[string]string{}
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
			fmt.Fprintf(os.Stderr, "%s lists %s already, which stays as it is\n", o.Template, b.name)
			continue
		}
		if err := catalogue.add(b); err != nil {
			return fmt.Errorf("adding %s to %s: %w", b.name, o.Template, err)
		}
	}
	content, err := catalogue.render(ctx, dirs, render)
	if err != nil {
		return err
	}
	template, err := catalogue.template()
	if err != nil {
		return err
	}
	return write(o.Output, map[string]string{
		configs + "/" + catalogue.name() + "/catalog.yaml": content,
		"template.yaml":      template,
		"catalog.Dockerfile": dockerfile,
	})
}

// renderWith renders by the program opm.
func renderWith(opm string) Renderer {
	return func(ctx context.Context, bundle, image string) ([]byte, error) {
		args := []string{"render", "--output=yaml", "--migrate-level=bundle-object-to-csv-metadata", bundle}
		if image != "" {
			args = append(args, "--alpha-image-ref-template="+image)
		}
		return command.Run(ctx, opm, args...)
	}
}
