// Package command runs programs.
package command

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Run runs a program and returns its standard output.
func Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return Output(exec.CommandContext(ctx, name, args...))
}

// Output runs a command and returns its standard output. If the command fails, the error contains its standard error.
func Output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("running %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", cmd.Args[0], err)
	}
	return out, nil
}
