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

// allowed are the SPDX identifiers of the licenses that a linked module may have. They require only that an image
// contains their text, and MPL-2.0 also that it names the module's source, which modules.csv does. Another license may
// be added after a review.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// minimumCoverage is the part of a license file, in percent, that must be the text of known licenses, as for
// pkg.go.dev. The rest are titles and remarks.
const minimumCoverage = 75

// texts matches the names of files that have to be distributed with a module, and terms those that contain licenses.
var (
	texts = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|notices?|patents)([._-].*)?$`)
	terms = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
)

// licensed is a module with its licenses.
type licensed struct {
	*module
	// Expression is an SPDX expression like Apache-2.0 AND MIT.
	Expression string
	// Files are the license files, by path in the module.
	Files map[string][]byte
}

// license finds the licenses of the module: those in its root, and others in the directories of linked packages and in
// their parents.
func (m *module) license() (licensed, error) {
	l := licensed{module: m, Files: map[string][]byte{}}
	if m.Version == "" {
		return l, fmt.Errorf("%s replaces a module by a directory, which is not published: replace it by a module and version", m.Path)
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
		return l, fmt.Errorf("%s has no license in %s, so it must not be used", m, m.Dir)
	}
	l.Expression = strings.Join(slices.Sorted(maps.Keys(identifiers)), " AND ")
	return l, nil
}

// directories returns the directories of the module's packages and their parents, beginning with the module's root.
func (m *module) directories() []string {
	all := map[string]bool{m.Dir: true}
	for dir := range m.packages {
		for ; len(dir) > len(m.Dir); dir = filepath.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}

// collect adds the license files in a directory of the module, except for duplicates of other files.
func (m *module) collect(dir string, files map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("finding licenses of %s: %w", m, err)
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

// classify returns the SPDX identifiers of the licenses in a text. It fails if the text is not known, or a license is
// not allowed.
func classify(text []byte) ([]string, error) {
	coverage := licensecheck.Scan(text)
	if coverage.Percent < minimumCoverage {
		return nil, fmt.Errorf("only %.0f%% of it is the text of known licenses, so the module must not be used", coverage.Percent)
	}
	var found []string
	for _, match := range coverage.Match {
		if match.IsURL || slices.Contains(found, match.ID) {
			continue
		}
		if !slices.Contains(allowed, match.ID) {
			return nil, fmt.Errorf("license %s is not allowed: remove the module, or add the license to hack/licenses/texts.go", match.ID)
		}
		found = append(found, match.ID)
	}
	if len(found) == 0 {
		return nil, errors.New("contains no license, only the name of one")
	}
	return found, nil
}
