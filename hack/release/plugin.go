package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/listener-operator/listener-operator/hack/archive"
	"github.com/listener-operator/listener-operator/hack/command"
)

// buildPlugin builds the archives of the kubectl plugin for each platform, their bills of materials, and the manifest
// for krew.
func (r *release) buildPlugin(ctx context.Context) error {
	dir, err := r.mkdir("plugin")
	if err != nil {
		return err
	}
	if _, err := command.Run(ctx, "go", "-C", "hack", "run", "./krew", "-version", r.Version, "-url", r.URL, "-output", dir); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if err != nil {
		return fmt.Errorf("listing the archives: %w", err)
	}
	for _, path := range archives {
		if err := r.describePlugin(path); err != nil {
			return fmt.Errorf("describing %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// describePlugin writes the bill of materials of an archive of the plugin, and records what its program depends on.
func (r *release) describePlugin(path string) error {
	packed, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	files, err := archive.Unpack(packed)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "plugin-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var program string
	for _, f := range files {
		switch f.Name {
		case "licenses/modules.csv":
			if err := r.recordLicenses(f.Content); err != nil {
				return err
			}
		case "kubectl-listener", "kubectl-listener.exe":
			program = filepath.Join(dir, f.Name)
			if err := os.WriteFile(program, f.Content, 0o600); err != nil {
				return fmt.Errorf("unpacking the program: %w", err)
			}
		}
	}
	if err := r.depend(program); err != nil {
		return err
	}
	sum, err := checksum(path)
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	bom, err := r.billOf(&cdx.Component{
		BOMRef: "plugin/" + name, Type: cdx.ComponentTypeFile, Name: name, Version: r.Version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
	}, program)
	if err != nil {
		return err
	}
	return r.writeBill(strings.TrimSuffix(name, ".tar.gz"), bom)
}
