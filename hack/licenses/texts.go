package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licenses, by their SPDX identifiers, that a linked module may be under. All of them ask for no more
// of an image than to hold their text, and MPL-2.0 to tell where the module's source is, which modules.csv does.
// Another license may be added once it was reviewed.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// known is the part of a license file, in per cent, that has to be the text of licenses: as for pkg.go.dev. The rest
// are titles and remarks.
const known = 75

// texts are names of the files that have to go with a module; terms, of those among them that are licenses.
var (
	texts = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|notices?|patents)([._-].*)?$`)
	terms = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
)

// licensed is a module with its licenses.
type licensed struct {
	*module
	// Expression has their SPDX identifiers, like Apache-2.0 AND MIT.
	Expression string
	// Files are their texts, by their paths in the module.
	Files map[string][]byte
}

// license finds the licenses of the module: in its root, and where packages that are linked, or directories that they
// are in, have others.
func (m *module) license() (licensed, error) {
	l := licensed{module: m, Files: map[string][]byte{}}
	if m.Version == "" {
		return l, fmt.Errorf("%s, which go.mod puts in the place of a module, is a directory that nobody else has: name a module and its version", m.Path)
	}
	for _, dir := range m.directories() {
		if err := m.collect(dir, l.Files); err != nil {
			return l, err
		}
	}
	identifiers := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(l.Files)) {
		if !terms.MatchString(filepath.Base(name)) {
			continue
		}
		found, err := classify(l.Files[name])
		if err != nil {
			return l, fmt.Errorf("%s: %s: %w", m, name, err)
		}
		for _, id := range found {
			identifiers[id] = true
		}
	}
	if len(identifiers) == 0 {
		return l, fmt.Errorf("%s has no license in %s, so nobody may use it: do without it", m, m.Dir)
	}
	l.Expression = strings.Join(slices.Sorted(maps.Keys(identifiers)), " AND ")
	return l, nil
}

// directories returns those of the module's packages and all above them, the module's own first.
func (m *module) directories() []string {
	all := map[string]bool{m.Dir: true}
	for dir := range m.packages {
		for ; len(dir) > len(m.Dir); dir = filepath.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}

// collect adds the texts in a directory of the module that are not among files.
func (m *module) collect(dir string, files map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking for licenses of %s: %w", m, err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".go" || !texts.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("reading a license of %s: %w", m, err)
		}
		if slices.ContainsFunc(slices.Collect(maps.Values(files)), func(other []byte) bool { return bytes.Equal(other, content) }) {
			continue
		}
		name, err := filepath.Rel(m.Dir, filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("naming a license of %s: %w", m, err)
		}
		files[name] = content
	}
	return nil
}

// classify returns the SPDX identifiers of the licenses that a text consists of. It fails on texts and licenses that
// are not known.
func classify(text []byte) ([]string, error) {
	coverage := licensecheck.Scan(text)
	if coverage.Percent < known {
		return nil, fmt.Errorf("only %.0f%% of it is the text of licenses that are known: do without the module", coverage.Percent)
	}
	var found []string
	for _, match := range coverage.Match {
		if match.IsURL || slices.Contains(found, match.ID) {
			continue
		}
		if !slices.Contains(allowed, match.ID) {
			return nil, fmt.Errorf("nobody agreed to the license %s: do without the module, or add the license to those that are allowed in hack/licenses", match.ID)
		}
		found = append(found, match.ID)
	}
	if len(found) == 0 {
		return nil, errors.New("it only names a license")
	}
	return found, nil
}
