// Command licenses collects the licenses of all modules that are linked into programs of this repository, on all
// platforms of a release. An image contains them in /licenses. The same source and the same version of Go result in
// the same files. It fails if a license is missing, unknown or not allowed, and must never guess one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/listener-operator/listener-operator/hack/command"
	"github.com/listener-operator/listener-operator/hack/image"
)

func main() {
	var output, dir, platforms string
	flag.StringVar(&dir, "C", ".", "directory of the module that the packages belong to")
	flag.StringVar(&output, "output", "bin/licenses", "directory for the licenses; its modules/ is replaced")
	flag.StringVar(&platforms, "platforms", "linux/"+strings.Join(image.Architectures(), ",linux/"), "comma-separated platforms that the packages are built for")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: licenses [-C DIR] [-output DIR] PACKAGE...\ncollects the licenses of the modules that are linked into the packages")
		flag.PrintDefaults()
	}
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		return run(ctx, dir, output, strings.Split(platforms, ","), flag.Args())
	})
}

// run collects the licenses of packages of the module in dir.
func run(ctx context.Context, dir, output string, platforms, packages []string) error {
	if len(packages) == 0 {
		return errors.New("no package is given, for example ./cmd/operator")
	}
	modules, err := linked(ctx, dir, platforms, packages)
	if err != nil {
		return err
	}
	found, err := licenses(modules)
	if err != nil {
		return err
	}
	return write(output, "LICENSE", found)
}

// licenses finds the licenses of the modules. The error names every module that must not be linked.
func licenses(modules []*module) ([]licensed, error) {
	var found []licensed
	var errs []error
	for _, m := range modules {
		l, err := m.license()
		found, errs = append(found, l), append(errs, err)
	}
	return found, errors.Join(errs...)
}
