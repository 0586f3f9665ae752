package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// FromDockerfile returns the spec of the image that a Dockerfile describes. The file may only set labels, and copy
// files and directories of the build context dir into an empty image.
func FromDockerfile(path, dir string) (Spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("reading a Dockerfile: %w", err)
	}
	spec := Spec{Files: map[string]File{}, Labels: map[string]string{}}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "FROM scratch":
		case len(fields) == 2 && fields[0] == "LABEL":
			name, value, _ := strings.Cut(fields[1], "=")
			spec.Labels[name] = strings.Trim(value, `"`)
		case len(fields) == 3 && fields[0] == "COPY":
			spec.Files[fields[2]] = File{Source: filepath.Join(dir, fields[1]), Mode: 0o644}
		default:
			return Spec{}, fmt.Errorf("%s: unsupported instruction: %s", path, strings.TrimSpace(line))
		}
	}
	return spec, nil
}
