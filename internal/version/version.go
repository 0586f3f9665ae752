// Package version has the version of the program, and the addresses of the files of its release.
package version

import (
	"regexp"
	"strings"
)

// Version is the semantic version of the release without a leading v, or "dev". The linker sets it, with -ldflags "-X
// github.com/listener-operator/listener-operator/internal/version.Version=1.2.3". It never changes at run time.
var Version = "dev"

// files matches what texts for users name: pages, and samples. It does not match the same in an address.
var files = regexp.MustCompile(`(^|[^\w/])((?:docs|config/samples)/[\w/-]+\.(?:md|yaml))`)

// released matches the versions of releases, and of their candidates, such as 1.2.3-rc.1. Builds in between have what
// git describe says, such as v1.2.3-4-gabcdef0.
var released = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[a-z]+\.?\d+)?$`)

// Link replaces the names of pages and samples in a text by their addresses in the release, or on the branch main.
func Link(text string) string {
	ref := "main"
	if released.MatchString(Version) {
		ref = "v" + strings.TrimPrefix(Version, "v")
	}
	return files.ReplaceAllString(text, "${1}https://github.com/listener-operator/listener-operator/blob/"+ref+"/${2}")
}
