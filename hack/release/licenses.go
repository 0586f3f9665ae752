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

// gatherLicenses gathers the licenses of what is linked into the programs, for their image and for the bill of
// materials.
func (r *release) gatherLicenses(ctx context.Context) error {
	dir := filepath.Join(r.dir, "licenses")
	if err := gather(ctx, ".", dir, commands()...); err != nil {
		return err
	}
	table, err := os.ReadFile(filepath.Join(dir, "modules.csv"))
	if err != nil {
		return fmt.Errorf("reading what was gathered: %w", err)
	}
	reader := csv.NewReader(bytes.NewReader(table))
	reader.FieldsPerRecord = 3
	rows, err := reader.ReadAll()
	if err != nil {
		return fmt.Errorf("parsing what was gathered: %w", err)
	}
	r.licenses = map[string]string{}
	for _, row := range rows[1:] {
		r.licenses[row[0]+"@"+row[1]] = row[2]
	}
	return nil
}

// gather gathers the licenses of what is linked into the programs of a module's packages in a directory.
func gather(ctx context.Context, module, dir string, packages ...string) error {
	_, err := command.Run(ctx, "go", append([]string{"-C", "hack", "run", "./licenses", "-C", module, "-output", dir}, packages...)...)
	return err
}
