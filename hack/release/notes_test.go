package main

import (
	"strings"
	"testing"
)

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	const released = `# Changelog

## [Unreleased]

- later

## [1.2.3] - 2026-11-22

### Added

- [x](docs/x.md#y), [z](https://example.com)

## [1.2.2]

- earlier
`
	for name, tc := range map[string]struct{ changelog, version, want, wantErr string }{
		"a section of its own": {
			changelog: released, version: "1.2.3",
			want: "# listener operator 1.2.3\n\n### Added\n\n- [x](https://github.com/listener-operator/listener-operator/blob/v1.2.3/docs/x.md#y), [z](https://example.com)\n",
		},
		"the last section":           {changelog: released, version: "1.2.2", want: "# listener operator 1.2.2\n\n- earlier\n"},
		"a release candidate":        {changelog: released, version: "1.3.0-rc.1", want: "# listener operator 1.3.0-rc.1\n\n- later\n"},
		"no changes":                 {changelog: "# Changelog\n\n## [Unreleased]\n\n## [1.2.2]\n", version: "1.2.3", wantErr: "is empty"},
		"no section for the version": {changelog: "# Changelog\n\n## [1.2.2]\n", version: "1.2.3", wantErr: "no section [1.2.3]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := notesOf(tc.changelog, tc.version)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("error %v, want %q", err, tc.wantErr)
			}
			if got != tc.want {
				t.Errorf("notes %q, want %q", got, tc.want)
			}
		})
	}
}
