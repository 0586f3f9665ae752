package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
)

// write writes the operator's own license, the table of the modules, and their license files.
func write(output, own string, modules []licensed) error {
	license, err := os.ReadFile(own)
	if err != nil {
		return fmt.Errorf("reading the operator's license: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(output, "modules")); err != nil {
		return fmt.Errorf("removing the previous licenses: %w", err)
	}
	files := map[string][]byte{"LICENSE": license, "modules.csv": table(modules)}
	for _, m := range modules {
		for name, content := range m.Files {
			files[filepath.Join("modules", m.String(), name)] = content
		}
	}
	for name, content := range files {
		path := filepath.Join(output, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("creating a directory: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing a license: %w", err)
		}
	}
	return nil
}

// table returns the licenses of each module as comma-separated values.
func table(modules []licensed) []byte {
	var content bytes.Buffer
	w := csv.NewWriter(&content)
	_ = w.Write([]string{"module", "version", "licenses"}) // a buffer returns no error
	for _, m := range modules {
		_ = w.Write([]string{m.Path, m.Version, m.Expression})
	}
	w.Flush()
	return content.Bytes()
}
