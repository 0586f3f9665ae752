//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// getConfig reads ListenerOperator/cluster. At the end of the test it is created again if it was deleted, and its
// agents are awaited.
func (s *scenario) getConfig() *operatorv1alpha1.ListenerOperator {
	s.Helper()
	config := s.configuration()
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		recreated := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
		if err := client.IgnoreAlreadyExists(api.Create(ctx, recreated)); err != nil {
			s.Errorf("recreating the configuration: %v", err)
		}
		if _, err := await(ctx, recreated, client.ObjectKeyFromObject(recreated), isAvailableOnAllNodes); err != nil {
			s.Error(err)
		}
	})
	return config
}

// isAvailableOnAllNodes reports whether the operator is available and each node has a ready agent.
func isAvailableOnAllNodes(config *operatorv1alpha1.ListenerOperator) bool {
	return config.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(config.Status.Conditions, operatorv1alpha1.ConditionAvailable) &&
		int(config.Status.NodeAgent.Ready) == len(testbed.Nodes())
}

// awaitDeletionRefused waits until the operator reports, with these words, that volumes in use block the deletion of
// the configuration.
func (s *scenario) awaitDeletionRefused(config *operatorv1alpha1.ListenerOperator, words string) {
	s.Helper()
	mustAwait(s, &operatorv1alpha1.ListenerOperator{}, client.ObjectKeyFromObject(config), func(o *operatorv1alpha1.ListenerOperator) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionDegraded)
		return !o.DeletionTimestamp.IsZero() && c != nil && c.Reason == operatorv1alpha1.ReasonVolumesInUse && strings.Contains(c.Message, words)
	})
}

// awaitUninstalled waits until the configuration is deleted, and checks that the objects that it owned are deleted.
func (s *scenario) awaitUninstalled(config *operatorv1alpha1.ListenerOperator) {
	s.Helper()
	mustAwaitDeleted(s, &operatorv1alpha1.ListenerOperator{}, client.ObjectKeyFromObject(config))
	policy := metav1.ObjectMeta{Name: names.PodListenersPolicy}
	driver := metav1.ObjectMeta{Name: names.Driver}
	for _, o := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: driver}, &storagev1.CSIDriver{ObjectMeta: driver},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: names.NodeAgent}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: policy}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy},
	} {
		s.checkNotFound(o)
	}
	if agents := s.agentUIDs(); len(agents) > 0 {
		s.Errorf("agents still exist: %v", agents)
	}
}

// agentUIDs returns the uids of the Pods of all agents, sorted.
func (s *scenario) agentUIDs() []types.UID {
	s.Helper()
	agents, err := podsOf(s.ctx, "node-agent")
	s.must(err)
	var uids []types.UID
	for _, a := range agents {
		uids = append(uids, a.UID)
	}
	slices.Sort(uids)
	return uids
}

// createReachablePod creates a class and a Pod "web", and waits until a client reaches the Pod at its address.
func (s *scenario) createReachablePod() (*listenersv1alpha1.ListenerClass, *corev1.Pod, listenersv1alpha1.IngressAddress) {
	s.Helper()
	class := s.createClass(unpinned())
	s.create(pod("web", byClass(class.Name)))
	p, own := s.awaitReachable("web")
	return class, p, own
}

// While a Pod has a volume, the operator refuses the deletion and names the Pod, also with foreground deletion. When
// the Pod has ended, for which its agent has to run, all installed objects are deleted. The administrator's
// ListenerClass stays.
func TestDeletionOfTheConfigurationWaitsForVolumesInUse(t *testing.T) {
	s := newScenario(t)
	class, p, own := s.createReachablePod()

	config := s.getConfig()
	s.remove(config, client.PropagationPolicy(metav1.DeletePropagationForeground))
	s.awaitDeletionRefused(config, fmt.Sprintf("Pods %s/web", s.namespace))
	mustAwait(s, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.NodeAgent}, func(d *appsv1.DaemonSet) bool {
		return d.DeletionTimestamp.IsZero() && int(d.Status.NumberReady) == len(testbed.Nodes())
	})
	s.awaitAnswer(own, "web")

	s.removeAndAwait(p)
	s.awaitPodDirRemoved(p)
	s.awaitUninstalled(config)
	s.get(&listenersv1alpha1.ListenerClass{}, client.ObjectKeyFromObject(class))
}

// It names all of it, also the classes of administrators, and not those of the preset.
func TestUndeployDeletesNothingThatUsersHaveWritten(t *testing.T) {
	s := newScenario(t)
	class, _, _ := s.createReachablePod()
	root, err := checkout.Root()
	s.must(err)
	cmd := exec.CommandContext(s.timeoutContext(), "make", "undeploy", "KUBECTL="+testbed.Kubectl())
	cmd.Dir, cmd.Env = root, append(os.Environ(), "KUBECONFIG="+testbed.Kubeconfig())
	output, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("nothing is refused")
	}
	for _, want := range []string{s.namespace + "/web-listener\n", "ListenerClasses", "\n" + class.Name + "\n"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output lacks %q:\n%s", want, output)
		}
	}
	if strings.Contains(string(output), "cluster-internal") {
		t.Errorf("a class of the preset is refused:\n%s", output)
	}
	// The API server refuses what a mistaken command deletes.
	out := s.failedKubectl("delete", "--dry-run=server", "--wait=false", "-k", filepath.Join(root, "config/crd"))
	if denied := strings.Count(out, "its deletion deletes "); denied != 4 {
		t.Errorf("of four CRDs, the deletion of %d is denied: %s", denied, out)
	}
}

// Nothing is deleted and Pods can end, until the operator runs again and completes the deletion.
func TestTheConfigurationCanBeDeletedWhileTheOperatorIsDown(t *testing.T) {
	s := newScenario(t)
	_, p, _ := s.createReachablePod()
	config := s.getConfig()
	t.Cleanup(func() {
		operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: names.Operator}}
		replicas := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))
		if err := api.Patch(context.Background(), operator, replicas); err != nil {
			t.Error(err)
		}
	})
	s.scaleOperator(0)
	before := s.agentUIDs()
	s.remove(config)
	s.removeAndAwait(p)
	s.awaitPodDirRemoved(p)
	if after := s.agentUIDs(); !slices.Equal(before, after) {
		t.Errorf("agents were %v and are %v", before, after)
	}
	s.scaleOperator(1)
	s.awaitUninstalled(config)
}

// A second deletion request, with orphaning, completes the pending deletion without deleting what is installed, and a
// new configuration takes it over. Neither the Pod nor an agent is affected.
func TestADeletionByMistakeCanBeReverted(t *testing.T) {
	s := newScenario(t)
	class, _, own := s.createReachablePod()
	config := s.getConfig()
	before := s.agentUIDs()
	s.remove(config)
	s.awaitDeletionRefused(config, fmt.Sprintf("Pods %s/web", s.namespace))
	s.removeAndAwait(config, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	recreated := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: config.Name}}
	s.create(recreated)
	mustAwait(s, recreated, client.ObjectKeyFromObject(recreated), isAvailableOnAllNodes)
	s.awaitAnswer(own, "web")
	if after := s.agentUIDs(); !slices.Equal(before, after) {
		t.Errorf("agents were %v and are %v", before, after)
	}
	s.create(pod("next", byClass(class.Name)))
	s.awaitReachable("next")
}
