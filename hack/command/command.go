// Package command runs the commands of this module, and other programs.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

// Main runs a command of this module in the root of the repository, and exits if it fails. An interrupt ends its
// context, and a second one the program.
func Main(run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	err := os.Chdir("..") // `go -C hack run` starts it in hack/
	if err == nil {
		err = run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

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
