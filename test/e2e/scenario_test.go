//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// timeout is how long most scenarios wait for one change. It allows for a machine that has other work.
const timeout = 2 * time.Minute

// scenario is a test or benchmark with its own namespace.
type scenario struct {
	testing.TB
	ctx       context.Context
	namespace string
	// timeout is how long it waits for one change.
	timeout time.Duration
}

// endedNamespaces are the namespaces of scenarios that have ended.
var endedNamespaces sync.Map

// newScenario creates a scenario and its namespace, which enforces the restricted Pod security standard. On OpenShift
// it is an ordinary project, without a label. At the end of the test it deletes the namespace, and if the test has
// failed it first logs what is in it. The Pods and claims are gone then; Kubernetes deletes a namespace after some
// seconds, for which awaitEndedNamespaces waits.
func newScenario(t testing.TB) *scenario {
	t.Helper()
	s := &scenario{TB: t, ctx: t.Context(), timeout: timeout}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "scenario-", Labels: map[string]string{podSecurity: "restricted"},
	}}
	if microShift != "" {
		namespace.Labels = nil
	}
	s.create(namespace)
	s.namespace = namespace.Name
	if microShift != "" {
		s.awaitProject()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if t.Failed() {
			s.dump(ctx)
		}
		if err := s.deletePods(ctx); err != nil {
			t.Errorf("deleting the Pods: %v", err)
		}
		if err := client.IgnoreNotFound(api.Delete(ctx, namespace)); err != nil {
			t.Errorf("deleting the namespace: %v", err)
		}
		endedNamespaces.Store(namespace.Name, t.Name())
	})
	return s
}

// within returns the scenario for a subtest.
func (s *scenario) within(t *testing.T) *scenario {
	inner := *s
	inner.TB, inner.ctx = t, t.Context()
	return &inner
}

// deletePods deletes all Pods and claims of the scenario, and waits until they are gone.
func (s *scenario) deletePods(ctx context.Context) error {
	for _, o := range []client.Object{&appsv1.StatefulSet{}, &appsv1.Deployment{}, &appsv1.DaemonSet{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
		if err := api.DeleteAllOf(ctx, o, client.InNamespace(s.namespace)); err != nil {
			return err
		}
	}
	return eventually(ctx, func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
			if err := api.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
				return err
			}
			if meta.LenList(list) > 0 {
				raw, _ := json.Marshal(list)
				return fmt.Errorf("these are left: %s", raw)
			}
		}
		return nil
	})
}

// awaitEndedNamespaces waits until the namespaces of all scenarios are deleted.
func awaitEndedNamespaces(ctx context.Context) error {
	var errs []error
	endedNamespaces.Range(func(name, test any) bool {
		if err := awaitDeleted(ctx, &corev1.Namespace{}, client.ObjectKey{Name: name.(string)}); err != nil {
			errs = append(errs, fmt.Errorf("the namespace of %s is not deleted: %w", test, err))
		}
		return true
	})
	return errors.Join(errs...)
}

// dump logs the objects of the namespace, and the logs of the operator and its agents.
func (s *scenario) dump(ctx context.Context) {
	for _, args := range [][]string{
		{"-n", s.namespace, "get", "pods,persistentvolumeclaims,listeners,podlisteners,services", "-o", "wide"},
		{"-n", s.namespace, "get", "listeners,podlisteners", "-o", "yaml"},
		{"-n", s.namespace, "get", "events", "--sort-by=.metadata.creationTimestamp"},
		{"-n", operatorNamespace, "logs", "--prefix", "--tail=40", "-l", componentLabel + "=operator"},
		{"-n", operatorNamespace, "logs", "--prefix", "--tail=40", "-l", componentLabel + "=node-agent"},
	} {
		s.logKubectl(ctx, args...)
	}
}

// kubectl runs kubectl on the cluster, and returns its standard output.
func kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := output(ctx, "", nil, testbed.Kubectl(), append([]string{"--kubeconfig=" + testbed.Kubeconfig()}, args...)...)
	return string(out), err
}

