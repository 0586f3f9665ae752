package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/listener-operator/listener-operator/hack/command"
)

// programs are the programs of a release, in cmd/.
var programs = []string{"operator", "node-agent"}

// modulePath is the path of the module of the programs.
const modulePath = "github.com/listener-operator/listener-operator"

// buildPrograms builds and vets the programs for each architecture.
func (r *release) buildPrograms(ctx context.Context) error {
	for _, architecture := range r.Architectures {
		dir, err := r.mkdir(programsOf(architecture))
		if err != nil {
			return err
		}
		if err := build(ctx, ".", dir, r.Version, architecture, commands()...); err != nil {
			return err
		}
		if err := vet(ctx, architecture); err != nil {
			return err
		}
		for _, program := range programs {
			if err := r.depend(filepath.Join(dir, program)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tags are the build tags of the programs, as in the Makefile.
const tags = "grpcnotrace"

// programsOf returns the directory of an architecture's programs.
func programsOf(architecture string) string {
	return filepath.Join("programs", "linux-"+architecture)
}

// commands returns the packages of the programs.
func commands() []string {
	var packages []string
	for _, name := range programs {
		packages = append(packages, "./cmd/"+name)
	}
	return packages
}

// build builds packages of the module in root into dir. The programs depend only on their source, the version, the
// architecture and the version of Go.
func build(ctx context.Context, root, dir, version, architecture string, packages ...string) error {
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", "-s -w -X " + modulePath + "/internal/version.Version=" + version,
		"-o", dir + string(filepath.Separator),
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = root
	cmd.Env = environment(architecture)
	if _, err := command.Output(cmd); err != nil {
		return fmt.Errorf("building for %s: %w", architecture, err)
	}
	return nil
}

// vet vets the main packages of the programs for an architecture. Their other packages are compiled for it, and linted
// for another one.
func vet(ctx context.Context, architecture string) error {
	// The same flags as in build, so that its results are reused.
	args := append([]string{"vet", "-trimpath", "-tags", tags}, commands()...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = environment(architecture)
	if _, err := command.Output(cmd); err != nil {
		return fmt.Errorf("vetting for %s: %w", architecture, err)
	}
	return nil
}

// environment returns the environment of the go command for an architecture. It overrides the user's settings that
// would change the result. No value is empty, because the command reads an empty one from the file of `go env -w`.
func environment(architecture string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=-trimpath", "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOPPC64=power8", "GOFIPS140=off")
}
