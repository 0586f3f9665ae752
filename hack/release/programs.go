package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs are what a release runs, in cmd/.
var programs = []string{"operator", "node-agent"}

// modulePath is the module that the programs belong to.
const modulePath = "github.com/listener-operator/listener-operator"

// buildPrograms builds the programs for each architecture, and has the go command look at their source as that architecture sees it.
func (r *release) buildPrograms(ctx context.Context) error {
	for _, architecture := range r.Architectures {
		dir, err := r.mkdir(programsOf(architecture))
		if err != nil {
			return err
		}
		if err := build(ctx, ".", dir, r.Version, architecture, programs); err != nil {
			return err
		}
	}
	return nil
}

// programsOf returns the directory of an architecture's programs.
func programsOf(architecture string) string {
	return filepath.Join("programs", "linux-"+architecture)
}

// build builds programs of the checkout in root into dir, such that nothing but their source, the version, the architecture and the version of Go
// changes them.
func build(ctx context.Context, root, dir, version, architecture string, names []string) error {
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X " + modulePath + "/internal/version.Version=" + version,
		"-o", dir + string(filepath.Separator),
	}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOPPC64=power8", "GOFIPS140=off")
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("building for %s: %w", architecture, err)
	}
	return nil
}
