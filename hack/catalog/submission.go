package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// ci is the configuration of an operator in the repository of a public catalogue, ci.yaml.
type ci struct {
	Reviewers     []string `json:"reviewers"`
	CertProjectID string   `json:"cert_project_id"`
	UpdateGraph   string   `json:"updateGraph"`
	FBC           struct {
		Enabled                  bool   `json:"enabled"`
		VersionPromotionStrategy string `json:"version_promotion_strategy"`
		CatalogMapping           []struct {
			TemplateName string   `json:"template_name"`
			Type         string   `json:"type"`
			CatalogNames []string `json:"catalog_names"`
		} `json:"catalog_mapping"`
	} `json:"fbc"`
}

// addition is how the pipelines add a release to channels of a template, an entry of release-config.yaml.
type addition struct {
	TemplateName   string   `json:"template_name"`
	Channels       []string `json:"channels"`
	DefaultChannel string   `json:"defaultChannel,omitempty"`
	Replaces       string   `json:"replaces,omitempty"`
	SkipRange      string   `json:"skipRange,omitempty"`
}

// submission returns the files that a release adds to the repositories of public catalogues: those with a ci.yaml in a
// directory beside the template. They contain no catalogue, because the pipelines build the bundle's image themselves.
func (g *graph) submission(template, dir string, b *bundle) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(template), "*", "ci.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the configurations of pipelines: %w", err)
	}
	files := map[string]string{}
	for _, p := range paths {
		content, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("reading the configuration of a pipeline: %w", err)
		}
		var c ci
		if err := yaml.UnmarshalStrict(content, &c); err != nil {
			return nil, fmt.Errorf("parsing %s: %w", p, err)
		}
		operator := path.Join("submission", filepath.Base(filepath.Dir(p)), "operators", b.pkg)
		release := path.Join(operator, b.version.String())
		files[operator+"/ci.yaml"] = string(content)
		if err := readFiles(dir, release, files); err != nil {
			return nil, fmt.Errorf("reading the bundle in %s: %w", dir, err)
		}
		for _, mapping := range c.FBC.CatalogMapping {
			additions, err := yaml.Marshal(map[string]any{"catalog_templates": g.additions(mapping.TemplateName, b.channels)})
			if err != nil {
				return nil, fmt.Errorf("encoding release-config.yaml: %w", err)
			}
			files[release+"/release-config.yaml"] = "---\n" + string(additions)
		}
	}
	return files, nil
}

// readFiles adds the files in dir to files, below target.
func readFiles(dir, target string, files map[string]string) error {
	root := os.DirFS(dir)
	return fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		files[path.Join(target, name)] = string(content)
		return err
	})
}

// additions returns how the heads of the channels are added to a template: at once if they replace the same releases.
func (g *graph) additions(template string, channels []string) []addition {
	var all []addition
	for _, name := range channels {
		entries, _ := g.channel(name)["entries"].([]any)
		head, _ := entries[len(entries)-1].(entry)
		replaces, _ := head["replaces"].(string)
		skipRange, _ := head["skipRange"].(string)
		i := slices.IndexFunc(all, func(a addition) bool { return a.Replaces == replaces && a.SkipRange == skipRange })
		if i < 0 {
			i = len(all)
			all = append(all, addition{TemplateName: template, Replaces: replaces, SkipRange: skipRange})
		}
		all[i].Channels = append(all[i].Channels, name)
		if name == g.of(schemaPackage)[0]["defaultChannel"] {
			all[i].DefaultChannel = name
		}
	}
	return all
}
