package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/listener-operator/listener-operator/hack/command"
)

// programs are what a release runs, in cmd/.
var programs = []string{"operator", "node-agent"}

// modulePath is the module that the programs belong to.
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

// build builds packages of the checkout in root into dir, such that nothing but their source, the version, the
// architecture and the version of Go changes the programs.
func build(ctx context.Context, root, dir, version, architecture string, packages ...string) error {
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X " + modulePath + "/internal/version.Version=" + version,
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

// vet examines the programs. Their packages are the same everywhere, compiled and linted; only their main packages are
// looked at for each architecture.
func vet(ctx context.Context, architecture string) error {
	// With the flag of the build, what that compiled is not compiled again.
	args := append([]string{"vet", "-trimpath"}, commands()...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = environment(architecture)
	if _, err := command.Output(cmd); err != nil {
		return fmt.Errorf("vetting for %s: %w", architecture, err)
	}
	return nil
}

// environment returns the go command's for an architecture, without settings of the user's that would change its
// result. None of them is empty: for those that are, the command looks into the file of `go env -w`.
func environment(architecture string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=-trimpath", "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOPPC64=power8", "GOFIPS140=off")
}
