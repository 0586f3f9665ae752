// Package version tells which release a binary is.
package version

// Version is the semantic version of the release without a leading v, or "dev". It is set when a release is linked,
// with -ldflags "-X github.com/listener-operator/listener-operator/internal/version.Version=1.2.3", and never
// afterwards.
var Version = "dev"
