// The command licenses gathers the licenses of everything that is linked into programs of this checkout, on all
// architectures of a release: what an image has to hold in /licenses. The same source and the same version of Go give
// the same files. It fails where a license is missing, or is none that was agreed to; it must never guess one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/listener-operator/listener-operator/hack/image"
)

func main() {
	var output, dir string
	flag.StringVar(&dir, "C", ".", "directory of the module that the packages belong to")
	flag.StringVar(&output, "output", "bin/licenses", "directory for the licenses, of which modules/ is replaced")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: licenses [-C DIR] [-output DIR] PACKAGE...\ngathers the licenses of what is linked into the programs of the packages")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := os.Chdir("..") // `go -C hack run` starts it in hack/, and paths are relative to the repository's root.
	if err == nil {
		err = run(ctx, dir, output, flag.Args())
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run gathers the licenses of packages of the module in dir.
func run(ctx context.Context, dir, output string, packages []string) error {
	if len(packages) == 0 {
		return errors.New("no package is given, like ./cmd/operator")
	}
	modules, err := linked(ctx, dir, image.Architectures(), packages)
	if err != nil {
		return err
	}
	found, err := licenses(modules)
	if err != nil {
		return err
	}
	return write(output, "LICENSE", found)
}

// licenses finds the licenses of modules. The error names every module that may not be linked.
func licenses(modules []*module) ([]licensed, error) {
	var found []licensed
	var errs []error
	for _, m := range modules {
		l, err := m.license()
		found, errs = append(found, l), append(errs, err)
	}
	return found, errors.Join(errs...)
}
