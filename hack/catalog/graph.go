package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/manifests"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/image"
)

// Schemas of a catalogue's entries.
const (
	schemaTemplate = "olm.template.basic"
	schemaPackage  = "olm.package"
	schemaChannel  = "olm.channel"
	schemaBundle   = "olm.bundle"
)

// entry is a document of a catalogue. Fields and schemas that are not known here are kept.
type entry = map[string]any

// graph is a template: a package, its channels with their releases, the bundles of those, and whatever else is said
// about them.
type graph struct {
	Schema  string  `json:"schema"`
	Entries []entry `json:"entries"`
}

// bundle is a release.
type bundle struct {
	pkg, name, image string
	version          semver.Version
	channels         []string
	// description and icon present the package.
	description string
	icon        map[string]any
}

func readTemplate(path string) (*graph, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the template: %w", err)
	}
	g := &graph{}
	if err := yaml.UnmarshalStrict(data, g); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", path, err)
	}
	if g.Schema != schemaTemplate {
		return nil, fmt.Errorf("%s has the schema %q, want %s", path, g.Schema, schemaTemplate)
	}
	if g.name() == "" {
		return nil, fmt.Errorf("%s has no %s with a name", path, schemaPackage)
	}
	return g, nil
}

// readBundle reads a bundle as catalogues do.
func readBundle(s Source) (*bundle, error) {
	loaded, err := manifests.GetBundleFromDir(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("reading the bundle in %s: %w", s.Dir, err)
	}
	if loaded.CSV == nil {
		return nil, fmt.Errorf("the bundle in %s has no ClusterServiceVersion", s.Dir)
	}
	b := &bundle{
		pkg: loaded.Package, name: loaded.CSV.Name, image: s.Image, version: loaded.CSV.Spec.Version.Version,
		channels: loaded.Channels, description: loaded.CSV.Spec.Description,
	}
	if b.image == "" {
		b.image = image.Beside(loaded.CSV.Annotations["containerImage"], "bundle", b.version.String())
	}
	for _, icon := range loaded.CSV.Spec.Icon {
		if _, err := base64.StdEncoding.DecodeString(icon.Data); err != nil {
			return nil, fmt.Errorf("decoding the icon of %s: %w", b.name, err)
		}
		b.icon = map[string]any{"base64data": icon.Data, "mediatype": icon.MediaType}
	}
	return b, nil
}

// of returns the entries of a schema.
func (g *graph) of(schema string) []entry {
	return slices.DeleteFunc(slices.Clone(g.Entries), func(e entry) bool { return e["schema"] != schema })
}

// name returns the package's name.
func (g *graph) name() string {
	for _, e := range g.of(schemaPackage) {
		name, _ := e["name"].(string)
		return name
	}
	return ""
}

// has tells whether a channel has the release.
func (g *graph) has(name string) bool {
	return slices.ContainsFunc(g.of(schemaChannel), func(channel entry) bool {
		return slices.Contains(releases(channel), name)
	})
}

// releases returns the names of a channel's releases.
func releases(channel entry) []string {
	var names []string
	entries, _ := channel["entries"].([]any)
	for _, e := range entries {
		fields, _ := e.(entry)
		name, _ := fields["name"].(string)
		names = append(names, name)
	}
	return names
}

// add makes a release the head of its channels. It follows the last one in each, and every earlier one may skip to it.
func (g *graph) add(b *bundle) error {
	if b.pkg != g.name() {
		return fmt.Errorf("it belongs to the package %q, want %q", b.pkg, g.name())
	}
	if len(b.channels) == 0 || slices.Contains(b.channels, "") {
		return errors.New("it names no channel")
	}
	pkg := g.of(schemaPackage)[0]
	pkg["description"], pkg["icon"] = b.description, b.icon
	for _, name := range b.channels {
		if err := b.head(g.channel(name)); err != nil {
			return fmt.Errorf("channel %s: %w", name, err)
		}
	}
	g.Entries = append(g.Entries, entry{"schema": schemaBundle, "image": b.image})
	return nil
}

// channel returns the channel of a name, which it makes if there is none.
func (g *graph) channel(name string) entry {
	for _, e := range g.of(schemaChannel) {
		if e["name"] == name {
			return e
		}
	}
	channel := entry{"schema": schemaChannel, "package": g.name(), "name": name}
	// Channels come before bundles, for the reader.
	i := slices.IndexFunc(g.Entries, func(e entry) bool { return e["schema"] == schemaBundle })
	if i < 0 {
		i = len(g.Entries)
	}
	g.Entries = slices.Insert(g.Entries, i, channel)
	return channel
}

// head puts the release at the head of a channel.
func (b *bundle) head(channel entry) error {
	var earlier []semver.Version
	for _, name := range releases(channel) {
		version, err := semver.Parse(strings.TrimPrefix(name, b.pkg+".v"))
		if err != nil {
			return fmt.Errorf("the release %q is not named like %s.v1.2.3: %w", name, b.pkg, err)
		}
		if version.GTE(b.version) {
			return fmt.Errorf("%s is there, which is not older", name)
		}
		earlier = append(earlier, version)
	}
	release := entry{"name": b.name}
	if len(earlier) > 0 {
		slices.SortFunc(earlier, semver.Version.Compare)
		release["replaces"] = fmt.Sprintf("%s.v%s", b.pkg, earlier[len(earlier)-1])
		release["skipRange"] = fmt.Sprintf(">=%s <%s", earlier[0], b.version)
	}
	entries, _ := channel["entries"].([]any)
	channel["entries"] = append(entries, any(release))
	return nil
}

// render returns the catalogue. Bundles whose image has a directory in dirs are read from there, all others are pulled.
func (g *graph) render(ctx context.Context, dirs map[string]string, render Renderer) (string, error) {
	var b strings.Builder
	for _, e := range g.Entries {
		document, err := yaml.Marshal(e)
		if err != nil {
			return "", fmt.Errorf("encoding the catalogue: %w", err)
		}
		if e["schema"] == schemaBundle {
			image, _ := e["image"].(string)
			source, local := dirs[image]
			if local {
				document, err = render(ctx, source, image)
			} else {
				document, err = render(ctx, image, "")
			}
			if err != nil {
				return "", fmt.Errorf("rendering the bundle %s: %w", image, err)
			}
		}
		b.WriteString("---\n" + strings.TrimPrefix(string(document), "---\n"))
	}
	return b.String(), nil
}

// template returns the template with what was added.
func (g *graph) template() (string, error) {
	data, err := yaml.Marshal(g)
	if err != nil {
		return "", fmt.Errorf("encoding the template: %w", err)
	}
	return string(data), nil
}
