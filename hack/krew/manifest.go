package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// The manifest of a plugin (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
type plugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       pluginSpec        `json:"spec"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector selector     `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
	Files    []pluginFile `json:"files"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type pluginFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// manifest returns the manifest for archives with these checksums.
func manifest(o Options, list []platform, sums map[platform]string) ([]byte, error) {
	m := plugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "listener"},
		Spec: pluginSpec{
			Version: "v" + o.Version, Homepage: "https://github.com/listener-operator/listener-operator",
			ShortDescription: "Find out why a Pod has no external address",
			Description: `Shows what is wrong with the listener volumes and Listeners of the listener operator, and what to do about it:
why a Pod, a claim or a Listener has no address, the addresses of each replica, which of them you can reach, and what is
wrong with the installation. Releases volumes from lost nodes.
`,
		},
	}
	for _, p := range list {
		m.Spec.Platforms = append(m.Spec.Platforms, pluginPlatform{
			Selector: selector{map[string]string{"os": p.os, "arch": p.arch}},
			URI:      o.URL + "/" + p.archive(), SHA256: sums[p], Bin: p.program(),
			Files: []pluginFile{{p.program(), "."}, {"LICENSE", "."}, {"licenses", "."}},
		})
	}
	content, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	return content, nil
}
