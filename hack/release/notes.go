package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// changelog is the file that the notes of a release are taken from.
const changelog = "CHANGELOG.md"

// writeNotes writes the notes of the release.
func (r *release) writeNotes(context.Context) error {
	content, err := os.ReadFile(changelog)
	if err != nil {
		return fmt.Errorf("reading the changelog: %w", err)
	}
	notes, err := notesOf(string(content), r.Version)
	if err != nil {
		return err
	}
	return r.write("NOTES.md", []byte(notes))
}

// relative is a link to a file of the repository.
var relative = regexp.MustCompile(`\]\(([^:)#][^:)]*)\)`)

// notesOf returns the section of a version in a changelog (https://keepachangelog.com), or of unreleased changes if
// there is none. Links lead to the files of that version in the repository.
func notesOf(changelog, version string) (string, error) {
	for _, heading := range []string{version, "Unreleased"} {
		_, rest, found := strings.Cut(changelog, "\n## ["+heading+"]")
		if !found {
			continue
		}
		_, section, _ := strings.Cut(rest, "\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if section = strings.TrimSpace(section); section == "" {
			return "", fmt.Errorf("the section [%s] in the changelog is empty: write what changes", heading)
		}
		return "# listener operator " + version + "\n\n" +
			relative.ReplaceAllString(section, "]("+repository+"/blob/v"+version+"/$1)") + "\n", nil
	}
	return "", fmt.Errorf("the changelog has no section [%s] or [Unreleased]", version)
}
