// Command cert-manager runs the controllers of cert-manager that serve Certificates of issuers with a key in a Secret.
// The project's own command is in a module inside of its module, which is in no archive.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	requestsca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca" // registers itself
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// workers is the number of workers of each controller.
const workers = 2

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, *kubeconfig)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run runs the controllers until ctx is done.
func run(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:    kubeconfig,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour, CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{
		issuers.ControllerName, clusterissuers.ControllerName, trigger.ControllerName, keymanager.ControllerName, requestmanager.ControllerName,
		approver.ControllerName, requestsca.CRControllerName, issuing.ControllerName, readiness.ControllerName,
	} {
		c, err := controller.Known()[name](factory)
		if err != nil {
			return fmt.Errorf("making the controller %s: %w", name, err)
		}
		group.Go(func() error { return c.Run(workers, ctx) })
	}
	informers, err := factory.Build()
	if err != nil {
		return fmt.Errorf("making the informers: %w", err)
	}
	informers.SharedInformerFactory.Start(ctx.Done())
	informers.KubeSharedInformerFactory.Start(ctx.Done())
	return group.Wait() //nolint:wrapcheck // it names the controller
}
