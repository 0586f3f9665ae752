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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// timeout is how long a scenario waits for one change. It allows for a machine that has other work.
const timeout = 2 * time.Minute

// scenario is a test or benchmark with its own namespace.
type scenario struct {
	testing.TB
	ctx       context.Context
	namespace string
}

// endedNamespaces are those of scenarios that have ended.
var endedNamespaces sync.Map

// newScenario creates a scenario and its namespace, which enforces the restricted Pod security standard. At the end of
// the test it deletes the namespace, and if the test has failed it first logs what is in it. The Pods and claims are
// gone then; Kubernetes deletes a namespace after some seconds, for which awaitEndedNamespaces waits.
func newScenario(t testing.TB) *scenario {
	t.Helper()
	s := &scenario{TB: t, ctx: t.Context()}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "scenario-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	s.create(namespace)
	s.namespace = namespace.Name
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
		{"get", "pods,persistentvolumeclaims,listeners,podlisteners,services", "-o", "wide"},
		{"get", "listeners,podlisteners", "-o", "yaml"},
		{"get", "events", "--sort-by=.metadata.creationTimestamp"},
	} {
		cmd := exec.CommandContext(ctx, testbed.Kubectl(), append([]string{"--kubeconfig", testbed.Kubeconfig(), "-n", s.namespace}, args...)...)
		output, _ := cmd.CombinedOutput()
		s.Logf("kubectl %s:\n%s", strings.Join(args, " "), output)
	}
	for _, selector := range []string{"app.kubernetes.io/component=operator", "app.kubernetes.io/component=node-agent"} {
		cmd := exec.CommandContext(ctx, testbed.Kubectl(), "--kubeconfig", testbed.Kubeconfig(), "-n", operatorNamespace,
			"logs", "--prefix", "--tail=40", "-l", selector)
		output, _ := cmd.CombinedOutput()
		s.Logf("logs of %s:\n%s", selector, output)
	}
}

func (s *scenario) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

// timeoutContext returns a context with the timeout.
func (s *scenario) timeoutContext() context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	s.Cleanup(cancel)
	return ctx
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

// patch changes an object by a merge patch of what change does to it.
func (s *scenario) patch(o client.Object, change func()) {
	s.Helper()
	before := o.DeepCopyObject().(client.Object)
	change()
	if err := api.Patch(s.ctx, o, client.MergeFrom(before)); err != nil {
		s.Fatalf("changing %T %s: %v", o, o.GetName(), err)
	}
}
