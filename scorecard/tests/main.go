// Command tests runs the operator's own scorecard tests. The Operator SDK's scorecard runs each test in a Pod, with the
// bundle in /bundle, and reads a TestStatus from the output of the Pod. So the program must never print anything else,
// even if a test panics.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"github.com/operator-framework/api/pkg/manifests"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// bundleDir is the directory of the bundle in the Pod.
const bundleDir = "/bundle"

// serveCommand is the argument that runs the server of the test volume-mounts.
const serveCommand = "serve"

// tests are the tests by name. They are independent of each other, but uninstall-leaves-nothing must run last, because
// it temporarily removes what the others need.
var tests = map[string]func(context.Context, *environment) error{
	"bundle-is-installable":    bundleIsInstallable,
	"operator-comes-up":        operatorComesUp,
	"volume-mounts":            volumeMounts,
	"uninstall-leaves-nothing": uninstallLeavesNothing,
}

// environment is the input of a test, and its log.
type environment struct {
	bundle *manifests.Bundle
	client client.Client
	// namespace is the namespace of the test's own Pod.
	namespace string
	// pod is the name of the test's own Pod.
	pod string

	log strings.Builder
}

// logf adds a line to the log of the test.
func (e *environment) logf(format string, args ...any) {
	fmt.Fprintf(&e.log, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}

// failure is an error of the operator. Any other error means that the test could not be performed.
type failure string

func (f failure) Error() string { return string(f) }

func failf(format string, args ...any) error { return failure(fmt.Sprintf(format, args...)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == serveCommand {
		fmt.Fprintln(os.Stderr, serve(ctx))
		return
	}
	// Log lines of libraries would corrupt the result.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	output, _ := json.MarshalIndent(status(ctx, os.Args[1:]), "", "  ") // cannot fail: strings and times
	fmt.Println(string(output))
}

// status runs the test that is named in args.
func status(ctx context.Context, args []string) v1alpha3.TestStatus {
	name := strings.Join(args, " ")
	e := &environment{namespace: os.Getenv("SCORECARD_NAMESPACE")}
	test, ok := tests[name]
	if !ok {
		return result(name, e, fmt.Errorf("no test %q (available tests: %s)", name, strings.Join(slices.Sorted(maps.Keys(tests)), ", ")))
	}
	if err := e.complete(); err != nil {
		return result(name, e, err)
	}
	return result(name, e, protect(ctx, e, test))
}

// complete reads the bundle and prepares access to the cluster.
func (e *environment) complete() error {
	var err error
	if e.bundle, err = manifests.GetBundleFromDir(bundleDir); err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}
	if e.pod, err = os.Hostname(); err != nil {
		return fmt.Errorf("reading the name of the Pod: %w", err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("reading the in-cluster configuration: %w", err)
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(
		clientgoscheme.AddToScheme(scheme), listenersv1alpha1.AddToScheme(scheme), operatorv1alpha1.AddToScheme(scheme),
	); err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	if e.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return nil
}

// protect runs a test, and returns a panic as an error.
func protect(ctx context.Context, e *environment, test func(context.Context, *environment) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the test panicked: %v", r)
		}
	}()
	return test(ctx, e)
}

// result returns the status of a test that returned err.
func result(name string, e *environment, err error) v1alpha3.TestStatus {
	r := v1alpha3.TestResult{Name: name, State: v1alpha3.PassState, Log: e.log.String()}
	if err != nil {
		r.State, r.Errors = v1alpha3.ErrorState, strings.Split(err.Error(), "\n")
	}
	if _, ok := errors.AsType[failure](err); ok {
		r.State = v1alpha3.FailState
	}
	return v1alpha3.TestStatus{Results: []v1alpha3.TestResult{r}}
}
