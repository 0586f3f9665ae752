package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"

	"github.com/listener-operator/listener-operator/hack/command"
)

// collectLicenses collects the licenses of the modules that are linked into the programs, for the image and for the
// bill of materials.
func (r *release) collectLicenses(ctx context.Context) error {
	dir := filepath.Join(r.dir, "licenses")
	if err := collect(ctx, ".", dir, commands()...); err != nil {
		return err
	}
	table, err := os.ReadFile(filepath.Join(dir, "modules.csv"))
	if err != nil {
		return fmt.Errorf("reading the licenses: %w", err)
	}
	return r.recordLicenses(table)
}

// recordLicenses records the licenses of the modules in a table, as hack/licenses writes it.
func (r *release) recordLicenses(table []byte) error {
	reader := csv.NewReader(bytes.NewReader(table))
	reader.FieldsPerRecord = 3
	rows, err := reader.ReadAll()
	if err != nil {
		return fmt.Errorf("parsing the licenses: %w", err)
	}
	for _, row := range rows[1:] {
		r.licenses[row[0]+"@"+row[1]] = row[2]
	}
	return nil
}

// collect writes the licenses of what is linked into a module's packages into dir.
func collect(ctx context.Context, module, dir string, packages ...string) error {
	_, err := command.Run(ctx, "go", append([]string{"-C", "hack", "run", "./licenses", "-C", module, "-output", dir}, packages...)...)
	return err
}