// failedKubectl runs kubectl, which has to fail, and returns all that it prints.
func (s *scenario) failedKubectl(args ...string) string {
	s.Helper()
	out, err := exec.CommandContext(s.timeoutContext(), testbed.Kubectl(), append([]string{"--kubeconfig=" + testbed.Kubeconfig()}, args...)...).CombinedOutput()
	if err == nil {
		s.Errorf("kubectl %s succeeds", strings.Join(args, " "))
	}
	return string(out)
}

// logKubectl logs what kubectl prints, for the diagnosis of a failure.
func (s *scenario) logKubectl(ctx context.Context, args ...string) {
	out, err := kubectl(ctx, args...)
	s.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
}

// componentLabel is the label by which the Pods of the operator and of the node agents are told apart.
const componentLabel = "app.kubernetes.io/component"

// podsOf returns the Pods of a component: "operator" or "node-agent".
func podsOf(ctx context.Context, component string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{componentLabel: component}); err != nil {
		return nil, fmt.Errorf("listing the Pods of the %s: %w", component, err)
	}
	return pods.Items, nil
}

func (s *scenario) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

// timeoutContext returns a context with the timeout.
func (s *scenario) timeoutContext() context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	s.Cleanup(cancel)
	return ctx
}

// must ends the scenario if there is an error.
func (s *scenario) must(err error) {
	s.Helper()
	check.Must(s, err)
}

func (s *scenario) create(o client.Object) {
	s.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(s.namespace)
	}
	if err := api.Create(s.ctx, o); err != nil {
		s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

// createUntilEnd creates an object outside the namespace, and deletes it at the end of the test.
func (s *scenario) createUntilEnd(o client.Object) {
	s.Helper()
	s.create(o)
	s.Cleanup(func() { _ = api.Delete(context.Background(), o) })
}

func (s *scenario) remove(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	if err := api.Delete(s.ctx, o, options...); err != nil {
		s.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

func (s *scenario) get(o client.Object, key client.ObjectKey) {
	s.Helper()
	if err := api.Get(s.ctx, key, o); err != nil {
		s.Fatalf("reading %T %s: %v", o, key, err)
	}
}

// mustGet reads an object into o, and returns it.
func mustGet[T client.Object](s *scenario, o T, key client.ObjectKey) T {
	s.Helper()
	s.get(o, key)
	return o
}

// patch changes an object by a merge patch of what change does to it.
func (s *scenario) patch(o client.Object, change func()) {
	s.Helper()
	before := o.DeepCopyObject().(client.Object)
	change()
	if err := api.Patch(s.ctx, o, client.MergeFrom(before)); err != nil {
		s.Fatalf("changing %T %s: %v", o, o.GetName(), err)
	}
}

// allowPrivileged lets the Pods of the scenario do what the restricted Pod security standard forbids, such as using
// host ports.
func (s *scenario) allowPrivileged() {
	s.Helper()
	namespace := mustGet(s, &corev1.Namespace{}, client.ObjectKey{Name: s.namespace})
	s.patch(namespace, func() { namespace.Labels[podSecurity] = "privileged" })
	s.eventually(func(ctx context.Context) error { // admission reads namespaces from a cache
		privileged := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "privileged"},
			Spec: corev1.PodSpec{
				HostNetwork: true,
				Containers:  []corev1.Container{{Name: "none", Image: "none"}},
			},
		}
		return api.Create(ctx, privileged, client.DryRunAll)
	})
}

// installation is what the first scenario that needs it installs on the cluster.
type installation struct {
	once sync.Once
	err  error
}

// ensure installs it within a time, unless another scenario has done so.
func (i *installation) ensure(s *scenario, what string, within time.Duration, install func(context.Context) error) {
	s.Helper()
	i.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), within)
		defer cancel()
		i.err = install(ctx)
	})
	if i.err != nil {
		s.Fatalf("%s was not installed: %v", what, i.err)
	}
}

// tokenOf returns a token of a ServiceAccount.
func (s *scenario) tokenOf(namespace, account string) string {
	s.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	request := &authenticationv1.TokenRequest{}
	if err := api.SubResource("token").Create(s.ctx, sa, request); err != nil {
		s.Fatalf("requesting a token of %s: %v", account, err)
	}
	return request.Status.Token
}
