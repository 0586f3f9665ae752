// Command tests is the image of the operator's own scorecard tests. The scorecard of the Operator SDK runs one of them
// in a Pod, with the bundle in /bundle, and reads a TestStatus from what the Pod prints. So a test must never print
// anything else, whatever happens to it.
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

// bundleDir is where the scorecard puts the bundle.
const bundleDir = "/bundle"

// serveCommand makes the program the server that a test starts, instead of a test.
const serveCommand = "serve"

// tests are what the scorecard may ask for. They are independent of each other, but the last takes away for a moment
// what the others need.
var tests = map[string]func(context.Context, *environment) error{
	"bundle-is-installable":    bundleIsInstallable,
	"operator-comes-up":        operatorComesUp,
	"volume-mounts":            volumeMounts,
	"uninstall-leaves-nothing": uninstallLeavesNothing,
}

// environment is what a test works with.
type environment struct {
	bundle *manifests.Bundle
	client client.WithWatch
	// namespace is where the test's own Pod runs.
	namespace string
	// pod is the name of the test's own Pod.
	pod string

	log strings.Builder
}

// logf notes what a test does, for whoever has to find out why it did not pass.
func (e *environment) logf(format string, args ...any) {
	fmt.Fprintf(&e.log, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}

// failure is an error that says that the operator does not behave as it should. Any other error says that a test could
// not find out.
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
	// What libraries log would get between the lines of the result.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	output, _ := json.MarshalIndent(status(ctx, os.Args[1:]), "", "  ") // strings and times
	fmt.Println(string(output))
}

// status runs the test that args name.
func status(ctx context.Context, args []string) v1alpha3.TestStatus {
	name := strings.Join(args, " ")
	e := &environment{namespace: os.Getenv("SCORECARD_NAMESPACE")}
	test, ok := tests[name]
	if !ok {
		return result(name, e, fmt.Errorf("there is no test %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(tests)), ", ")))
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
		return fmt.Errorf("finding the Pod's name: %w", err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(
		clientgoscheme.AddToScheme(scheme), listenersv1alpha1.AddToScheme(scheme), operatorv1alpha1.AddToScheme(scheme),
	); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	if e.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return nil
}

// protect runs a test and turns a panic into an error.
func protect(ctx context.Context, e *environment, test func(context.Context, *environment) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the test panicked: %v", r)
		}
	}()
	return test(ctx, e)
}

// result is what the scorecard shows of a test that ended with err.
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
