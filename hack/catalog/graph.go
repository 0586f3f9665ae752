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

// Schemas of the entries of a catalogue.
const (
	schemaTemplate = "olm.template.basic"
	schemaPackage  = "olm.package"
	schemaChannel  = "olm.channel"
	schemaBundle   = "olm.bundle"
)

// entry is a document of a catalogue. Unknown fields and schemas are preserved.
type entry = map[string]any

// graph is the content of a template: a package, its channels with their releases, bundles, and other entries.
type graph struct {
	Schema  string  `json:"schema"`
	Entries []entry `json:"entries"`
}

// bundle is the bundle of a release.
type bundle struct {
	pkg, name, image string
	version          semver.Version
	channels         []string
	// description and icon are the package's.
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
		return nil, fmt.Errorf("%s: schema is %q, want %s", path, g.Schema, schemaTemplate)
	}
	if g.name() == "" {
		return nil, fmt.Errorf("%s: no %s with a name", path, schemaPackage)
	}
	return g, nil
}

// readBundle reads the directory of a bundle.
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

// of returns the entries with the schema.
func (g *graph) of(schema string) []entry {
	return slices.DeleteFunc(slices.Clone(g.Entries), func(e entry) bool { return e["schema"] != schema })
}

// name returns the name of the package.
func (g *graph) name() string {
	for _, e := range g.of(schemaPackage) {
		name, _ := e["name"].(string)
		return name
	}
	return ""
}

// has reports whether a channel contains the release.
func (g *graph) has(name string) bool {
	return slices.ContainsFunc(g.of(schemaChannel), func(channel entry) bool {
		return slices.Contains(releases(channel), name)
	})
}

// releases returns the names of the releases in a channel.
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

// add makes a release the head of its channels. In each, it replaces the newest release, and all older ones can be
// upgraded to it directly.
func (g *graph) add(b *bundle) error {
	if b.pkg != g.name() {
		return fmt.Errorf("package is %q, want %q", b.pkg, g.name())
	}
	if len(b.channels) == 0 || slices.Contains(b.channels, "") {
		return errors.New("no channel is given")
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

// channel returns the channel with the name, and adds it if it does not exist.
func (g *graph) channel(name string) entry {
	for _, e := range g.of(schemaChannel) {
		if e["name"] == name {
			return e
		}
	}
	channel := entry{"schema": schemaChannel, "package": g.name(), "name": name}
	// Channels are listed before bundles.
	i := slices.IndexFunc(g.Entries, func(e entry) bool { return e["schema"] == schemaBundle })
	if i < 0 {
		i = len(g.Entries)
	}
	g.Entries = slices.Insert(g.Entries, i, channel)
	return channel
}

// head makes the release the head of a channel.
func (b *bundle) head(channel entry) error {
	var earlier []semver.Version
	for _, name := range releases(channel) {
		version, err := semver.Parse(strings.TrimPrefix(name, b.pkg+".v"))
		if err != nil {
			return fmt.Errorf("the name of release %q is not like %s.v1.2.3: %w", name, b.pkg, err)
		}
		if version.GTE(b.version) {
			return fmt.Errorf("%s exists and is not older", name)
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

// render returns the catalogue. A bundle is read from the directory of its image in dirs, or else pulled.
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

// template returns the template with the added releases.
func (g *graph) template() (string, error) {
	data, err := yaml.Marshal(g)
	if err != nil {
		return "", fmt.Errorf("encoding the template: %w", err)
	}
	return string(data), nil
}
