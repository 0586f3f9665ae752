// Command kubectl-listener is the plugin `kubectl listener`. It shows what is wrong with listener volumes, Listeners
// and the installation of the operator, and what to do about it.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

func main() {
	log.SetLogger(logr.Discard()) // what users need to know is in the results and errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := plugin.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout,
		ErrOut: os.Stderr}, backends.All()).ExecuteContext(ctx)
	stop()
	switch { // the same statuses as `kubectl diff`
	case err == nil:
	case errors.Is(err, command.ErrProblem):
		os.Exit(1)
	default:
		command.WriteError(os.Stderr, err)
		os.Exit(2)
	}
}
