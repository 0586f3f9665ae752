package image

// Scorecard returns the spec of the image of the operator's own scorecard tests. It contains the program, which was
// built for the architecture, and its licenses, which hack/licenses collected in the directory licenses.
// scorecard/Dockerfile describes the same image.
func Scorecard(licenses, program, architecture string) Spec {
	return Spec{
		Files: map[string]File{
			"/scorecard-tests": {Source: program, Mode: 0o755},
			"/licenses":        {Source: licenses, Mode: 0o644},
		},
		// A test starts the image as a server, without a command.
		Entrypoint:   []string{"/scorecard-tests"},
		User:         "65532",
		Architecture: architecture,
	}
}
