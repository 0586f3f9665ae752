// Package version has the version of the program.
package version

// Version is the semantic version of the release without a leading v, or "dev". The linker sets it, with -ldflags "-X
// github.com/listener-operator/listener-operator/internal/version.Version=1.2.3". It never changes at run time.
var Version = "dev"
